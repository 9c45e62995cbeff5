"""What the Python clients share: arguments, records, digests and events. See README.md."""

import hashlib
import json
import signal
import sys
import time

PARTITIONS = 4
# Between batches of the scenario `restart`, so that readers keep up.
PACE_S = 0.05


def key(index):
    return b"k%d" % index


def payload(seed, index):
    digest = hashlib.sha256(f"{seed}:{index}".encode()).hexdigest()
    length = 1 + int(digest[:4], 16) % 1000
    return (digest * (length // len(digest) + 1))[:length].encode()


class Arguments:
    def __init__(self, words):
        self.broker, self.scenario, self.topic = words[:3]
        self.count, self.seed = int(words[3]), words[4]
        self.options = dict(word.split("=", 1) for word in words[5:])

    def records(self, first, count):
        """Yields partition, key, payload and timestamp of each record."""
        start = int(self.options["time"])
        for i in range(first, first + count):
            yield i % PARTITIONS, key(i), payload(self.seed, i), start + i


class Reading:
    """What was read, by partition."""

    def __init__(self, starts, ends):
        self.starts, self.ends = starts, ends
        self.nexts = {partition: starts[partition] for partition in starts}
        self.counts = {partition: 0 for partition in starts}
        self.hashes = {partition: hashlib.sha256() for partition in starts}

    def is_complete(self):
        return all(self.nexts[partition] >= self.ends[partition] for partition in self.ends)

    def add(self, partition, offset, record_key, value):
        if offset >= self.ends[partition]:
            return
        self.nexts[partition] = offset + 1
        self.counts[partition] += 1
        self.hashes[partition].update(record_key + b"\n" + value + b"\n")

    def report(self):
        one = lambda p: {
            "start": self.starts[p],
            "count": self.counts[p],
            "sha256": self.hashes[p].hexdigest(),
        }
        return {"partitions": {str(p): one(p) for p in sorted(self.starts)}}


class Stop:
    """Whether SIGTERM has come."""

    def __init__(self):
        self.has_come = False
        signal.signal(signal.SIGTERM, self._set)

    def _set(self, *_):
        self.has_come = True


def say(**event):
    print(json.dumps(event, separators=(",", ":")), flush=True)


def waited_for(look):
    """Returns what `look` finds; metadata may lag behind the answer to an administrator."""
    deadline = time.monotonic() + 30
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def batches(arguments):
    """Yields what to produce, a batch at a time; without end in the scenario `restart`."""
    first = int(arguments.options.get("first", 0))
    if arguments.scenario == "produce":
        yield list(arguments.records(first, arguments.count))
        return
    stop = Stop()
    while not stop.has_come:
        yield list(arguments.records(first, arguments.count))
        first += arguments.count
        time.sleep(PACE_S)


def main(scenarios):
    arguments = Arguments(sys.argv[1:])
    scenarios[arguments.scenario](arguments)

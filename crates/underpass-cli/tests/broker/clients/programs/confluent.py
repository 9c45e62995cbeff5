"""The scenarios by confluent-kafka, which is librdkafka for Python."""

from confluent_kafka import Consumer, KafkaException, OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from scenario import PARTITIONS, Reading, Stop, batches, main, say, waited_for

TIMEOUT_S = 60
POLL_S = 0.2
BATCH_MAX = 100


def produce(arguments):
    acks = arguments.options.get("acks", "idempotent")
    producer = Producer(
        {
            "bootstrap.servers": arguments.broker,
            "acks": acks if acks in ("0", "1") else "all",
            "enable.idempotence": acks == "idempotent",
            "compression.type": arguments.options.get("codec", "none"),
        }
    )
    acknowledged, errors = [0], []

    def delivered(error, _):
        if error:
            errors.append(str(error))
        else:
            acknowledged[0] += 1

    for batch in batches(arguments):
        for partition, key, value, time in batch:
            producer.produce(
                arguments.topic, value, key, partition, delivered, timestamp=time
            )
        unsent = producer.flush(TIMEOUT_S)
        if unsent or errors:
            raise SystemExit(f"{unsent} unsent, errors {errors}")
        if arguments.scenario == "restart":
            say(acknowledged=acknowledged[0])
    say(acknowledged=acknowledged[0], done=True)


def consume(arguments):
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.broker,
            "group.id": "none",
            "enable.auto.commit": False,
        }
    )
    topic = consumer.list_topics(arguments.topic, TIMEOUT_S).topics[arguments.topic]
    partitions = sorted(topic.partitions)
    marks = {
        p: consumer.get_watermark_offsets(TopicPartition(arguments.topic, p), TIMEOUT_S)
        for p in partitions
    }
    ends = {p: high for p, (_, high) in marks.items()}
    starts = positions(consumer, arguments, marks)
    reading = Reading(starts, ends)
    consumer.assign([TopicPartition(arguments.topic, p, starts[p]) for p in partitions])
    while not reading.is_complete():
        record = consumer.poll(POLL_S)
        if record is None:
            continue
        if record.error():
            raise SystemExit(str(record.error()))
        reading.add(record.partition(), record.offset(), record.key(), record.value())
    consumer.close()
    say(**reading.report())


def positions(consumer, arguments, marks):
    kind, _, number = arguments.options.get("from", "beginning").partition(":")
    if kind == "beginning":
        return {p: low for p, (low, _) in marks.items()}
    if kind == "end":
        return {p: high for p, (_, high) in marks.items()}
    if kind == "offset":
        return {p: int(number) for p in marks}
    times = [TopicPartition(arguments.topic, p, int(number)) for p in marks]
    found = consumer.offsets_for_times(times, TIMEOUT_S)
    end = lambda one: marks[one.partition][1]
    return {
        one.partition: end(one) if one.offset in (-1, OFFSET_END) else one.offset
        for one in found
    }


def group(arguments):
    stop = Stop()
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.broker,
            "group.id": arguments.options["group"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "range",
        }
    )
    consumer.subscribe(
        [arguments.topic],
        on_assign=lambda _, parts: say(assigned=sorted(part.partition for part in parts)),
        on_revoke=lambda *_: say(assigned=[]),
    )
    while not stop.has_come:
        polled = consumer.consume(BATCH_MAX, POLL_S)
        records = [record for record in polled if not record.error()]
        if not records:
            continue
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            say(error=str(error))
            continue
        for record in records:
            say(partition=record.partition(), first=record.offset(), next=record.offset() + 1)
    consumer.close()
    say(left=True)


def admin(arguments):
    client = AdminClient({"bootstrap.servers": arguments.broker})
    new = NewTopic(arguments.topic, num_partitions=PARTITIONS, replication_factor=1)
    client.create_topics([new])[arguments.topic].result(TIMEOUT_S)
    topics = lambda: client.list_topics(timeout=TIMEOUT_S).topics
    created = waited_for(lambda: topics().get(arguments.topic))
    client.delete_topics([arguments.topic])[arguments.topic].result(TIMEOUT_S)
    gone = waited_for(lambda: arguments.topic not in topics())
    say(partitions=len(created.partitions), gone=gone)


main(
    {
        "produce": produce,
        "restart": produce,
        "consume": consume,
        "group": group,
        "admin": admin,
    }
)

"""The scenarios by kafka-python."""

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from scenario import PARTITIONS, Reading, Stop, batches, main, say, waited_for

POLL_MS = 200


def produce(arguments):
    codec = arguments.options.get("codec", "none")
    acks = arguments.options.get("acks", "idempotent")
    producer = KafkaProducer(
        bootstrap_servers=arguments.broker,
        acks={"0": 0, "1": 1}.get(acks, "all"),
        enable_idempotence=acks == "idempotent",
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
    )
    acknowledged = 0
    for batch in batches(arguments):
        sent = [
            producer.send(arguments.topic, value, key, partition=partition, timestamp_ms=time)
            for partition, key, value, time in batch
        ]
        producer.flush()
        for future in sent:
            future.get(timeout=60)
        acknowledged += len(sent)
        if arguments.scenario == "restart":
            say(acknowledged=acknowledged)
    producer.close()
    say(acknowledged=acknowledged, done=True)


def consume(arguments):
    consumer = KafkaConsumer(bootstrap_servers=arguments.broker, enable_auto_commit=False)
    parts = [
        TopicPartition(arguments.topic, p)
        for p in sorted(consumer.partitions_for_topic(arguments.topic))
    ]
    consumer.assign(parts)
    ends = consumer.end_offsets(parts)
    starts = positions(consumer, parts, ends, arguments.options.get("from", "beginning"))
    for part in parts:
        consumer.seek(part, starts[part])
    number = lambda offsets: {part.partition: offset for part, offset in offsets.items()}
    reading = Reading(number(starts), number(ends))
    while not reading.is_complete():
        for part, records in consumer.poll(timeout_ms=POLL_MS).items():
            for record in records:
                reading.add(part.partition, record.offset, record.key, record.value)
    consumer.close()
    say(**reading.report())


def positions(consumer, parts, ends, start):
    kind, _, number = start.partition(":")
    if kind == "beginning":
        return consumer.beginning_offsets(parts)
    if kind == "end":
        return ends
    if kind == "offset":
        return {part: int(number) for part in parts}
    found = consumer.offsets_for_times({part: int(number) for part in parts})
    return {part: found[part].offset if found[part] else ends[part] for part in parts}


class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned):
        say(assigned=sorted(part.partition for part in assigned))

    def on_partitions_revoked(self, revoked):
        say(assigned=[])


def group(arguments):
    stop = Stop()
    consumer = KafkaConsumer(
        bootstrap_servers=arguments.broker,
        group_id=arguments.options["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    )
    # A member that joins before it knows its topic may stay without partitions for minutes.
    waited_for(lambda: consumer.partitions_for_topic(arguments.topic))
    consumer.subscribe([arguments.topic], listener=Listener())
    while not stop.has_come:
        try:
            # It raises what it meets while nobody listens.
            polled = consumer.poll(timeout_ms=POLL_MS)
            if not polled:
                continue
            consumer.commit()
        except KafkaError as error:
            say(error=repr(error))
            continue
        for part, records in polled.items():
            say(partition=part.partition, first=records[0].offset, next=records[-1].offset + 1)
    consumer.close()
    say(left=True)


def admin(arguments):
    client = KafkaAdminClient(bootstrap_servers=arguments.broker)
    new = NewTopic(arguments.topic, num_partitions=PARTITIONS, replication_factor=1)
    client.create_topics([new])
    partitions = waited_for(
        lambda: len(client.describe_topics([arguments.topic])[0]["partitions"])
    )
    client.delete_topics([arguments.topic])
    gone = waited_for(lambda: arguments.topic not in client.list_topics())
    client.close()
    say(partitions=partitions, gone=gone)


main(
    {
        "produce": produce,
        "restart": produce,
        "consume": consume,
        "group": group,
        "admin": admin,
    }
)

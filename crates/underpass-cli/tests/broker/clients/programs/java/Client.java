import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The scenarios by the Java client. See ../README.md. */
public final class Client {
    static final int PARTITIONS = 4;
    static final Duration POLL = Duration.ofMillis(200);
    /** Between batches of the scenario restart, so that readers keep up. */
    static final long PACE_MS = 50;

    final String broker;
    final String scenario;
    final String topic;
    final int count;
    final String seed;
    final Map<String, String> options = new HashMap<>();
    /** Whether SIGTERM has come. */
    volatile boolean isStopped;

    Client(String[] words) {
        broker = words[0];
        scenario = words[1];
        topic = words[2];
        count = Integer.parseInt(words[3]);
        seed = words[4];
        for (int i = 5; i < words.length; i++) {
            String[] option = words[i].split("=", 2);
            options.put(option[0], option[1]);
        }
    }

    public static void main(String[] words) {
        Client client = new Client(words);
        Thread main = Thread.currentThread();
        // SIGTERM runs the hook while the scenario goes on; without halt the code would be 143.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            client.isStopped = true;
            try {
                main.join();
            } catch (InterruptedException error) {
                Runtime.getRuntime().halt(1);
            }
            Runtime.getRuntime().halt(0);
        }));
        try {
            client.run();
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    void run() throws Exception {
        switch (scenario) {
            case "produce", "restart" -> produce();
            case "consume" -> consume();
            case "group" -> group();
            case "admin" -> admin();
            default -> throw new IllegalArgumentException(scenario);
        }
    }

    void produce() throws Exception {
        String acks = options.getOrDefault("acks", "idempotent");
        boolean isIdempotent = acks.equals("idempotent");
        Properties properties = properties();
        properties.put("acks", isIdempotent ? "all" : acks);
        properties.put("enable.idempotence", String.valueOf(isIdempotent));
        properties.put("compression.type", options.getOrDefault("codec", "none"));
        var serializer = new ByteArraySerializer();
        int first = Integer.parseInt(options.getOrDefault("first", "0"));
        int acknowledged = 0;
        try (var producer = new KafkaProducer<>(properties, serializer, serializer)) {
            do {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = first; i < first + count; i++) {
                    sent.add(producer.send(record(i)));
                }
                producer.flush();
                for (Future<RecordMetadata> one : sent) {
                    one.get();
                }
                first += count;
                acknowledged += count;
                if (scenario.equals("restart")) {
                    say("{\"acknowledged\":" + acknowledged + "}");
                    Thread.sleep(PACE_MS);
                }
            } while (scenario.equals("restart") && !isStopped);
        }
        say("{\"acknowledged\":" + acknowledged + ",\"done\":true}");
    }

    ProducerRecord<byte[], byte[]> record(int index) throws Exception {
        long time = Long.parseLong(options.get("time")) + index;
        byte[] key = ("k" + index).getBytes();
        return new ProducerRecord<>(topic, index % PARTITIONS, time, key, payload(index));
    }

    byte[] payload(int index) throws Exception {
        byte[] sum = sha256().digest((seed + ":" + index).getBytes());
        String digest = HexFormat.of().formatHex(sum);
        int length = 1 + ((sum[0] & 0xff) << 8 | sum[1] & 0xff) % 1000;
        return digest.repeat(length / digest.length() + 1).substring(0, length).getBytes();
    }

    void consume() throws Exception {
        try (var consumer = consumer(properties())) {
            List<TopicPartition> parts = consumer.partitionsFor(topic).stream()
                    .map(part -> new TopicPartition(topic, part.partition())).toList();
            Map<TopicPartition, Long> ends = consumer.endOffsets(parts);
            Map<Integer, Part> reading = new TreeMap<>();
            consumer.assign(parts);
            for (TopicPartition part : parts) {
                long start = start(consumer, part, ends.get(part));
                reading.put(part.partition(), new Part(start, ends.get(part)));
                consumer.seek(part, start);
            }
            while (!reading.values().stream().allMatch(Part::isComplete)) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    reading.get(record.partition()).add(record);
                }
            }
            String parted = reading.entrySet().stream()
                    .map(part -> "\"" + part.getKey() + "\":" + part.getValue())
                    .collect(Collectors.joining(","));
            say("{\"partitions\":{" + parted + "}}");
        }
    }

    long start(KafkaConsumer<?, ?> consumer, TopicPartition part, long end) {
        String[] from = options.getOrDefault("from", "beginning").split(":");
        return switch (from[0]) {
            case "beginning" -> consumer.beginningOffsets(Set.of(part)).get(part);
            case "end" -> end;
            case "offset" -> Long.parseLong(from[1]);
            default -> {
                var times = Map.of(part, Long.parseLong(from[1]));
                OffsetAndTimestamp found = consumer.offsetsForTimes(times).get(part);
                yield found == null ? end : found.offset();
            }
        };
    }

    /** What was read of a partition. */
    static final class Part {
        final long start;
        final long end;
        final MessageDigest digest = sha256();
        long next;
        long count;

        Part(long start, long end) {
            this.start = start;
            this.end = end;
            next = start;
        }

        boolean isComplete() {
            return next >= end;
        }

        void add(ConsumerRecord<byte[], byte[]> record) {
            if (record.offset() >= end) {
                return;
            }
            next = record.offset() + 1;
            count++;
            for (byte[] bytes : List.of(record.key(), record.value())) {
                digest.update(bytes);
                digest.update((byte) '\n');
            }
        }

        @Override
        public String toString() {
            String sum = HexFormat.of().formatHex(digest.digest());
            return String.format("{\"start\":%d,\"count\":%d,\"sha256\":\"%s\"}", start, count, sum);
        }
    }

    void group() {
        Properties properties = properties();
        properties.put("group.id", options.get("group"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "500");
        properties.put("partition.assignment.strategy", RangeAssignor.class.getName());
        try (var consumer = consumer(properties)) {
            consumer.subscribe(List.of(topic), new Assignments());
            while (!isStopped) {
                var records = consumer.poll(POLL);
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    consumer.commitSync();
                } catch (KafkaException error) {
                    say("{\"error\":\"" + error.getClass().getSimpleName() + "\"}");
                    continue;
                }
                sayRanges(records);
            }
        }
        say("{\"left\":true}");
    }

    static void sayRanges(ConsumerRecords<byte[], byte[]> records) {
        for (TopicPartition part : records.partitions()) {
            var read = records.records(part);
            long last = read.get(read.size() - 1).offset();
            say(String.format("{\"partition\":%d,\"first\":%d,\"next\":%d}",
                    part.partition(), read.get(0).offset(), last + 1));
        }
    }

    static final class Assignments implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> parts) {
            say("{\"assigned\":" + parts.stream().map(TopicPartition::partition).sorted().toList()
                    + "}");
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> parts) {
            say("{\"assigned\":[]}");
        }
    }

    void admin() throws Exception {
        try (var admin = Admin.create(properties())) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
            waitFor(() -> admin.listTopics().names().get().contains(topic));
            int partitions = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic)
                    .partitions().size();
            admin.deleteTopics(List.of(topic)).all().get();
            boolean gone = waitFor(() -> !admin.listTopics().names().get().contains(topic));
            say("{\"partitions\":" + partitions + ",\"gone\":" + gone + "}");
        }
    }

    /** Whether something becomes true; metadata may lag behind the answer to an administrator. */
    static boolean waitFor(Callable<Boolean> holds) throws Exception {
        long begun = System.nanoTime();
        while (System.nanoTime() - begun < 30_000_000_000L) {
            if (holds.call()) {
                return true;
            }
            Thread.sleep(100);
        }
        return false;
    }

    Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", broker);
        return properties;
    }

    KafkaConsumer<byte[], byte[]> consumer(Properties properties) {
        properties.put("enable.auto.commit", "false");
        var deserializer = new ByteArrayDeserializer();
        return new KafkaConsumer<>(properties, deserializer, deserializer);
    }

    static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    static synchronized void say(String event) {
        System.out.println(event);
        System.out.flush();
    }
}

package headrace.interop;

import static headrace.interop.Checks.expect;
import static headrace.interop.Checks.expectError;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.record.TimestampType;

/** What is produced comes back byte for byte, by offset and by time. */
final class ProduceChecks {
    private static final int COUNT = 500;

    private final Clients clients;

    ProduceChecks(String address) {
        this.clients = new Clients(address);
    }

    void run(Checks checks) {
        for (var compression : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            checks.check("idempotent produce and read back (" + compression + ")", () -> roundTrip(compression));
        }
        checks.check("acks 0 and 1", this::otherAcks);
        checks.check("topic created by the first produce", this::autoCreated);
        checks.check("LogAppendTime", this::logAppendTime);
        checks.check("record too large", this::tooLarge);
        checks.check("seek by time and to both ends", this::seek);
        checks.check("read_committed", this::readCommitted);
    }

    private void roundTrip(String compression) throws Exception {
        var topic = "produce-" + compression;
        clients.createTopic(topic, 2);
        var sent = new ArrayList<ProducerRecord<byte[], byte[]>>();
        var answers = new ArrayList<Future<RecordMetadata>>();
        try (var producer = clients.producer("compression.type", compression, "batch.size", "4000")) {
            for (var number = 0; number < COUNT; number++) {
                var record = record(topic, number);
                sent.add(record);
                answers.add(producer.send(record));
            }
        }
        for (var number = 0; number < COUNT; number++) {
            expect("offset of record " + number, answers.get(number).get().offset(), (long) number / 2);
        }
        try (var consumer = clients.consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
            consumer.seekToBeginning(consumer.assignment());
            for (var got : Clients.read(consumer, COUNT)) {
                expectSame(sent.get((int) got.offset() * 2 + got.partition()), got);
            }
        }
    }

    /** Keys, values and header values that are absent, empty, short and long. */
    private static ProducerRecord<byte[], byte[]> record(String topic, int number) {
        var key = number % 5 == 0 ? null : number % 5 == 1 ? new byte[0] : Clients.bytes("key-" + number);
        var value = number % 7 == 0 ? null : number % 7 == 1 ? new byte[0] : repeated((byte) number, number * 3);
        var record = new ProducerRecord<>(topic, number % 2, 1_700_000_000_000L + number, key, value);
        if (number % 3 == 0) {
            record.headers().add("h", Clients.bytes("first")).add("h", null).add("ü", new byte[0]);
        }
        return record;
    }

    private static byte[] repeated(byte each, int count) {
        var all = new byte[count];
        Arrays.fill(all, each);
        return all;
    }

    private static void expectSame(ProducerRecord<byte[], byte[]> sent, ConsumerRecord<byte[], byte[]> got) {
        var where = "at " + got.partition() + ":" + got.offset();
        expect("key " + where, got.key(), sent.key());
        expect("value " + where, got.value(), sent.value());
        expect("timestamp " + where, got.timestamp(), sent.timestamp());
        expect("headers " + where, got.headers().toArray(), sent.headers().toArray());
    }

    private void otherAcks() throws Exception {
        clients.createTopic("produce-acks", 1);
        for (var acks : List.of("0", "1")) {
            try (var producer = clients.producer("acks", acks, "enable.idempotence", "false")) {
                producer.send(new ProducerRecord<>("produce-acks", Clients.bytes(acks))).get();
            }
        }
        try (var consumer = clients.consumer()) {
            consumer.assign(List.of(new TopicPartition("produce-acks", 0)));
            consumer.seekToBeginning(consumer.assignment());
            var values = Clients.read(consumer, 2).stream().map(record -> new String(record.value())).sorted().toList();
            expect("values", values, List.of("0", "1"));
        }
    }

    private void autoCreated() throws Exception {
        try (var producer = clients.producer()) {
            var answer = producer.send(new ProducerRecord<>("produce-unheard-of", Clients.bytes("first"))).get();
            expect("offset", answer.offset(), 0L);
        }
    }

    private void logAppendTime() throws Exception {
        try (var admin = clients.admin(); var producer = clients.producer(); var consumer = clients.consumer()) {
            var topic = new NewTopic("produce-append-time", 1, (short) 1);
            admin.createTopics(List.of(topic.configs(Map.of("message.timestamp.type", "LogAppendTime")))).all().get();
            var before = System.currentTimeMillis();
            var old = new ProducerRecord<byte[], byte[]>("produce-append-time", 0, 5L, null, Clients.bytes("x"));
            var answer = producer.send(old).get();
            consumer.assign(List.of(new TopicPartition("produce-append-time", 0)));
            consumer.seekToBeginning(consumer.assignment());
            var record = Clients.read(consumer, 1).get(0);
            expect("type", record.timestampType(), TimestampType.LOG_APPEND_TIME);
            expect("time is the broker's", record.timestamp() >= before - 1000, true);
            expect("time in the answer", answer.timestamp(), record.timestamp());
        }
    }

    private void tooLarge() throws Exception {
        clients.createTopic("produce-large", 1);
        try (var producer = clients.producer("max.request.size", "5000000", "batch.size", "5000000")) {
            expectError(RecordTooLargeException.class,
                    () -> producer.send(new ProducerRecord<>("produce-large", new byte[2_000_000])).get());
            var small = producer.send(new ProducerRecord<>("produce-large", new byte[500_000])).get();
            expect("offset of the next", small.offset(), 0L);
        }
    }

    private void seek() throws Exception {
        clients.createTopic("produce-seek", 1);
        clients.fill("produce-seek", 1, 10);
        var partition = new TopicPartition("produce-seek", 0);
        try (var consumer = clients.consumer()) {
            consumer.assign(List.of(partition));
            var found = consumer.offsetsForTimes(Map.of(partition, 3500L)).get(partition);
            expect("offset by time", found.offset(), 3L);
            expect("its timestamp", found.timestamp(), 4000L);
            expect("after all", consumer.offsetsForTimes(Map.of(partition, 99_000L)).get(partition), null);
            consumer.seek(partition, found.offset());
            expect("first record", new String(Clients.read(consumer, 1).get(0).value()), "3");
            consumer.seekToEnd(List.of(partition));
            expect("position at the end", consumer.position(partition), 10L);
            consumer.seekToBeginning(List.of(partition));
            expect("first of all", Clients.read(consumer, 1).get(0).offset(), 0L);
            expect("end", consumer.endOffsets(List.of(partition)).get(partition), 10L);
        }
    }

    private void readCommitted() throws Exception {
        clients.createTopic("produce-committed", 1);
        clients.fill("produce-committed", 1, 3);
        try (var consumer = clients.consumer("isolation.level", "read_committed")) {
            consumer.assign(List.of(new TopicPartition("produce-committed", 0)));
            consumer.seekToBeginning(consumer.assignment());
            expect("records", Clients.read(consumer, 3).size(), 3);
        }
    }
}

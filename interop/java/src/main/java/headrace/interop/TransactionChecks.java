package headrace.interop;

import static headrace.interop.Checks.expect;
import static headrace.interop.Checks.expectError;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Transactions as Java's producer and consumer use them. */
final class TransactionChecks {
    private static final int PARTITIONS = 3;

    private final Clients clients;

    TransactionChecks(String address) {
        this.clients = new Clients(address);
    }

    void run(Checks checks) {
        checks.check("committed records are read, aborted ones are not", this::commitAndAbort);
        checks.check("a second producer fences the first", this::fencing);
        checks.check("offsets are committed with the transaction", this::offsets);
        checks.check("records are copied exactly once", this::copy);
        checks.check("transactions are listed and described", this::admin);
    }

    private KafkaProducer<byte[], byte[]> transactional(String id) {
        var producer = clients.producer("transactional.id", id);
        producer.initTransactions();
        return producer;
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, String text) {
        for (var partition = 0; partition < PARTITIONS; partition++) {
            producer.send(new ProducerRecord<>(topic, partition, null, Clients.bytes(text)));
        }
    }

    private List<String> readToEnd(String topic, String isolation) {
        try (var consumer = clients.consumer("isolation.level", isolation, "auto.offset.reset", "earliest")) {
            return readToEnd(consumer, topic);
        }
    }

    private static List<String> readToEnd(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        var places = consumer.partitionsFor(topic).stream().map(p -> new TopicPartition(topic, p.partition())).toList();
        consumer.assign(places);
        consumer.seekToBeginning(places);
        var ends = consumer.endOffsets(places);
        var found = new ArrayList<String>();
        while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
            consumer.poll(Clients.POLL).forEach(r -> found.add(new String(r.value(), StandardCharsets.UTF_8)));
        }
        return found;
    }

    private void commitAndAbort() throws Exception {
        clients.createTopic("transactions", PARTITIONS);
        try (var producer = transactional("t1")) {
            for (var number = 0; number < 10; number++) {
                producer.beginTransaction();
                send(producer, "transactions", (number % 2 == 0 ? "kept " : "dropped ") + number);
                producer.flush();
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        var committed = readToEnd("transactions", "read_committed");
        expect("committed records", committed.size(), 5 * PARTITIONS);
        expect("all of them were kept", committed.stream().allMatch(text -> text.startsWith("kept")), true);
        expect("all records", readToEnd("transactions", "read_uncommitted").size(), 10 * PARTITIONS);
    }

    private void fencing() throws Exception {
        clients.createTopic("fencing", PARTITIONS);
        var first = transactional("t2");
        first.beginTransaction();
        send(first, "fencing", "left open");
        first.flush();
        try (var second = transactional("t2")) {
            expectError(ProducerFencedException.class, first::commitTransaction);
            second.beginTransaction();
            send(second, "fencing", "of the second");
            second.commitTransaction();
        }
        first.close();
        expect("committed records", readToEnd("fencing", "read_committed").size(), PARTITIONS);
    }

    private void offsets() throws Exception {
        clients.createTopic("offsets", PARTITIONS);
        var place = new TopicPartition("offsets", 0);
        try (var producer = transactional("t3"); var consumer = clients.member("offsets-group")) {
            for (var offset : List.of(5L, 9L, 7L)) {
                producer.beginTransaction();
                var position = Map.of(place, new OffsetAndMetadata(offset));
                producer.sendOffsetsToTransaction(position, consumer.groupMetadata());
                if (offset == 9L) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                var committed = consumer.committed(java.util.Set.of(place)).get(place).offset();
                expect("the committed offset", committed, offset == 9L ? 5L : offset);
            }
        }
    }

    /** Consume, transform, produce, with every third transaction aborted and done again. */
    private void copy() throws Exception {
        clients.createTopic("copied", PARTITIONS);
        clients.createTopic("copies", PARTITIONS);
        clients.fill("copied", PARTITIONS, 100);
        try (var producer = transactional("t4"); var consumer = clients.member("copier", "max.poll.records", "20")) {
            consumer.subscribe(List.of("copied"));
            var copied = 0;
            var rounds = 0;
            while (copied < 100 * PARTITIONS) {
                var records = consumer.poll(Clients.POLL);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                records.forEach(r -> producer.send(new ProducerRecord<>("copies", r.partition(), null, r.value())));
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                if (++rounds % 3 == 0) {
                    producer.abortTransaction();
                    var committed = consumer.committed(consumer.assignment());
                    committed.forEach((p, o) -> consumer.seek(p, o == null ? 0 : o.offset()));
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
        }
        expect("copies", readToEnd("copies", "read_committed").size(), 100 * PARTITIONS);
    }

    private void admin() throws Exception {
        clients.createTopic("described", 1);
        var place = new TopicPartition("described", 0);
        try (var producer = transactional("t5"); var admin = clients.admin()) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("described", 0, null, Clients.bytes("open")));
            producer.flush();
            var listed = admin.listTransactions().all().get(10, TimeUnit.SECONDS);
            expect("listed", listed.stream().anyMatch(t -> t.transactionalId().equals("t5")), true);
            var described = admin.describeTransactions(List.of("t5")).description("t5").get(10, TimeUnit.SECONDS);
            expect("its state", described.state().toString(), "Ongoing");
            expect("its partitions", described.topicPartitions(), java.util.Set.of(place));
            var states = admin.describeProducers(List.of(place)).partitionResult(place).get(10, TimeUnit.SECONDS);
            var state = states.activeProducers().get(0);
            expect("its first offset", state.currentTransactionStartOffset().getAsLong(), 0L);
            var epoch = state.coordinatorEpoch().orElse(0);
            var spec = new AbortTransactionSpec(place, state.producerId(), (short) state.producerEpoch(), epoch);
            admin.abortTransaction(spec).all().get(10, TimeUnit.SECONDS);
            expect("nothing is read", readToEnd("described", "read_committed").size(), 0);
        }
    }
}

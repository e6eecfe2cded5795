package headrace.interop;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Clients with their default settings, but for the address and what a check names. */
final class Clients {
    static final Duration POLL = Duration.ofMillis(200);

    private final String address;

    Clients(String address) {
        this.address = address;
    }

    Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", address));
    }

    KafkaProducer<byte[], byte[]> producer(String... settings) {
        return new KafkaProducer<>(with(settings), new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(String... settings) {
        return new KafkaConsumer<>(with(settings), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** A consumer of a group that starts at the beginning and commits only when told. */
    KafkaConsumer<byte[], byte[]> member(String group, String... settings) {
        var all = new ArrayList<>(List.of("group.id", group, "auto.offset.reset", "earliest"));
        all.addAll(List.of("enable.auto.commit", "false"));
        all.addAll(List.of(settings));
        return consumer(all.toArray(String[]::new));
    }

    KafkaShareConsumer<byte[], byte[]> shareConsumer(String group) {
        var settings = with("group.id", group);
        return new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    void createTopic(String name, int partitions) throws Exception {
        try (var admin = admin()) {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        }
    }

    /** Fills each partition with values 0, 1, 2, ... whose timestamps are 1000, 2000, 3000, ... */
    void fill(String topic, int partitions, int count) throws Exception {
        try (var producer = producer()) {
            for (var partition = 0; partition < partitions; partition++) {
                for (var number = 0; number < count; number++) {
                    var timestampMs = 1000L * (number + 1);
                    producer.send(new ProducerRecord<>(topic, partition, timestampMs, null, bytes("" + number)));
                }
            }
        }
    }

    /** Polls until so many records have come. */
    static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        var records = new ArrayList<ConsumerRecord<byte[], byte[]>>();
        while (records.size() < count && !Thread.currentThread().isInterrupted()) {
            consumer.poll(POLL).forEach(records::add);
        }
        return records;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private Map<String, Object> with(String... settings) {
        var all = new HashMap<String, Object>(Map.of("bootstrap.servers", address));
        for (var i = 0; i < settings.length; i += 2) {
            all.put(settings[i], settings[i + 1]);
        }
        return all;
    }
}

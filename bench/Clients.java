import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Producers and consumers that do what kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh do, with the same
 * settings, one after the other in one JVM that stays: so a figure has neither the JVM's start nor its compiling in it.
 * A line on stdin is a job as JSON: kind (produce, consume, tail), address, topic, records, config, and for produce a
 * file of payloads. Each has a client of its own, and is answered by one line: records, seconds, CPU of this JVM
 * meanwhile, and requests. A tail is answered by {"ready":true} first, once it has read the record that the topic has.
 */
public class Clients {
    static final ObjectMapper JSON = new ObjectMapper();
    static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static final long PATIENCE_NS = 60_000_000_000L;

    public static void main(String[] args) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.gc(); // the last job's garbage is not this one's cost
            try {
                JsonNode job = JSON.readTree(line);
                say(job.get("kind").asText().equals("produce") ? produce(job) : consume(job));
            } catch (Exception error) {
                say(Map.of("failed", error.toString()));
            }
        }
        System.exit(0);
    }

    static void say(Map<String, ?> answer) throws IOException {
        System.out.println(JSON.writeValueAsString(answer));
    }

    static Properties settings(JsonNode job) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", job.get("address").asText());
        job.get("config").fields().forEachRemaining(one -> settings.put(one.getKey(), one.getValue().asText()));
        return settings;
    }

    /** Time and CPU since it was made. */
    static class Clock {
        final long began = System.nanoTime(), usedBefore = SYSTEM.getProcessCpuTime();

        Map<String, Number> done(long records) {
            double seconds = (System.nanoTime() - began) / 1e9, used = (SYSTEM.getProcessCpuTime() - usedBefore) / 1e9;
            return Map.of("records", records, "seconds", seconds, "cpu_s", used);
        }
    }

    static Map<String, ?> answer(
            Map<String, Number> done, Map<MetricName, ? extends Metric> metrics, String group, String name) {
        double requests = metrics.entrySet().stream()
            .filter(one -> one.getKey().group().equals(group) && one.getKey().name().equals(name))
            .filter(one -> one.getKey().tags().keySet().equals(Set.of("client-id")))
            .mapToDouble(one -> (Double) one.getValue().metricValue()).sum();
        Map<String, Number> answer = new HashMap<>(done);
        answer.put("requests", Math.round(requests));
        return answer;
    }

    static volatile Exception refused;

    static Map<String, ?> produce(JsonNode job) throws Exception {
        List<byte[]> payloads = Files.readAllLines(Path.of(job.get("payloads").asText())).stream()
            .map(line -> line.getBytes(StandardCharsets.UTF_8)).toList();
        String topic = job.get("topic").asText();
        long records = job.get("records").asLong();
        Random chance = new Random(0);
        refused = null;
        try (var producer = new KafkaProducer<>(settings(job), new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(topic);
            Clock clock = new Clock();
            for (long sent = 0; sent < records && refused == null; sent++) {
                byte[] payload = payloads.get(chance.nextInt(payloads.size()));
                producer.send(new ProducerRecord<>(topic, payload), (metadata, error) -> {
                    if (error != null) {
                        refused = error;
                    }
                });
            }
            producer.flush();
            Map<String, Number> done = clock.done(records);
            if (refused != null) {
                throw refused;
            }
            return answer(done, producer.metrics(), "producer-metrics", "request-total");
        }
    }

    /** What ConsumerPerformance sets; the rest is the client's own. */
    static Properties consumerSettings(JsonNode job) {
        Properties settings = settings(job);
        settings.put("group.id", "perf-consumer-" + UUID.randomUUID());
        settings.put("auto.offset.reset", "earliest");
        settings.put("receive.buffer.bytes", Integer.toString(2 << 20));
        settings.put("max.partition.fetch.bytes", Integer.toString(1 << 20));
        settings.put("check.crcs", "false");
        return settings;
    }

    /** From the start the clock runs from the assignment on, at the tail from the first records on. */
    static Map<String, ?> consume(JsonNode job) throws Exception {
        boolean isTail = job.get("kind").asText().equals("tail");
        long records = job.get("records").asLong();
        Clock[] clock = {null};
        var assigned = new ConsumerRebalanceListener() {
            @Override public void onPartitionsRevoked(Collection<TopicPartition> revoked) { }

            @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                clock[0] = new Clock();
            }
        };
        var deserializer = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(consumerSettings(job), deserializer, new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(job.get("topic").asText()), assigned);
            long before = 0;
            if (isTail) {
                read(consumer, 1);
                say(Map.of("ready", true));
                before = read(consumer, 1);
                clock[0] = new Clock();
            }
            long seen = read(consumer, records - before);
            return answer(clock[0].done(seen), consumer.metrics(), "consumer-fetch-manager-metrics", "fetch-total");
        }
    }

    static long bytes;

    /** At least so many records. */
    static long read(KafkaConsumer<byte[], byte[]> consumer, long wanted) {
        long seen = 0, last = System.nanoTime();
        while (seen < wanted) {
            var found = consumer.poll(Duration.ofMillis(100));
            for (ConsumerRecord<byte[], byte[]> record : found) {
                bytes += record.value().length;
                seen++;
            }
            if (!found.isEmpty()) {
                last = System.nanoTime();
            } else if (System.nanoTime() - last > PATIENCE_NS) {
                throw new IllegalStateException("only " + seen + " of " + wanted + " records arrived");
            }
        }
        return seen;
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer with the client's own settings that sends to each partition in turn and notes how long each one pauses.
 * Arguments: addresses, milliseconds between rounds, then TOPIC=PARTITIONS. Lines on stdin are answered by one line each:
 * "on N" once every partition has N more acknowledgements, "watch" after forgetting the pauses, "pauses" with
 * TOPIC PARTITION MS, separated by commas.
 */
public class Pauses {
    static final Map<TopicPartition, Long> answeredAt = new HashMap<>(), longest = new HashMap<>(), answers = new HashMap<>();
    static String failure = "";

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        List<TopicPartition> places = new ArrayList<>();
        for (int at = 2; at < args.length; at++) {
            String[] topic = args[at].split("=");
            for (int number = 0; number < Integer.parseInt(topic[1]); number++) {
                places.add(new TopicPartition(topic[0], number));
            }
        }
        Thread sending = new Thread(() -> send(settings, places, Long.parseLong(args[1])));
        sending.setDaemon(true);
        sending.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split(" "), places));
        }
        System.exit(0);
    }

    static void send(Properties settings, List<TopicPartition> places, long pauseMs) {
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            while (true) {
                for (TopicPartition place : places) {
                    var record = new ProducerRecord<byte[], byte[]>(place.topic(), place.partition(), null, new byte[100]);
                    producer.send(record, (metadata, error) -> answered(place, error));
                }
                Thread.sleep(pauseMs);
            }
        } catch (Exception error) {
            failed(error);
        }
    }

    static synchronized void answered(TopicPartition place, Exception error) {
        if (error != null) {
            failed(error);
            return;
        }
        long now = System.nanoTime();
        longest.merge(place, now - answeredAt.getOrDefault(place, now), Math::max);
        answeredAt.put(place, now);
        answers.merge(place, 1L, Long::sum);
        Pauses.class.notifyAll();
    }

    static synchronized void failed(Exception error) {
        failure = error.toString();
        Pauses.class.notifyAll();
    }

    static synchronized String answer(String[] words, List<TopicPartition> places) throws InterruptedException {
        switch (words[0]) {
            case "on" -> {
                Map<TopicPartition, Long> before = new HashMap<>(answers);
                long more = Long.parseLong(words[1]);
                while (failure.isEmpty() && !places.stream().allMatch(
                        one -> answers.getOrDefault(one, 0L) >= before.getOrDefault(one, 0L) + more)) {
                    Pauses.class.wait();
                }
            }
            case "watch" -> {
                longest.clear();
                places.forEach(one -> answeredAt.put(one, System.nanoTime()));
            }
            default -> {
                return failure.isEmpty() ? longest.entrySet().stream()
                    .map(one -> one.getKey().topic() + " " + one.getKey().partition() + " " + one.getValue() / 1_000_000)
                    .collect(Collectors.joining(",")) : "failed: " + failure;
            }
        }
        return failure.isEmpty() ? "ok" : "failed: " + failure;
    }
}

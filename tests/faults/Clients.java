import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer with the client's own settings (idempotent, acks=all) and a group of two members; all that they are told is
 * a line on stdout: told TOPIC PARTITION NUMBER OFFSET, got TOPIC PARTITION OFFSET VALUE, committed TOPIC PARTITION OFFSET,
 * assigned, failed WHY. A line on stdin stops the producer ("sent NUMBERS" once all is answered), the end of stdin all.
 * Arguments: addresses, milliseconds between rounds, names of producer and group, then TOPIC=PARTITIONS.
 */
public class Clients {
    static final Map<TopicPartition, Long> committed = new ConcurrentHashMap<>();
    static volatile boolean isSending = true;

    public static void main(String[] args) throws Exception {
        List<TopicPartition> places = new ArrayList<>();
        for (int at = 4; at < args.length; at++) {
            String[] topic = args[at].split("=");
            for (int number = 0; number < Integer.parseInt(topic[1]); number++) {
                places.add(new TopicPartition(topic[0], number));
            }
        }
        start(() -> send(args[0], Long.parseLong(args[1]), args[2], places));
        for (int member = 0; member < 2; member++) {
            start(() -> consume(args[0], args[3], places.stream().map(TopicPartition::topic).distinct().toList()));
        }
        System.in.read();
        isSending = false;
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }

    static void start(Runnable work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                say("failed " + error);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    static synchronized void say(String line) {
        System.out.println(line);
    }

    static String text(TopicPartition place) {
        return place.topic() + " " + place.partition();
    }

    static void send(String addresses, long pauseMs, String name, List<TopicPartition> places) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", addresses);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            int sent = 0;
            for (; isSending; sent++) {
                int number = sent;
                for (TopicPartition place : places) {
                    String value = name + " " + number + " " + "x".repeat(80);
                    producer.send(new ProducerRecord<>(place.topic(), place.partition(), null, value), (at, error) ->
                        say(error == null ? "told " + text(place) + " " + number + " " + at.offset()
                            : "failed " + number + " to " + place + ": " + error));
                }
                sleep(pauseMs);
            }
            producer.flush();
            say("sent " + sent);
        }
    }

    static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Within one assignment offsets rise, and it begins where the group committed or later. */
    static void consume(String addresses, String group, List<String> topics) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", addresses);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        Map<TopicPartition, Long> next = new HashMap<>();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(topics, new ConsumerRebalanceListener() {
                public void onPartitionsAssigned(Collection<TopicPartition> given) {
                    say("assigned");
                    given.forEach(place -> next.put(place, committed.getOrDefault(place, 0L)));
                }

                public void onPartitionsRevoked(Collection<TopicPartition> taken) {}
            });
            for (long commitAt = 0; ; ) {
                for (var record : consumer.poll(Duration.ofMillis(50))) {
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    if (record.offset() < next.get(place)) {
                        say("failed " + group + " went back to " + record.offset() + " in " + place + " from " + next.get(place));
                    }
                    next.put(place, record.offset() + 1);
                    say("got " + text(place) + " " + record.offset() + " " + record.value());
                }
                if (System.currentTimeMillis() >= commitAt) {
                    commitAt = System.currentTimeMillis() + 500;
                    consumer.commitAsync((offsets, error) -> {
                        if (error == null) {
                            offsets.forEach((place, at) -> {
                                committed.put(place, at.offset());
                                say("committed " + text(place) + " " + at.offset());
                            });
                        } else if (!(error instanceof RetriableException)) {
                            say("note " + error);
                        }
                    });
                }
            }
        }
    }
}

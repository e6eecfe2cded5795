package headrace.interop;

import static headrace.interop.Checks.expect;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;

/** Consumer groups with the classic protocol: members share partitions, and a group resumes where it committed. */
final class GroupChecks {
    private static final int PARTITIONS = 4;
    private static final int COUNT = 50;

    private final Clients clients;

    GroupChecks(String address) {
        this.clients = new Clients(address);
    }

    void run(Checks checks) {
        for (var assignor : List.of(RangeAssignor.class, CooperativeStickyAssignor.class)) {
            var name = assignor.getSimpleName();
            checks.check("two members (" + name + ")", () -> twoMembers("group-" + name, assignor.getName()));
        }
        checks.check("group resumes where it committed", this::resumes);
        checks.check("auto commit on close", this::autoCommit);
        checks.check("static member keeps its partitions", this::staticMember);
        checks.check("subscribe by pattern", this::pattern);
        checks.check("a subscribed topic is deleted and recreated", this::deletedAndMadeAgain);
    }

    private void twoMembers(String topic, String assignor) throws Exception {
        clients.createTopic(topic, PARTITIONS);
        clients.fill(topic, PARTITIONS, COUNT);
        var settings = new String[] {"partition.assignment.strategy", assignor, "heartbeat.interval.ms", "300"};
        try (var first = clients.member(topic, settings)) {
            first.subscribe(List.of(topic));
            var seen = new TreeSet<String>();
            Clients.read(first, 1).forEach(record -> seen.add(name(record.partition(), record.offset())));
            expect("partitions of one member", first.assignment().size(), PARTITIONS);
            try (var second = clients.member(topic, settings)) {
                second.subscribe(List.of(topic));
                while (first.assignment().size() != 2 || second.assignment().size() != 2) {
                    collect(first, seen);
                    collect(second, seen);
                }
                var all = new HashSet<>(first.assignment());
                all.addAll(second.assignment());
                expect("partitions of both", all.size(), PARTITIONS);
                while (seen.size() < PARTITIONS * COUNT) {
                    collect(first, seen);
                    collect(second, seen);
                }
            }
            while (first.assignment().size() != PARTITIONS) {
                collect(first, seen);
            }
        }
    }

    private static void collect(KafkaConsumer<byte[], byte[]> consumer, Set<String> seen) {
        if (Thread.currentThread().isInterrupted()) {
            throw new IllegalStateException("took too long");
        }
        consumer.poll(Clients.POLL).forEach(record -> seen.add(name(record.partition(), record.offset())));
    }

    private static String name(int partition, long offset) {
        return partition + ":" + offset;
    }

    private void resumes() throws Exception {
        clients.createTopic("group-resume", 1);
        clients.fill("group-resume", 1, 10);
        var partition = new TopicPartition("group-resume", 0);
        try (var consumer = clients.member("group-resume")) {
            consumer.subscribe(List.of("group-resume"));
            Clients.read(consumer, 10);
            expect("nothing committed", consumer.committed(Set.of(partition)).get(partition), null);
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(4, "half-way")));
        }
        try (var consumer = clients.member("group-resume")) {
            consumer.subscribe(List.of("group-resume"));
            expect("first offset after the restart", Clients.read(consumer, 1).get(0).offset(), 4L);
            var committed = consumer.committed(Set.of(partition)).get(partition);
            expect("committed offset", committed.offset(), 4L);
            expect("committed metadata", committed.metadata(), "half-way");
        }
    }

    private void autoCommit() throws Exception {
        clients.createTopic("group-auto", 1);
        clients.fill("group-auto", 1, 5);
        var partition = new TopicPartition("group-auto", 0);
        try (var consumer = clients.consumer("group.id", "group-auto", "auto.offset.reset", "earliest")) {
            consumer.subscribe(List.of("group-auto"));
            Clients.read(consumer, 5);
        }
        try (var consumer = clients.member("group-auto")) {
            expect("committed", consumer.committed(Set.of(partition)).get(partition).offset(), 5L);
        }
    }

    private void staticMember() throws Exception {
        clients.createTopic("group-static", 1);
        clients.fill("group-static", 1, 2);
        String memberId = null;
        for (var start = 0; start < 2; start++) {
            var seat = new String[] {"group.instance.id", "one"};
            try (var admin = clients.admin(); var consumer = clients.member("group-static", seat)) {
                consumer.subscribe(List.of("group-static"));
                Clients.read(consumer, 2);
                expect("instance", consumer.groupMetadata().groupInstanceId().orElseThrow(), "one");
                expect("generation", consumer.groupMetadata().generationId(), 1);
                expect("new member id", consumer.groupMetadata().memberId().equals(memberId), false);
                memberId = consumer.groupMetadata().memberId();
                var groups = admin.describeConsumerGroups(List.of("group-static")).all().get();
                expect("members", groups.get("group-static").members().size(), 1);
            }
        }
    }

    private void pattern() throws Exception {
        clients.createTopic("group-pattern-1", 1);
        clients.createTopic("group-pattern-2", 1);
        clients.fill("group-pattern-1", 1, 1);
        clients.fill("group-pattern-2", 1, 1);
        try (var consumer = clients.member("group-pattern")) {
            consumer.subscribe(Pattern.compile("group-pattern-.*"));
            Clients.read(consumer, 2);
            expect("partitions", consumer.assignment().size(), 2);
        }
    }

    /** Whatever it does meanwhile, a consumer neither ends nor misses what the new topic holds. */
    private void deletedAndMadeAgain() throws Exception {
        var topic = "group-again";
        clients.createTopic(topic, PARTITIONS);
        clients.fill(topic, PARTITIONS, 1);
        var settings = new String[] {"metadata.max.age.ms", "200", "allow.auto.create.topics", "false"};
        try (var admin = clients.admin(); var consumer = clients.member(topic, settings)) {
            consumer.subscribe(List.of(topic));
            Clients.read(consumer, PARTITIONS);
            consumer.commitSync();
            admin.deleteTopics(List.of(topic)).all().get();
            while (!consumer.assignment().isEmpty()) {
                collect(consumer, new TreeSet<>());
            }
            var gone = new TopicPartition(topic, 0);
            expect("committed", consumer.committed(Set.of(gone)).get(gone), null);
            clients.createTopic(topic, PARTITIONS);
            clients.fill(topic, PARTITIONS, 2);
            var seen = new TreeSet<String>();
            while (seen.size() < 2 * PARTITIONS) {
                collect(consumer, seen);
            }
            consumer.commitSync();
        }
    }
}

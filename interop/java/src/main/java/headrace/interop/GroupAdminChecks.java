package headrace.interop;

import static headrace.interop.Checks.expect;
import static headrace.interop.Checks.expectError;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;

/** The administrator's calls on groups. */
final class GroupAdminChecks {
    private static final String GROUP = "group-admin";
    private static final TopicPartition PARTITION = new TopicPartition(GROUP, 0);

    private final Clients clients;

    GroupAdminChecks(String address) {
        this.clients = new Clients(address);
    }

    void run(Checks checks) {
        checks.check("list and describe groups", this::describe);
        checks.check("offsets of groups", this::offsets);
        checks.check("remove members", this::removeMembers);
        checks.check("delete groups", this::delete);
    }

    private KafkaConsumer<byte[], byte[]> joined() {
        var consumer = clients.member(GROUP, "client.id", "reader", "group.instance.id", "seat");
        consumer.subscribe(List.of(GROUP));
        Clients.read(consumer, 1);
        return consumer;
    }

    private void describe() throws Exception {
        clients.createTopic(GROUP, 1);
        clients.fill(GROUP, 1, 3);
        try (var admin = clients.admin(); var consumer = joined()) {
            var stable = ListGroupsOptions.forConsumerGroups().inGroupStates(Set.of(GroupState.STABLE));
            var listed = admin.listGroups(stable).all().get().stream();
            var row = listed.filter(group -> group.groupId().equals(GROUP)).findAny().orElseThrow();
            expect("type", row.type().orElseThrow(), GroupType.CLASSIC);
            expect("protocol", row.protocol(), "consumer");
            var group = admin.describeConsumerGroups(List.of(GROUP)).all().get().get(GROUP);
            expect("state", group.groupState(), GroupState.STABLE);
            expect("assignor", group.partitionAssignor(), "range");
            var member = group.members().iterator().next();
            expect("client", member.clientId(), "reader");
            expect("assignment", member.assignment().topicPartitions(), Set.of(PARTITION));
            expect("member id", member.consumerId(), consumer.groupMetadata().memberId());
            var classic = admin.describeClassicGroups(List.of(GROUP)).all().get().get(GROUP);
            expect("protocol", classic.protocol(), "consumer");
            expectError(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(GROUP)).all().get());
            consumer.commitSync();
            expectError(GroupSubscribedToTopicException.class,
                    () -> admin.deleteConsumerGroupOffsets(GROUP, Set.of(PARTITION)).all().get());
        }
    }

    private void removeMembers() throws Exception {
        try (var admin = clients.admin()) {
            var remove = new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("seat")));
            admin.removeMembersFromConsumerGroup(GROUP, remove).all().get();
            var group = admin.describeConsumerGroups(List.of(GROUP)).all().get().get(GROUP);
            expect("state", group.groupState(), GroupState.EMPTY);
        }
    }

    private void offsets() throws Exception {
        var other = "group-admin-offsets";
        try (var admin = clients.admin()) {
            admin.alterConsumerGroupOffsets(other, Map.of(PARTITION, new OffsetAndMetadata(2, "by hand"))).all().get();
            var found = admin.listConsumerGroupOffsets(other).partitionsToOffsetAndMetadata().get().get(PARTITION);
            expect("offset", found.offset(), 2L);
            expect("metadata", found.metadata(), "by hand");
            admin.deleteConsumerGroupOffsets(other, Set.of(PARTITION)).all().get();
            var left = admin.listConsumerGroupOffsets(other).partitionsToOffsetAndMetadata().get();
            expect("offsets left", left, Map.of());
        }
    }

    private void delete() throws Exception {
        try (var admin = clients.admin()) {
            admin.deleteConsumerGroups(List.of(GROUP)).all().get();
            expectError(GroupIdNotFoundException.class, () -> admin.describeConsumerGroups(List.of(GROUP)).all().get());
            expectError(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(GROUP)).all().get());
        }
    }
}

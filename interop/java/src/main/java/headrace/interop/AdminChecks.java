package headrace.interop;

import static headrace.interop.Checks.expect;
import static headrace.interop.Checks.expectError;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The administrator's calls on topics, configs, records and the cluster. */
final class AdminChecks {
    private final Clients clients;

    AdminChecks(String address) {
        this.clients = new Clients(address);
    }

    void run(Checks checks) {
        checks.check("describe cluster", this::describeCluster);
        checks.check("topics", this::topics);
        checks.check("topic errors", this::topicErrors);
        checks.check("configs", this::configs);
        checks.check("create partitions", this::createPartitions);
        checks.check("list offsets", this::listOffsets);
        checks.check("delete records", this::deleteRecords);
        checks.check("describe log dirs", this::logDirs);
        checks.check("describe features", this::features);
    }

    private void describeCluster() throws Exception {
        try (var admin = clients.admin()) {
            var cluster = admin.describeCluster();
            expect("nodes", cluster.nodes().get().size(), 1);
            expect("controller", cluster.controller().get().id(), cluster.nodes().get().iterator().next().id());
            expect("cluster id is there", cluster.clusterId().get().isEmpty(), false);
            var broker = new ConfigResource(ConfigResource.Type.BROKER, "" + cluster.controller().get().id());
            var configs = admin.describeConfigs(List.of(broker)).all().get().get(broker).entries();
            expect("broker has configs", configs.isEmpty(), false);
        }
    }

    private void topics() throws Exception {
        try (var admin = clients.admin()) {
            var created = admin.createTopics(List.of(
                    new NewTopic("admin-a", 3, (short) 1).configs(Map.of("retention.ms", "60000")),
                    new NewTopic("admin-b", Optional.empty(), Optional.empty())));
            created.all().get();
            expect("partitions", created.numPartitions("admin-a").get(), 3);
            expect("config", created.config("admin-a").get().get("retention.ms").value(), "60000");
            var id = created.topicId("admin-a").get();
            expect("listed", admin.listTopics().names().get().containsAll(Set.of("admin-a", "admin-b")), true);
            var byName = admin.describeTopics(List.of("admin-a")).allTopicNames().get().get("admin-a");
            expect("id", byName.topicId(), id);
            expect("described partitions", byName.partitions().size(), 3);
            expect("leader", byName.partitions().get(0).leader() != null, true);
            var byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
            expect("name by id", byId.name(), "admin-a");
            admin.deleteTopics(List.of("admin-b")).all().get();
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            expect("gone", admin.listTopics().names().get().contains("admin-a"), false);
            expectError(UnknownTopicIdException.class,
                    () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get());
        }
    }

    private void topicErrors() throws Exception {
        clients.createTopic("admin-errors", 1);
        try (var admin = clients.admin()) {
            expectError(TopicExistsException.class, () -> create(admin, "admin-errors", 1, Map.of()));
            expectError(InvalidTopicException.class, () -> create(admin, "no spaces please", 1, Map.of()));
            expectError(InvalidPartitionsException.class, () -> create(admin, "admin-none", 0, Map.of()));
            expectError(InvalidConfigurationException.class,
                    () -> create(admin, "admin-config", 1, Map.of("retention.ms", "soon")));
            expectError(UnknownTopicOrPartitionException.class,
                    () -> admin.deleteTopics(List.of("admin-nowhere")).all().get());
            expectError(UnknownTopicOrPartitionException.class,
                    () -> admin.describeTopics(List.of("admin-nowhere")).allTopicNames().get());
        }
    }

    private static void create(Admin admin, String name, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
    }

    private void configs() throws Exception {
        clients.createTopic("admin-configs", 1);
        try (var admin = clients.admin()) {
            var topic = new ConfigResource(ConfigResource.Type.TOPIC, "admin-configs");
            alter(admin, topic, "retention.ms", "12345", AlterConfigOp.OpType.SET);
            alter(admin, topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
            expect("retention.ms", config(admin, topic, "retention.ms").value(), "12345");
            var source = config(admin, topic, "retention.ms").source();
            expect("its source", source, ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
            expect("cleanup.policy", config(admin, topic, "cleanup.policy").value(), "delete,compact");
            alter(admin, topic, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT);
            alter(admin, topic, "retention.ms", "", AlterConfigOp.OpType.DELETE);
            expect("cleanup.policy", config(admin, topic, "cleanup.policy").value(), "delete");
            expect("retention.ms", config(admin, topic, "retention.ms").isDefault(), true);
            expectError(InvalidConfigurationException.class,
                    () -> alter(admin, topic, "retention.ms", "soon", AlterConfigOp.OpType.SET));
            expectError(InvalidConfigurationException.class,
                    () -> alter(admin, topic, "no.such.config", "1", AlterConfigOp.OpType.SET));
        }
    }

    private static void alter(Admin admin, ConfigResource topic, String name, String value, AlterConfigOp.OpType type)
            throws Exception {
        var operation = new AlterConfigOp(new ConfigEntry(name, value), type);
        admin.incrementalAlterConfigs(Map.of(topic, List.of(operation))).all().get();
    }

    private static ConfigEntry config(Admin admin, ConfigResource topic, String name) throws Exception {
        return admin.describeConfigs(List.of(topic)).all().get().get(topic).get(name);
    }

    private void createPartitions() throws Exception {
        clients.createTopic("admin-partitions", 1);
        try (var admin = clients.admin()) {
            admin.createPartitions(Map.of("admin-partitions", NewPartitions.increaseTo(4))).all().get();
            var topic = admin.describeTopics(List.of("admin-partitions")).allTopicNames().get().get("admin-partitions");
            expect("partitions", topic.partitions().size(), 4);
            expectError(InvalidPartitionsException.class,
                    () -> admin.createPartitions(Map.of("admin-partitions", NewPartitions.increaseTo(2))).all().get());
        }
        clients.fill("admin-partitions", 4, 1);
    }

    private void listOffsets() throws Exception {
        clients.createTopic("admin-offsets", 1);
        clients.fill("admin-offsets", 1, 5);
        try (var admin = clients.admin()) {
            expect("earliest", offset(admin, OffsetSpec.earliest()), 0L);
            expect("latest", offset(admin, OffsetSpec.latest()), 5L);
            expect("by time", offset(admin, OffsetSpec.forTimestamp(2500)), 2L);
            expect("by exact time", offset(admin, OffsetSpec.forTimestamp(3000)), 2L);
            expect("after all", offset(admin, OffsetSpec.forTimestamp(99000)), -1L);
            expect("max timestamp", offset(admin, OffsetSpec.maxTimestamp()), 4L);
            expect("earliest local", offset(admin, OffsetSpec.earliestLocal()), 0L);
            expect("latest tiered", offset(admin, OffsetSpec.latestTiered()), -1L);
        }
    }

    private static long offset(Admin admin, OffsetSpec spec) throws Exception {
        var partition = new TopicPartition("admin-offsets", 0);
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }

    private void deleteRecords() throws Exception {
        clients.createTopic("admin-records", 1);
        clients.fill("admin-records", 1, 5);
        var partition = new TopicPartition("admin-records", 0);
        try (var admin = clients.admin(); var consumer = clients.consumer("auto.offset.reset", "earliest")) {
            var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(3)));
            expect("low watermark", deleted.lowWatermarks().get(partition).get().lowWatermark(), 3L);
            expectError(OffsetOutOfRangeException.class,
                    () -> admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(9))).all().get());
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            expect("first offset", Clients.read(consumer, 2).get(0).offset(), 3L);
            expect("beginning", consumer.beginningOffsets(List.of(partition)).get(partition), 3L);
        }
    }

    private void logDirs() throws Exception {
        clients.createTopic("admin-dirs", 1);
        clients.fill("admin-dirs", 1, 5);
        try (var admin = clients.admin()) {
            var node = admin.describeCluster().controller().get().id();
            var folders = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
            expect("directories", folders.size(), 1);
            var replicas = folders.values().iterator().next().replicaInfos();
            expect("size is more than nothing", replicas.get(new TopicPartition("admin-dirs", 0)).size() > 0, true);
        }
    }

    private void features() throws Exception {
        try (var admin = clients.admin()) {
            admin.describeFeatures().featureMetadata().get();
        }
    }
}

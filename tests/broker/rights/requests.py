"""A request for each row of the table of rights, and what else its caller needs for it to go through."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.rights.table import Row
from headrace.security.acls import Operation as Op
from headrace.security.acls import ResourceType as Of
from headrace.wire.apis import request_class
from headrace.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    share_group_describe,
    streams_group_describe,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from headrace.wire.private import (
    alter_organisation,
    delete_organisation,
    describe_organisations,
    explain_access,
)
from headrace.wire.schema import Payload
from tests.broker.peers import batch_of, fetch_request, produce_request

TOPIC, GROUP, TXN = "orders", "readers", "payments"
BY_NAME = {0: 12, 1: 12, 8: 9, 9: 9}
"""The last versions that name topics."""

READ, DESCRIBE, WRITE = Op.READ, Op.DESCRIBE, Op.WRITE


class Try(NamedTuple):
    """What is sent for a row."""

    request: Callable[[], Payload]
    besides: tuple[tuple[Of, Op], ...] = ()
    """Rights that the request needs as well, and that another row is about."""
    version: int | None = None
    left_out: bool = False
    """There is no error: what the caller may not see is not told."""


def _configs(kind: int, name: str) -> Callable[[], Payload]:
    row = describe_configs.DescribeConfigsResource(kind, name, None)
    return lambda: describe_configs.DescribeConfigsRequest([row], False, False)


def _alter(kind: int, name: str, key: str, value: str) -> Callable[[], Payload]:
    configs = [alter_configs.AlterableConfig(key, value)]
    return lambda: alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(kind, name, configs)], False)


def _increment(kind: int, name: str, key: str, value: str) -> Callable[[], Payload]:
    of = incremental_alter_configs
    configs = [of.AlterableConfig(key, 0, value)]
    return lambda: of.IncrementalAlterConfigsRequest([of.AlterConfigsResource(kind, name, configs)], False)


def _commit() -> Payload:
    rows = [offset_commit.OffsetCommitRequestPartition(0, 1)]
    return offset_commit.OffsetCommitRequest(
        GROUP, topics=[offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=rows)]
    )


def _offsets() -> Payload:
    wanted = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(GROUP, topics=[wanted])])


def _join() -> Payload:
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    return join_group.JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "consumer", protocols)


def _forget() -> Payload:
    of = offset_delete
    rows = [of.OffsetDeleteRequestPartition(0)]
    return of.OffsetDeleteRequest(GROUP, [of.OffsetDeleteRequestTopic(TOPIC, rows)])


def _positions() -> Payload:
    rows = [list_offsets.ListOffsetsPartition(0, timestamp=-1)]
    return list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(TOPIC, rows)])


def _epochs() -> Payload:
    of = offset_for_leader_epoch
    return of.OffsetForLeaderEpochRequest(
        topics=[of.OffsetForLeaderTopic(TOPIC, [of.OffsetForLeaderPartition(0, -1, 0)])]
    )


def _transactional() -> Payload:
    request = produce_request(TOPIC, {0: batch_of(b"x")})
    request.transactional_id = TXN
    return request


def _adding() -> Payload:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0])]
    one = add_partitions_to_txn.AddPartitionsToTxnTransaction(TXN, 1, 0, False, topics)
    return add_partitions_to_txn.AddPartitionsToTxnRequest([one], TXN, 1, 0, topics)


def _adding_group() -> Payload:
    return add_offsets_to_txn.AddOffsetsToTxnRequest(TXN, 1, 0, GROUP)


def _markers() -> Payload:
    topics = [write_txn_markers.WritableTxnMarkerTopic(TOPIC, [0])]
    return write_txn_markers.WriteTxnMarkersRequest([write_txn_markers.WritableTxnMarker(1, 0, False, topics)])


def _txn_commit() -> Payload:
    of = txn_offset_commit
    rows = [of.TxnOffsetCommitRequestPartition(0, 1)]
    return of.TxnOffsetCommitRequest(TXN, GROUP, 1, 0, topics=[of.TxnOffsetCommitRequestTopic(TOPIC, partitions=rows)])


def _metadata(*names: str) -> Callable[[], Payload]:
    return lambda: metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in names], True)


def _coordinator(kind: int, key: str) -> Callable[[], Payload]:
    return lambda: find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])


def _plain(api: int) -> Callable[[], Payload]:
    return lambda: request_class(api)()


TRIES: dict[tuple[int, Of, Op], Try] = {
    (0, Of.TOPIC, WRITE): Try(lambda: produce_request(TOPIC, {0: batch_of(b"x")}), version=12),
    (0, Of.TRANSACTIONAL_ID, WRITE): Try(_transactional, ((Of.TOPIC, WRITE),), version=12),
    (1, Of.TOPIC, READ): Try(lambda: fetch_request(TOPIC, {0: 0}), version=12),
    (2, Of.TOPIC, DESCRIBE): Try(_positions),
    (3, Of.TOPIC, DESCRIBE): Try(_metadata(TOPIC)),
    (3, Of.TOPIC, Op.CREATE): Try(_metadata("new"), ((Of.TOPIC, DESCRIBE),)),
    (8, Of.GROUP, READ): Try(_commit, ((Of.TOPIC, READ),), version=9),
    (8, Of.TOPIC, READ): Try(_commit, ((Of.GROUP, READ),), version=9),
    (9, Of.GROUP, DESCRIBE): Try(_offsets, ((Of.TOPIC, DESCRIBE),), version=9),
    (9, Of.TOPIC, DESCRIBE): Try(_offsets, ((Of.GROUP, DESCRIBE),), version=9),
    (10, Of.GROUP, DESCRIBE): Try(_coordinator(0, GROUP)),
    (10, Of.TRANSACTIONAL_ID, DESCRIBE): Try(_coordinator(1, TXN)),
    (11, Of.GROUP, READ): Try(_join),
    (12, Of.GROUP, READ): Try(lambda: heartbeat.HeartbeatRequest(GROUP, 0, "somebody")),
    (13, Of.GROUP, READ): Try(lambda: leave_group.LeaveGroupRequest(GROUP, members=[leave_group.MemberIdentity("x")])),
    (14, Of.GROUP, READ): Try(lambda: sync_group.SyncGroupRequest(GROUP, 0, "somebody")),
    (15, Of.GROUP, DESCRIBE): Try(lambda: describe_groups.DescribeGroupsRequest([GROUP])),
    (16, Of.GROUP, DESCRIBE): Try(_plain(16), left_out=True),
    (19, Of.TOPIC, Op.CREATE): Try(
        lambda: create_topics.CreateTopicsRequest([create_topics.CreatableTopic("new", 1, 1)])
    ),
    (20, Of.TOPIC, Op.DELETE): Try(lambda: delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(TOPIC)])),
    (21, Of.TOPIC, Op.DELETE): Try(
        lambda: delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic(TOPIC, [delete_records.DeleteRecordsPartition(0, 1)])], 1_000
        )
    ),
    (22, Of.TRANSACTIONAL_ID, WRITE): Try(lambda: init_producer_id.InitProducerIdRequest(TXN, 60_000)),
    (22, Of.CLUSTER, Op.IDEMPOTENT_WRITE): Try(lambda: init_producer_id.InitProducerIdRequest(None, 60_000)),
    (23, Of.TOPIC, DESCRIBE): Try(_epochs),
    (24, Of.TRANSACTIONAL_ID, WRITE): Try(_adding, ((Of.TOPIC, WRITE),), version=3),
    (24, Of.TOPIC, WRITE): Try(_adding, ((Of.TRANSACTIONAL_ID, WRITE),), version=3),
    (24, Of.CLUSTER, Op.CLUSTER_ACTION): Try(_adding, version=5),
    (25, Of.TRANSACTIONAL_ID, WRITE): Try(_adding_group, ((Of.GROUP, READ),)),
    (25, Of.GROUP, READ): Try(_adding_group, ((Of.TRANSACTIONAL_ID, WRITE),)),
    (26, Of.TRANSACTIONAL_ID, WRITE): Try(lambda: end_txn.EndTxnRequest(TXN, 1, 0, True)),
    (27, Of.CLUSTER, Op.CLUSTER_ACTION): Try(_markers),
    (28, Of.TRANSACTIONAL_ID, WRITE): Try(_txn_commit, ((Of.GROUP, READ), (Of.TOPIC, READ)), version=5),
    (28, Of.GROUP, READ): Try(_txn_commit, ((Of.TRANSACTIONAL_ID, WRITE), (Of.TOPIC, READ)), version=5),
    (28, Of.TOPIC, READ): Try(_txn_commit, ((Of.TRANSACTIONAL_ID, WRITE), (Of.GROUP, READ)), version=5),
    (29, Of.CLUSTER, DESCRIBE): Try(lambda: describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)),
    (30, Of.CLUSTER, Op.ALTER): Try(
        lambda: create_acls.CreateAclsRequest([create_acls.AclCreation(2, "t", 3, "User:eve", "*", 3, 3)])
    ),
    (31, Of.CLUSTER, Op.ALTER): Try(
        lambda: delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(2, None, 1, "User:eve", None, 1, 1)])
    ),
    (32, Of.TOPIC, Op.DESCRIBE_CONFIGS): Try(_configs(2, TOPIC)),
    (32, Of.GROUP, Op.DESCRIBE_CONFIGS): Try(_configs(32, GROUP)),
    (32, Of.CLUSTER, Op.DESCRIBE_CONFIGS): Try(_configs(4, "0")),
    (33, Of.TOPIC, Op.ALTER_CONFIGS): Try(_alter(2, TOPIC, "retention.ms", "1000")),
    (33, Of.GROUP, Op.ALTER_CONFIGS): Try(_alter(32, GROUP, "consumer.session.timeout.ms", "50000")),
    (33, Of.CLUSTER, Op.ALTER_CONFIGS): Try(_alter(4, "", "log.retention.ms", "1000")),
    (34, Of.CLUSTER, Op.ALTER): Try(
        lambda: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            [
                alter_replica_log_dirs.AlterReplicaLogDir(
                    "/x", [alter_replica_log_dirs.AlterReplicaLogDirTopic(TOPIC, [0])]
                )
            ]
        )
    ),
    (35, Of.CLUSTER, DESCRIBE): Try(_plain(35)),
    (37, Of.TOPIC, Op.ALTER): Try(
        lambda: create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic(TOPIC, 5, None)], 1_000
        )
    ),
    (42, Of.GROUP, Op.DELETE): Try(lambda: delete_groups.DeleteGroupsRequest([GROUP])),
    (43, Of.CLUSTER, Op.ALTER): Try(
        lambda: elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions(TOPIC, [0])])
    ),
    (44, Of.TOPIC, Op.ALTER_CONFIGS): Try(_increment(2, TOPIC, "retention.ms", "2000")),
    (44, Of.GROUP, Op.ALTER_CONFIGS): Try(_increment(32, GROUP, "consumer.session.timeout.ms", "50000")),
    (44, Of.CLUSTER, Op.ALTER_CONFIGS): Try(_increment(4, "", "log.retention.ms", "2000")),
    (45, Of.CLUSTER, Op.ALTER): Try(
        lambda: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    TOPIC, [alter_partition_reassignments.ReassignablePartition(0, [0])]
                )
            ]
        )
    ),
    (46, Of.CLUSTER, DESCRIBE): Try(_plain(46)),
    (47, Of.GROUP, Op.DELETE): Try(_forget, ((Of.TOPIC, READ),)),
    (47, Of.TOPIC, READ): Try(_forget, ((Of.GROUP, Op.DELETE),)),
    (48, Of.CLUSTER, Op.DESCRIBE_CONFIGS): Try(_plain(48)),
    (49, Of.CLUSTER, Op.ALTER_CONFIGS): Try(
        lambda: alter_client_quotas.AlterClientQuotasRequest(
            [
                alter_client_quotas.EntryData(
                    [alter_client_quotas.EntityData("user", "eve")],
                    [alter_client_quotas.OpData("producer_byte_rate", 1024.0, False)],
                )
            ]
        )
    ),
    (50, Of.CLUSTER, DESCRIBE): Try(_plain(50)),
    (51, Of.CLUSTER, Op.ALTER): Try(
        lambda: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            [alter_user_scram_credentials.ScramCredentialDeletion("eve", 1)]
        )
    ),
    (55, Of.CLUSTER, DESCRIBE): Try(_plain(55)),
    (61, Of.TOPIC, READ): Try(
        lambda: describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(TOPIC, [0])])
    ),
    (64, Of.CLUSTER, Op.ALTER): Try(_plain(64)),
    (65, Of.TRANSACTIONAL_ID, DESCRIBE): Try(lambda: describe_transactions.DescribeTransactionsRequest([TXN])),
    (66, Of.TRANSACTIONAL_ID, DESCRIBE): Try(_plain(66), left_out=True),
    (69, Of.GROUP, DESCRIBE): Try(lambda: consumer_group_describe.ConsumerGroupDescribeRequest([GROUP])),
    (74, Of.CLUSTER, Op.DESCRIBE_CONFIGS): Try(lambda: list_config_resources.ListConfigResourcesRequest([])),
    (75, Of.TOPIC, DESCRIBE): Try(
        lambda: describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(TOPIC)]
        )
    ),
    (77, Of.GROUP, DESCRIBE): Try(lambda: share_group_describe.ShareGroupDescribeRequest([GROUP])),
    (80, Of.CLUSTER, Op.ALTER): Try(lambda: add_raft_voter.AddRaftVoterRequest("cluster")),
    (81, Of.CLUSTER, Op.ALTER): Try(_plain(81)),
    (89, Of.GROUP, DESCRIBE): Try(lambda: streams_group_describe.StreamsGroupDescribeRequest([GROUP])),
    (90, Of.GROUP, DESCRIBE): Try(
        lambda: describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            [describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(GROUP)]
        )
    ),
}

TRIES |= {
    (30000, Of.CLUSTER, DESCRIBE): Try(
        lambda: explain_access.ExplainAccessRequest("User:eve", "10.0.0.1", READ, Of.TOPIC, TOPIC)
    ),
    (30001, Of.CLUSTER, DESCRIBE): Try(lambda: describe_organisations.DescribeOrganisationsRequest(None)),
    (30002, Of.CLUSTER, Op.ALTER): Try(lambda: alter_organisation.AlterOrganisationRequest("umbrella", True)),
    (30003, Of.CLUSTER, Op.ALTER): Try(lambda: delete_organisation.DeleteOrganisationRequest("umbrella")),
}


def try_of(row: Row) -> Try:
    return TRIES[row.api, row.resource, row.operation]

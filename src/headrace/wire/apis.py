"""The APIs this broker supports: key, versions, and the classes of request and response.

The table only names the message classes, and its users import them, so that a lookup costs nothing.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import NamedTuple

from headrace.wire.schema import Payload


class ApiEntry(NamedTuple):
    """One row of the table."""

    key: int
    name: str
    oldest: int
    newest: int
    flexible_since: int


APIS: dict[int, ApiEntry] = {
    entry.key: entry
    for entry in (
        ApiEntry(0, "Produce", 3, 13, 9),
        ApiEntry(1, "Fetch", 4, 18, 12),
        ApiEntry(2, "ListOffsets", 1, 11, 6),
        ApiEntry(3, "Metadata", 0, 13, 9),
        ApiEntry(8, "OffsetCommit", 2, 10, 8),
        ApiEntry(9, "OffsetFetch", 1, 10, 6),
        ApiEntry(10, "FindCoordinator", 0, 6, 3),
        ApiEntry(11, "JoinGroup", 0, 9, 6),
        ApiEntry(12, "Heartbeat", 0, 4, 4),
        ApiEntry(13, "LeaveGroup", 0, 5, 4),
        ApiEntry(14, "SyncGroup", 0, 5, 4),
        ApiEntry(15, "DescribeGroups", 0, 6, 5),
        ApiEntry(16, "ListGroups", 0, 5, 3),
        ApiEntry(17, "SaslHandshake", 0, 1, 32767),
        ApiEntry(18, "ApiVersions", 0, 5, 3),
        ApiEntry(19, "CreateTopics", 2, 7, 5),
        ApiEntry(20, "DeleteTopics", 1, 6, 4),
        ApiEntry(21, "DeleteRecords", 0, 2, 2),
        ApiEntry(22, "InitProducerId", 0, 5, 2),
        ApiEntry(23, "OffsetForLeaderEpoch", 2, 4, 4),
        ApiEntry(24, "AddPartitionsToTxn", 0, 5, 3),
        ApiEntry(25, "AddOffsetsToTxn", 0, 4, 3),
        ApiEntry(26, "EndTxn", 0, 5, 3),
        ApiEntry(27, "WriteTxnMarkers", 1, 2, 1),
        ApiEntry(28, "TxnOffsetCommit", 0, 6, 3),
        ApiEntry(29, "DescribeAcls", 1, 3, 2),
        ApiEntry(30, "CreateAcls", 1, 3, 2),
        ApiEntry(31, "DeleteAcls", 1, 3, 2),
        ApiEntry(32, "DescribeConfigs", 1, 4, 4),
        ApiEntry(33, "AlterConfigs", 0, 2, 2),
        ApiEntry(34, "AlterReplicaLogDirs", 1, 2, 2),
        ApiEntry(35, "DescribeLogDirs", 1, 5, 2),
        ApiEntry(36, "SaslAuthenticate", 0, 2, 2),
        ApiEntry(37, "CreatePartitions", 0, 3, 2),
        ApiEntry(38, "CreateDelegationToken", 1, 3, 2),
        ApiEntry(39, "RenewDelegationToken", 1, 2, 2),
        ApiEntry(40, "ExpireDelegationToken", 1, 2, 2),
        ApiEntry(41, "DescribeDelegationToken", 1, 3, 2),
        ApiEntry(42, "DeleteGroups", 0, 3, 2),
        ApiEntry(43, "ElectLeaders", 0, 2, 2),
        ApiEntry(44, "IncrementalAlterConfigs", 0, 1, 1),
        ApiEntry(45, "AlterPartitionReassignments", 0, 1, 0),
        ApiEntry(46, "ListPartitionReassignments", 0, 0, 0),
        ApiEntry(47, "OffsetDelete", 0, 0, 32767),
        ApiEntry(48, "DescribeClientQuotas", 0, 1, 1),
        ApiEntry(49, "AlterClientQuotas", 0, 1, 1),
        ApiEntry(50, "DescribeUserScramCredentials", 0, 0, 0),
        ApiEntry(51, "AlterUserScramCredentials", 0, 0, 0),
        ApiEntry(55, "DescribeQuorum", 0, 2, 0),
        ApiEntry(60, "DescribeCluster", 0, 2, 0),
        ApiEntry(61, "DescribeProducers", 0, 0, 0),
        ApiEntry(64, "UnregisterBroker", 0, 0, 0),
        ApiEntry(65, "DescribeTransactions", 0, 0, 0),
        ApiEntry(66, "ListTransactions", 0, 2, 0),
        ApiEntry(68, "ConsumerGroupHeartbeat", 0, 1, 0),
        ApiEntry(69, "ConsumerGroupDescribe", 0, 1, 0),
        ApiEntry(74, "ListConfigResources", 0, 1, 0),
        ApiEntry(75, "DescribeTopicPartitions", 0, 0, 0),
        ApiEntry(76, "ShareGroupHeartbeat", 1, 1, 1),
        ApiEntry(77, "ShareGroupDescribe", 1, 1, 1),
        ApiEntry(78, "ShareFetch", 1, 2, 1),
        ApiEntry(79, "ShareAcknowledge", 1, 2, 1),
        ApiEntry(80, "AddRaftVoter", 0, 1, 0),
        ApiEntry(81, "RemoveRaftVoter", 0, 0, 0),
        ApiEntry(88, "StreamsGroupHeartbeat", 0, 1, 0),
        ApiEntry(89, "StreamsGroupDescribe", 0, 1, 0),
        ApiEntry(90, "DescribeShareGroupOffsets", 0, 1, 0),
        ApiEntry(91, "AlterShareGroupOffsets", 0, 0, 0),
        ApiEntry(92, "DeleteShareGroupOffsets", 0, 0, 0),
    )
}

PRIVATE_APIS: dict[int, ApiEntry] = {
    entry.key: entry
    for entry in (
        ApiEntry(30000, "ExplainAccess", 0, 0, 0),
        ApiEntry(30001, "DescribeOrganisations", 0, 0, 0),
        ApiEntry(30002, "AlterOrganisation", 0, 0, 0),
        ApiEntry(30003, "DeleteOrganisation", 0, 0, 0),
    )
}
"""APIs that Kafka does not have. ApiVersions does not list them; this project's own client knows them."""

SPOKEN = {**APIS, **PRIVATE_APIS}
"""Every API that the broker answers."""

OTHER_NAMES = {
    4: "LeaderAndIsr",
    5: "StopReplica",
    6: "UpdateMetadata",
    7: "ControlledShutdown",
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    56: "AlterPartition",
    57: "UpdateFeatures",
    58: "Envelope",
    59: "FetchSnapshot",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    67: "AllocateProducerIds",
    70: "ControllerRegistration",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    73: "AssignReplicasToDirs",
    82: "UpdateRaftVoter",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    93: "StreamsGroupTopologyDescriptionUpdate",
    94: "UnregisterController",
}
"""Kafka's names of unsupported APIs, for the log if a client calls one."""

API_VERSIONS = 18
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
FETCH = 1
JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
METADATA = 3
PRODUCE = 0


def snake(name: str) -> str:
    """`ListOffsets` as `list_offsets`: the name of its modules."""
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


@cache
def request_class(key: int) -> type[Payload]:
    """The class of an API's request."""
    return _class(SPOKEN[key], "Request")


@cache
def response_class(key: int) -> type[Payload]:
    """The class of an API's response."""
    return _class(SPOKEN[key], "Response")


def _class(entry: ApiEntry, suffix: str) -> type[Payload]:
    folder = "private" if entry.key in PRIVATE_APIS else "messages"
    module = import_module(f"headrace.wire.{folder}.{snake(entry.name)}")
    found: type[Payload] = getattr(module, entry.name + suffix)
    return found

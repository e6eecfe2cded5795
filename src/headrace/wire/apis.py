"""The APIs that this broker speaks: key, versions, and the classes of request and response.

The message classes are imported by their users; this table only names them, so that looking at it costs nothing.
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
        ApiEntry(18, "ApiVersions", 0, 5, 3),
        ApiEntry(19, "CreateTopics", 2, 7, 5),
        ApiEntry(20, "DeleteTopics", 1, 6, 4),
        ApiEntry(21, "DeleteRecords", 0, 2, 2),
        ApiEntry(22, "InitProducerId", 0, 5, 2),
        ApiEntry(23, "OffsetForLeaderEpoch", 2, 4, 4),
        ApiEntry(32, "DescribeConfigs", 1, 4, 4),
        ApiEntry(33, "AlterConfigs", 0, 2, 2),
        ApiEntry(35, "DescribeLogDirs", 1, 5, 2),
        ApiEntry(37, "CreatePartitions", 0, 3, 2),
        ApiEntry(42, "DeleteGroups", 0, 3, 2),
        ApiEntry(44, "IncrementalAlterConfigs", 0, 1, 1),
        ApiEntry(47, "OffsetDelete", 0, 0, 32767),
        ApiEntry(60, "DescribeCluster", 0, 2, 0),
        ApiEntry(75, "DescribeTopicPartitions", 0, 0, 0),
    )
}

API_VERSIONS = 18
FETCH = 1
PRODUCE = 0


def snake(name: str) -> str:
    """`ListOffsets` as `list_offsets`: the name of its modules."""
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


@cache
def request_class(key: int) -> type[Payload]:
    """The class of an API's request."""
    return _class(APIS[key], "Request")


@cache
def response_class(key: int) -> type[Payload]:
    """The class of an API's response."""
    return _class(APIS[key], "Response")


def _class(entry: ApiEntry, suffix: str) -> type[Payload]:
    module = import_module(f"headrace.wire.messages.{snake(entry.name)}")
    found: type[Payload] = getattr(module, entry.name + suffix)
    return found

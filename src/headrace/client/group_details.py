"""Details of a group for commands and console, beyond Kafka's own fields: assignments, and lag in records.

Apart from `groups.py` because it reads what the broker passes on unread, and configs that only Headrace has.
"""

from __future__ import annotations

import msgspec

from headrace.client.admin import GROUP, Admin
from headrace.client.cluster import Cluster
from headrace.client.errors import UnsupportedApi
from headrace.wire import codec
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment

RECORDS_CONFIG = "headrace.group.records"


def assignment_of(content: bytes) -> dict[str, list[int]]:
    """The partitions of a member. The bytes are the clients' own; if they cannot be read there are none."""
    version = min(int.from_bytes(content[:2], "big"), ConsumerProtocolAssignment.api.versions[1])
    try:
        decoded, _ = codec.decode(ConsumerProtocolAssignment, version, content, 2)
    except codec.DecodeError:
        return {}
    return {found.topic: sorted(found.partitions) for found in decoded.assigned_partitions if found.partitions}


def records_behind(cluster: Cluster, group: str) -> dict[str, dict[int, int | None]] | None:
    """Lag in records by topic and partition, for topics whose offsets are times; None if the broker did not say."""
    try:
        entries = Admin(cluster).describe_configs(group, GROUP, [RECORDS_CONFIG])
    except UnsupportedApi:
        return {}
    except KafkaError as error:
        return {} if error.code is ErrorCode.INVALID_REQUEST else None  # other brokers have no such topics
    named = [(entry.name.removeprefix(f"{RECORDS_CONFIG}."), entry.value or "{}") for entry in entries]
    return {topic: msgspec.json.decode(value, type=dict[int, int | None]) for topic, value in named}

"""A group's lag in records, for topics whose offsets are times.

Apart from `groups.py` because it reads configs that only Headrace has.
"""

from __future__ import annotations

import msgspec

from headrace.client.admin import GROUP, Admin
from headrace.client.cluster import Cluster
from headrace.client.errors import UnsupportedApi
from headrace.wire.errors import ErrorCode, KafkaError

RECORDS_CONFIG = "headrace.group.records"


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

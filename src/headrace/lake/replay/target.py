"""The topic that a replay writes to: found or created, or refused, with a remedy, if records would not stay.

Separate from the replay because all of it is checked before the first record is read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from headrace.client import Admin, Cluster
from headrace.lake.table.table import TopicTable
from headrace.wire.errors import ErrorCode, KafkaError

DEFAULT_MAX_MESSAGE_BYTES = 1024 * 1024
_ANY_TIME_MS = str((1 << 63) - 1)
_CONFIGS = ("cleanup.policy", "max.message.bytes", "message.timestamp.type", "retention.ms")


class ReplayRefused(ValueError):
    """The replay would not do what was asked; says what to do."""


class Target(msgspec.Struct, frozen=True):
    """A topic to write to."""

    name: str
    topic_id: bytes
    partitions: int
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    is_compacted: bool = False

    def check_keys(self, keys: pa.Array, partition: int, offsets: np.ndarray) -> None:
        """A compacted topic accepts no record without a key."""
        if keys.null_count:
            at = offsets[keys.is_null().to_numpy(zero_copy_only=False).argmax()]
            raise ReplayRefused(
                f"The row at partition {partition} offset {at} has no key, and {self.name} is compacted, so every "
                "record needs one. Replay into a topic with cleanup.policy=delete."
            )


def source_partitions(table: TopicTable) -> int:
    """The number of partitions of the archived topic, according to its table."""
    return max([*table.snapshot.starts, *table.coverage], default=-1) + 1


def find_target(
    cluster: Cluster,
    table: TopicTable,
    name: str,
    *,
    keep_timestamps: bool = False,
    into_itself: bool = False,
    create: bool = False,
    partitions: int | None = None,
) -> Target:
    """The target, created if requested; `partitions` is for a new one."""
    admin = Admin(cluster)
    try:
        found = admin.describe_topic(name)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if not create:
            raise ReplayRefused(f"There is no topic {name}: use --create.") from None
        # By default, records with old timestamps would be deleted, and those with future ones refused.
        configs = {"retention.ms": "-1", "message.timestamp.after.max.ms": _ANY_TIME_MS} if keep_timestamps else {}
        admin.create_topic(name, partitions or source_partitions(table), configs)
        found = admin.describe_topic(name)
    identity = table.identity
    if found.topic_id == identity.topic_id and cluster.cluster_id == identity.cluster_id and not into_itself:
        raise ReplayRefused(
            f"{name} is the topic that was archived: its consumers would get every record twice. Choose another "
            "one with --into, or allow it with --into-itself."
        )
    configs_now = _configs(admin, name)
    if keep_timestamps:
        _check_times(table, name, configs_now)
    return Target(
        name,
        found.topic_id,
        len(found.partitions),
        int(configs_now.get("max.message.bytes") or DEFAULT_MAX_MESSAGE_BYTES),
        "compact" in (configs_now.get("cleanup.policy") or ""),
    )


def _configs(admin: Admin, name: str, keys: Sequence[str] = _CONFIGS) -> dict[str, str | None]:
    return {entry.name: entry.value for entry in admin.describe_configs(name, keys=keys)}


def _check_times(table: TopicTable, name: str, configs: dict[str, str | None]) -> None:
    if configs.get("message.timestamp.type") == "LogAppendTime":
        raise ReplayRefused(
            f"{name} has message.timestamp.type=LogAppendTime and overwrites timestamps: omit "
            "--keep-timestamps, or set it to CreateTime."
        )
    retention_ms = int(configs.get("retention.ms") or -1)
    oldest_ms = table.snapshot.oldest_ms
    if "delete" not in (configs.get("cleanup.policy") or "delete") or retention_ms < 0 or oldest_ms is None:
        return
    if oldest_ms < time.time_ns() // 1_000_000 - retention_ms:
        raise ReplayRefused(
            f"{name} deletes records older than its retention.ms={retention_ms}, and the table has older ones, which "
            f"would be deleted right after they were sent. Omit --keep-timestamps, or raise it: "
            f"`headrace topics alter {name} --config retention.ms=-1`."
        )

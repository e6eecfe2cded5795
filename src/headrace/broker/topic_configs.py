"""Topic configs: Kafka's names, and what they mean here."""

from __future__ import annotations

import msgspec

from headrace.broker.options import BrokerOptions


class TopicPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The configs of a topic that the broker acts on, with the defaults filled in."""

    max_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compacts: bool
    deletes: bool
    retention_ms: int
    retention_bytes: int


def policy_of(configs: dict[str, str], options: BrokerOptions) -> TopicPolicy:
    """What a topic's own configs and the broker's defaults come to."""
    cleanup = configs.get("cleanup.policy", "delete").split(",")
    return TopicPolicy(
        max_message_bytes=int(configs.get("max.message.bytes", options.message_max_bytes)),
        log_append_time=configs.get("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=int(configs.get("message.timestamp.before.max.ms", (1 << 63) - 1)),
        timestamp_after_max_ms=int(configs.get("message.timestamp.after.max.ms", 3_600_000)),
        compacts="compact" in cleanup,
        # Until compaction comes, a compacted topic keeps everything (store.md).
        deletes="delete" in cleanup and "compact" not in cleanup,
        retention_ms=int(configs.get("retention.ms", options.log_retention_ms)),
        retention_bytes=int(configs.get("retention.bytes", options.log_retention_bytes)),
    )

"""How a tiered topic stands, for people: what is in Redis, what the lake holds, and why records stay where they are.

Kafka's own answers have no room for a reason, so it is a fact beside a topic's configs, given to whoever asks for it by
name. Any node can tell: what the leaders noted is in the store, and the lake is the same for all.
"""

from __future__ import annotations

import msgspec

from headrace.broker.broker import Broker
from headrace.cold_log import ColdPartition
from headrace.store.catalogue import Topic
from headrace.wire.errors import KafkaError

TIERING = "headrace.tiering"


class PartitionTiering(msgspec.Struct, frozen=True):
    """One partition."""

    partition: int
    log_start: int
    local_start: int
    lake_end: int | None
    """The offset behind the last one that the lake holds; None if it holds nothing, or nobody knows."""
    trouble: str | None


async def tiering_of(broker: Broker, topic: Topic) -> str:
    """All partitions of a topic, as JSON."""
    store = broker.store
    metas = (topic.keys(store.keys, number).meta for number in range(topic.partitions))
    rows = await store.link.pipeline(*(("HMGET", meta, "start", "local", "trouble") for meta in metas))
    found = []
    away: str | None = None
    for number, (start, local, trouble) in enumerate(rows):
        lake_end = None
        if away is None:
            try:
                held = await store.cold.held(ColdPartition(topic.name, topic.uuid, number))
                lake_end = held.end if held else None
            except KafkaError as error:
                away = str(error)  # the next partition's answer would be the same, and as slow
        starts = int(start or 0), max(int(start or 0), int(local or 0))
        found.append(PartitionTiering(number, *starts, lake_end, trouble.decode() if trouble else away))
    return msgspec.json.encode(found).decode()

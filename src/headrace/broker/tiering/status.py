"""The state of a tiered topic: what is in Redis, what the lake holds, and why records cannot leave Redis.

Kafka's responses have no field for a reason, so it is a read-only config, returned if requested by name. Any node can
answer: the leaders' notes are in the store, and the lake is the same for all.
"""

from __future__ import annotations

import msgspec

from headrace.broker.access import Access
from headrace.cold_log import ColdPartition
from headrace.store.cluster.catalogue import Topic
from headrace.wire.errors import KafkaError

TIERING, TABLE = "headrace.tiering", "headrace.lake"


class PartitionTiering(msgspec.Struct, frozen=True):
    """One partition."""

    partition: int
    log_start: int
    local_start: int
    lake_end: int | None
    """The offset behind the last one that the lake holds; None if it holds nothing, or nobody knows."""
    trouble: str | None
    end: int | None = None
    """End of the partition, if this node knows it."""
    lake_bytes: int | None = None


async def tiering_of(access: Access, topic: Topic) -> str:
    """The partitions of a topic whose server is there, as JSON."""
    cold = access.broker.store.cold
    found = []
    away: str | None = None
    for number, standing in (await access.standing(topic)).items():
        lake_end = lake_bytes = None
        if away is None:
            try:
                held = await cold.held(ColdPartition(topic.name, topic.uuid, number, access.caller.organisation))
                lake_end, lake_bytes = (held.end, held.size_bytes) if held else (None, None)
            except KafkaError as error:
                away = str(error)  # the next partition's answer would be the same, and as slow
        trouble = standing.trouble or away
        known = access.known_partition(topic, number)
        found.append(
            PartitionTiering(
                number,
                standing.log_start,
                standing.local_start,
                lake_end,
                trouble,
                known.end if known else None,
                lake_bytes,
            )
        )
    return msgspec.json.encode(found).decode()


async def table_of(access: Access, topic: Topic) -> str:
    """The topic's table as JSON, or the reason why it is unknown."""
    name = ColdPartition(topic.name, topic.uuid, 0, access.caller.organisation)
    try:
        return msgspec.json.encode(await access.broker.store.cold.describe(name)).decode()
    except KafkaError as error:
        return msgspec.json.encode({"trouble": str(error)}).decode()

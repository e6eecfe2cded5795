"""Read-only facts as configs, for which Kafka's responses have no fields; returned only if requested by name.

The console and `headrace` read them. Each is bounded JSON, read on request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from headrace.broker.tiering.status import TABLE, TIERING, table_of, tiering_of
from headrace.store.redis.errors import StoreError
from headrace.store.redis.status import server_status
from headrace.store.redis.stream_status import stream_status

if TYPE_CHECKING:
    from headrace.broker.access import Access
    from headrace.broker.broker import Broker
    from headrace.store.cluster.catalogue import Topic

STREAM, CACHED, REDIS = "headrace.stream", "headrace.cached", "headrace.redis"
_PARTITIONS_MAX = 100


async def topic_facts(access: Access, topic: Topic, only: Collection[str] | None) -> list[tuple[str, str, str]]:
    """Name, value and documentation of the requested facts."""
    asked, policy = only or (), access.broker.policy(topic)
    found = []
    if TIERING in asked and policy.is_tiered:
        found.append((TIERING, await tiering_of(access, topic), "Offsets in the lake, by partition."))
    if TABLE in asked and policy.is_tiered:
        found.append((TABLE, await table_of(access, topic), "The topic's table in the lake."))
    if STREAM in asked and topic.is_stream:
        found.append((STREAM, await _streams(access, topic), "The Redis keys of a topic of format stream."))
    if CACHED in asked:
        found.append((CACHED, _cached(access, topic), "First offset in this node's memory, by partition."))
    return found


async def _streams(access: Access, topic: Topic) -> str:
    """Without the partitions whose server is away."""
    found = []
    for number in range(min(topic.partitions, _PARTITIONS_MAX)):
        with contextlib.suppress(StoreError):
            partition = await access.partition(topic, number)
            found.append(await stream_status(number, partition.keys.log, partition.link))
    return msgspec.json.encode(found).decode()


def _cached(access: Access, topic: Topic) -> str:
    partitions = (access.known_partition(topic, number) for number in range(topic.partitions))
    firsts = {one.number: one.tail.first.base for one in partitions if one is not None and one.tail.first is not None}
    return msgspec.json.encode(firsts).decode()


async def broker_facts(broker: Broker, only: Collection[str] | None) -> list[tuple[str, str, str]]:
    """The same of this node."""
    if only is None or REDIS not in only:
        return []
    servers = []
    for shard in broker.store.shards:
        try:
            servers.append(await server_status(shard))
        except StoreError:
            continue  # it is down, which the metrics tell
    return [(REDIS, msgspec.json.encode(servers).decode(), "The servers of the store.")]

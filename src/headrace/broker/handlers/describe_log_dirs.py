"""DescribeLogDirs: how large the partitions are that this broker leads, and how much room the store has.

The one log directory is the store. Its size is Redis's `maxmemory`; without one it is unknown (-1).
"""

from __future__ import annotations

import asyncio

from headrace.broker.administration import look_again
from headrace.broker.broker import Broker
from headrace.broker.dispatch import Call
from headrace.store.catalogue import Topic
from headrace.store.errors import PartitionGone
from headrace.store.partitions import AnyPartition
from headrace.store.redis import parse_info
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

_UNKNOWN = -1
_OPEN_AT_ONCE = 64


async def handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker = call.broker
    await look_again(broker)
    result = DescribeLogDirsResult(log_dir=str(broker.store.link.address))
    try:
        result.total_bytes, result.usable_bytes = await _room(broker)
        for topic, numbers in _asked(broker, request):
            partitions = await _describe(broker, topic, numbers)
            if partitions:
                result.topics.append(DescribeLogDirsTopic(topic.name, partitions))
    except KafkaError as error:
        result = DescribeLogDirsResult(error_code=error.code, log_dir=result.log_dir)
    return DescribeLogDirsResponse(results=[result])


def _asked(broker: Broker, request: DescribeLogDirsRequest) -> list[tuple[Topic, list[int]]]:
    """The topics with the partitions that this broker leads; what does not exist is left out, as Kafka does it."""
    topics = broker.store.catalogue.by_name
    if request.topics is None:
        asked = {name: set(range(topic.partitions)) for name, topic in topics.items()}
    else:
        asked = {}
        for row in request.topics:
            asked.setdefault(row.topic, set()).update(row.partitions)
    return [
        (topic, [n for n in sorted(numbers) if 0 <= n < topic.partitions and broker.leads(topic, n)])
        for name, numbers in sorted(asked.items())
        if (topic := topics.get(name)) is not None
    ]


async def _describe(broker: Broker, topic: Topic, numbers: list[int]) -> list[DescribeLogDirsPartition]:
    described = []
    for at in range(0, len(numbers), _OPEN_AT_ONCE):
        chunk = numbers[at : at + _OPEN_AT_ONCE]
        opening = (_opened(broker, topic, number) for number in chunk)
        for found in await asyncio.gather(*opening, return_exceptions=True):
            if isinstance(found, PartitionGone):
                continue
            if isinstance(found, BaseException):
                raise found
            described.append(DescribeLogDirsPartition(found.number, found.size_bytes))
    return described


async def _opened(broker: Broker, topic: Topic, number: int) -> AnyPartition:
    partition = await broker.store.partition(topic, number)
    if partition.is_stale:
        await partition.confirm()
    return partition


async def _room(broker: Broker) -> tuple[int, int]:
    """Bytes in all and bytes left."""
    memory = parse_info(await broker.store.link.call("INFO", "memory"))
    total = int(memory.get("maxmemory", 0))
    if not total:
        return _UNKNOWN, _UNKNOWN
    return total, max(total - int(memory["used_memory"]), 0)

"""DescribeLogDirs: the size of the partitions that this broker leads, and the free space of the store.

The store is the only log directory. Its size is Redis's `maxmemory`; without one it is unknown (-1). To organisations
other than `default` it is always unknown: it would reveal how much the others store.
"""

from __future__ import annotations

import asyncio

from headrace.broker.call import Call
from headrace.broker.rights.asking import OnCluster
from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.acls import Operation
from headrace.store.cluster.catalogue import Topic
from headrace.store.partition.base import Partition
from headrace.store.redis.errors import LeftToLeader, PartitionGone
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

_DESCRIBE = OnCluster(Operation.DESCRIBE)
_UNKNOWN = -1
_OPEN_AT_ONCE = 64


async def handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker = call.broker
    await call.look_again()
    result = DescribeLogDirsResult(log_dir=broker.store.address)
    try:
        room = await broker.store.room() if call.caller.organisation == DEFAULT_ORGANISATION else None
        result.total_bytes, result.usable_bytes = room or (_UNKNOWN, _UNKNOWN)
    except KafkaError as error:
        result.error_code = error.code
        result.total_bytes = result.usable_bytes = _UNKNOWN
    for topic, numbers in _asked(call, request):
        partitions, trouble = await _describe(call, topic, numbers)
        if trouble is not None:
            result.error_code = result.error_code or trouble.code
        if partitions:
            result.topics.append(DescribeLogDirsTopic(topic.name, partitions))
    return DescribeLogDirsResponse(results=[result])


def _asked(call: Call, request: DescribeLogDirsRequest) -> list[tuple[Topic, list[int]]]:
    """The topics and partitions that this broker leads; unknown ones are left out, as in Kafka."""
    if request.topics is None:
        asked = {topic.name: set(range(topic.partitions)) for topic in call.topics(_DESCRIBE)}
    else:
        asked = {}
        for row in request.topics:
            asked.setdefault(row.topic, set()).update(row.partitions)
    return [
        (topic, [n for n in sorted(numbers) if 0 <= n < topic.partitions and call.broker.store.nodes.leads(topic, n)])
        for name, numbers in sorted(asked.items())
        if (topic := call.known_topic(_DESCRIBE, name)) is not None
    ]


async def _describe(
    call: Call, topic: Topic, numbers: list[int]
) -> tuple[list[DescribeLogDirsPartition], KafkaError | None]:
    """Sizes, and why some are not known: their server is away, which is like a directory that is offline."""
    described, trouble = [], None
    for at in range(0, len(numbers), _OPEN_AT_ONCE):
        chunk = numbers[at : at + _OPEN_AT_ONCE]
        opening = (_opened(call, topic, number) for number in chunk)
        for found in await asyncio.gather(*opening, return_exceptions=True):
            if isinstance(found, PartitionGone | LeftToLeader):
                continue
            if isinstance(found, KafkaError):
                trouble = trouble or found
            elif isinstance(found, BaseException):
                raise found
            else:
                described.append(DescribeLogDirsPartition(found.number, found.size_bytes))
    return described, trouble


async def _opened(call: Call, topic: Topic, number: int) -> Partition:
    partition = await call.partition(topic, number)
    if partition.is_stale:
        await partition.confirm()
    return partition

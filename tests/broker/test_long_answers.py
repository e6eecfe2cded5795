"""Metadata of everything grows with the cluster: packing it does not hold up the event loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.dispatch import Dispatch
from headrace.broker.metrics.requests import RequestMetrics
from headrace.wire.apis import METADATA
from headrace.wire.frame import response_frame
from headrace.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

VERSION = 12
TOPICS, PARTITIONS = 1_000, 100


@pytest.fixture
def everything() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1, 2])
        for number in range(PARTITIONS)
    ]
    topics = [MetadataResponseTopic(name=f"orders-{number}", partitions=partitions) for number in range(TOPICS)]
    return MetadataResponse(brokers=[], cluster_id="c", controller_id=1, topics=topics)


async def test_the_event_loop_goes_on_while_metadata_of_100_000_partitions_is_packed(
    everything: MetadataResponse,
) -> None:
    broker: Any = SimpleNamespace(quotas=SimpleNamespace(is_any=False))
    header = SimpleNamespace(api_key=METADATA, correlation_id=7)
    call: Any = SimpleNamespace(version=VERSION, slot=SimpleNamespace(header=header))

    async def work() -> MetadataResponse:
        return everything

    answer = asyncio.create_task(Dispatch(broker, RequestMetrics()).answer_with(call, work))
    turns = 0
    while not answer.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    assert b"".join(await answer or []) == b"".join(response_frame(METADATA, everything, VERSION, 7))

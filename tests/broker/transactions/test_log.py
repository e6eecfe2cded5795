"""Transactions in the log: what is stable, what is kept over restarts, and what a produce or a commit is told."""

from __future__ import annotations

import asyncio

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import TOPIC, Mover, Nodes, batch
from tests.broker.transactions.test_steps import die


async def begun(start_node: StartNode, version: int = 2) -> tuple[Nodes, Mover]:
    nodes = Nodes(await start_node())
    await nodes.create()
    mover = Mover(nodes, version=version)
    assert await mover.init() == 0
    return nodes, mover


async def test_what_is_open_and_what_was_aborted_is_known_after_a_kill_and_after_a_stop(start_node: StartNode) -> None:
    nodes, mover = await begun(start_node)
    for number, commit in enumerate([True, False, True, False]):
        assert await mover.send(0, b"%d" % number) == 0
        assert await mover.end(commit=commit) == 0
    other = Mover(nodes, "other")
    assert await other.init() == 0
    assert await other.send(0, b"open") == 0
    before = await nodes.end(0, 1)
    assert await nodes.read(0) == [b"0", b"2"]
    for stop_in_order in (False, True):
        (client,) = nodes.clients.values()
        if stop_in_order:
            client.broker.stop()
            await client.broker.store.close()
        else:
            await die(client.broker)
        nodes.clients = Nodes(await start_node()).clients
        assert await nodes.end(0, 1) == before
        assert await nodes.read(0) == [b"0", b"2"]
        assert await nodes.read(0, isolation=0) == [b"0", b"1", b"2", b"3", b"open"]
    assert await other.end(commit=True) == 0
    assert await nodes.read(0) == [b"0", b"2", b"open"]


async def test_records_may_be_deleted_past_an_open_transaction(start_node: StartNode) -> None:
    nodes, mover = await begun(start_node)
    assert await mover.send(0, b"a", b"b", b"c") == 0
    assert await nodes.end(0, 1) == 0
    asked = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 2)])], 5_000)
    assert (await nodes.any(asked)).topics[0].partitions[0].error_code == 0
    assert await nodes.end(0, 1) == 2
    assert await mover.end(commit=True) == 0
    assert await nodes.end(0, 1) == 4


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_batches_of_two_epochs_in_one_request_are_refused(start_node: StartNode, order: tuple[int, int]) -> None:
    """As Kafka refuses them: one answer about the transaction could hold for one of them alone."""
    nodes, mover = await begun(start_node)
    client = await nodes.leader(0)
    id, epoch = mover.producer
    parts = [
        PartitionProduceData(number, memoryview(bytearray(batch([b"a"], (id, epoch + shift), 0))))
        for number, shift in enumerate(order)
    ]
    request = ProduceRequest("mover", -1, 5_000, [TopicProduceData(name=TOPIC, partition_data=parts)])
    (answers,) = (await client.ask(request, 12)).responses
    refused = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert [one.error_code for one in answers.partition_responses] == [refused, refused]
    assert await nodes.end(0, 0) == await nodes.end(1, 0) == 0


async def test_a_batch_is_told_what_kafka_tells_it(start_node: StartNode) -> None:
    nodes, mover = await begun(start_node)
    client = await nodes.leader(0)

    async def code(raw: bytes, name: str | None = "mover", version: int = 12) -> int:
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(0, memoryview(bytearray(raw)))])
        answer = await client.ask(ProduceRequest(name, -1, 5_000, [data]), version)
        found: int = answer.responses[0].partition_responses[0].error_code
        return found

    pid, epoch = mover.producer
    assert await code(batch([b"x"], (pid, epoch), 0), name=None) == 53
    assert await code(batch([b"x"], (pid, epoch), 0), name="nobody") == 49
    assert await code(batch([b"x"], (pid + 1, epoch), 0)) == 49
    assert await code(batch([b"x"], (pid, epoch + 1), 0)) == 47
    assert await code(batch([b"x"], (pid, epoch), 0), version=11) == 120
    assert await code(batch([b"x"], (pid, epoch), 0), version=10) == 48
    assert await code(batch([b"x"], (pid, epoch), 5)) == 45
    assert await code(batch([b"x"], (pid, epoch), 0)) == 0
    assert await code(batch([b"x"], (pid, epoch), 1, transactional=False)) == 48
    assert await mover.end(commit=True) == 0
    assert await code(batch([b"late"], (pid, epoch), 1)) == 47


async def test_a_batch_that_comes_after_the_abort_is_refused_in_version_1(start_node: StartNode) -> None:
    nodes, mover = await begun(start_node, version=1)
    assert await mover.send(0, b"x") == 0
    assert await mover.end(commit=False) == 0
    assert await mover.append(0, b"late") == 120
    assert await nodes.is_stable()


async def test_pending_offsets_hold_back_readers_of_stable_ones(start_node: StartNode) -> None:
    nodes, mover = await begun(start_node)
    assert await mover.send_offsets("readers", 5) == 0
    assert await nodes.committed("readers") == (88, -1)
    assert await nodes.committed("readers", stable=False) == (0, -1)
    assert await mover.end(commit=True) == 0
    assert await nodes.committed("readers") == (0, 5)
    stranger = Mover(nodes, "stranger")
    stranger.producer = (1, 0)
    assert await stranger.send_offsets("readers", 9) == 49


async def test_the_same_end_again_is_answered_as_before(start_node: StartNode) -> None:
    _, mover = await begun(start_node)
    before = mover.producer
    assert await mover.send(0, b"x") == 0
    assert await mover.end(commit=True) == 0
    assert await mover.end(commit=True, producer=before) == 0
    assert await mover.end(commit=False, producer=before) == 48


@pytest.mark.parametrize("min_bytes", [1, 1_000])
async def test_a_long_poll_for_committed_records_wakes_with_the_commit(start_node: StartNode, min_bytes: int) -> None:
    nodes, mover = await begun(start_node)
    assert await mover.send(0, bytes(1_000)) == 0
    asked = FetchTopic(topic=TOPIC, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
    request = FetchRequest(
        max_wait_ms=20_000, min_bytes=min_bytes, max_bytes=1 << 20, isolation_level=1, topics=[asked]
    )
    waiting = asyncio.create_task((await nodes.leader(0)).ask(request, 12))
    assert await mover.send(0, b"y") == 0
    assert not waiting.done()
    assert await mover.end(commit=True) == 0
    async with asyncio.timeout(10):
        data = (await waiting).responses[0].partitions[0]
    assert (bool(data.records), data.last_stable_offset, data.aborted_transactions) == (True, 3, [])


async def test_offsets_by_isolation(start_node: StartNode) -> None:
    nodes, mover = await begun(start_node)

    async def offset(timestamp: int, isolation: int) -> int:
        asked = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
        request = ListOffsetsRequest(isolation_level=isolation, topics=[asked])
        answer = (await (await nodes.leader(0)).ask(request, 7)).topics[0].partitions[0]
        assert answer.error_code == 0
        found: int = answer.offset
        return found

    assert [await offset(-2, 1), await offset(-1, 1)] == [0, 0]
    assert await mover.send(0, b"x") == 0
    assert [await offset(-2, 1), await offset(-1, 1), await offset(-1, 0)] == [0, 0, 1]
    assert [await offset(1, 1), await offset(1, 0), await offset(-3, 1)] == [-1, 0, -1]
    assert await mover.end(commit=True) == 0
    assert [await offset(-1, 1), await offset(1, 1)] == [2, 0]

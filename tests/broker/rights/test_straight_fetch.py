"""A Fetch without a task: it is answered from memory, waits without one, and leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from headrace.broker.broker import Broker
from headrace.security.acls import Operation
from headrace.store.partition.base import Partition
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from tests.broker.peers import batch_of, fetch_request, produce_request, values_of
from tests.broker.rights.caller import Client
from tests.store.produced import until

BY_NAME = range(4, 13)
SHORT_MS, LONG_MS = 20, 60_000


@pytest.fixture
async def root(strict: Broker) -> Client:
    """A topic with a record in each of its two partitions."""
    client = Client(strict, "root")
    await client.access.create_topic("orders", 2, {})
    await produce(client, b"first", 0)
    await produce(client, b"first", 1)
    return client


async def produce(client: Client, value: bytes, partition: int) -> None:
    assert await client.codes(produce_request("orders", {partition: batch_of(value)}), 9) == {0}


def part(answer: FetchResponse, number: int = 0) -> PartitionData:
    (topic,) = answer.responses
    return next(one for one in topic.partitions if one.partition_index == number)


def partitions(broker: Broker) -> list[Partition]:
    return list(broker.store.organisations["default"].partitions)


def watchers(broker: Broker) -> int:
    return sum(len(one.watchers) for one in partitions(broker))


async def waiting(broker: Broker, client: Client, request: FetchRequest) -> asyncio.Task[FetchResponse]:
    """A fetch that found too little, and waits."""
    asked = asyncio.create_task(client.ask(request, 12))
    await until(lambda: watchers(broker) > 0)
    assert client.went_straight
    assert not asked.done()
    return asked


async def test_every_version_is_answered_from_memory(root: Client) -> None:
    for version in BY_NAME:
        answer = await root.ask(fetch_request("orders", {0: 0, 1: 1}), version)
        assert root.went_straight
        assert values_of(part(answer)) == [b"first"]
        assert (part(answer, 1).records or b"") == b""
        assert (part(answer).high_watermark, part(answer, 1).high_watermark) == (1, 1)


async def test_an_append_wakes_it(strict: Broker, root: Client) -> None:
    asked = await waiting(strict, root, fetch_request("orders", {0: 1, 1: 1}, max_wait_ms=LONG_MS, min_bytes=1))
    await produce(Client(strict, "root"), b"second", 1)
    assert values_of(part(await asked, 1)) == [b"second"]
    assert watchers(strict) == 0


async def test_it_waits_for_as_many_bytes_as_it_wants(strict: Broker, root: Client) -> None:
    size = len(batch_of(b"second"))
    request = fetch_request("orders", {0: 1, 1: 1}, max_wait_ms=LONG_MS, min_bytes=3 * size)
    asked, other = await waiting(strict, root, request), Client(strict, "root")
    for count in range(3):
        assert not asked.done()
        await produce(other, b"second", count % 2)
    answer = await asked
    assert values_of(part(answer)) == [b"second", b"second"]
    assert values_of(part(answer, 1)) == [b"second"]


async def test_when_its_time_is_over_it_says_so_and_leaves_nothing_behind(strict: Broker, root: Client) -> None:
    answer = await root.ask(fetch_request("orders", {0: 1}, max_wait_ms=SHORT_MS, min_bytes=1), 12)
    assert root.went_straight
    assert (part(answer).error_code, part(answer).high_watermark) == (0, 1)
    assert watchers(strict) == 0


async def test_a_client_that_goes_away_leaves_nothing_behind(strict: Broker, root: Client) -> None:
    asked = await waiting(strict, root, fetch_request("orders", {0: 1}, max_wait_ms=LONG_MS, min_bytes=1))
    root.hang_up()
    assert watchers(strict) == 0
    asked.cancel()


async def test_trouble_while_it_waits_is_settled_by_asking_the_store(strict: Broker, root: Client) -> None:
    asked = await waiting(strict, root, fetch_request("orders", {0: 1}, max_wait_ms=LONG_MS, min_bytes=1))
    (topic,) = root.access.topics(Operation.DESCRIBE)
    await root.access.delete_topic(topic)
    assert part(await asked).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert watchers(strict) == 0


async def test_what_has_to_be_refused_is_and_the_session_goes_on(root: Client) -> None:
    begin = fetch_request("orders", {0: 0, 1: 5})
    begin.session_epoch = 0
    first: FetchResponse = await root.ask(begin, 12)
    assert first.session_id
    assert values_of(part(first)) == [b"first"]
    assert part(first, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    for epoch in (1, 2):
        again = fetch_request("orders", {1: 0} if epoch == 1 else {})
        again.topics = again.topics if epoch == 1 else []
        again.session_id, again.session_epoch = first.session_id, epoch
        answer: FetchResponse = await root.ask(again, 12)
        assert (answer.error_code, answer.session_id) == (0, first.session_id)
        assert values_of(part(answer, 1)) == [b"first"]


async def test_a_session_that_is_not_there_is_refused(root: Client) -> None:
    wrong = fetch_request("orders", {0: 0})
    wrong.session_id, wrong.session_epoch = 77, 3
    assert (await root.ask(wrong, 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_what_is_not_in_memory_is_read_from_the_store(strict: Broker, root: Client) -> None:
    for one in partitions(strict):
        one.tail.clear()
    answer = await root.ask(fetch_request("orders", {0: 0, 1: 0}), 12)
    assert [values_of(part(answer, number)) for number in (0, 1)] == [[b"first"], [b"first"]]

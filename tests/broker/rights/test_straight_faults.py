"""The straight road when something fails or leaves in the middle: each request ends once, and nothing is left over."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from headrace.broker.access import Access
from headrace.broker.broker import Broker
from headrace.broker.fetching.straight import _StraightFetch
from headrace.broker.fetching.waiting import LongPoll
from headrace.broker.network.connection import Connection
from headrace.broker.network.server import Server
from headrace.store.partition.appending import Appender
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import request_frame
from headrace.wire.schema import Payload
from tests.broker.peers import batch_of, fetch_request, produce_request
from tests.broker.rights.caller import Client
from tests.store.produced import until

LONG_MS = 60_000


@pytest.fixture
async def root(strict: Broker) -> Client:
    client = Client(strict, "root")
    await client.access.create_topic("orders", 1, {})
    await produce(client)
    return client


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # what is there already is not looked at: it may be much
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


async def produce(client: Client) -> None:
    assert await client.codes(produce_request("orders", {0: batch_of(b"value")}), 9) == {0}


class Wire:
    """A connection of a server, and the bytes that it is sent."""

    def __init__(self, server: Server, client: Client) -> None:
        self.written: list[Any] = []
        self.connection = Connection(server, Access(client.broker, client.caller))
        transport = Mock(spec=asyncio.Transport)
        transport.get_extra_info.return_value = None
        transport.is_closing.return_value = False
        transport.get_write_buffer_size.return_value = 0
        transport.write.side_effect = self.written.append
        transport.writelines.side_effect = self.written.extend
        transport.close.side_effect = lambda: asyncio.get_running_loop().call_soon(
            self.connection.connection_lost, None
        )
        self.connection.connection_made(transport)

    def send(self, *requests: Payload) -> None:
        frames = b"".join(request_frame(request, 9, 7, "tests") for request in requests)
        self.connection.get_buffer(-1)[: len(frames)] = frames
        self.connection.buffer_updated(len(frames))

    @property
    def written_bytes(self) -> int:
        return sum(map(len, self.written))


def alive(*kinds: type) -> int:
    return sum(isinstance(one, kinds) for one in gc.get_objects())


@pytest.mark.parametrize("ends_by", ["records", "time", "leaving"])
async def test_a_long_poll_leaves_nothing_to_the_garbage_collector(
    strict: Broker, root: Client, no_collector: None, ends_by: str
) -> None:
    wait_ms = 20 if ends_by == "time" else LONG_MS
    asked = asyncio.create_task(root.ask(fetch_request("orders", {0: 1}, max_wait_ms=wait_ms, min_bytes=1), 12))
    await until(lambda: alive(LongPoll) > 0)
    if ends_by == "records":
        await produce(Client(strict, "root"))
    elif ends_by == "leaving":
        root.hang_up()
        asked.cancel()
    await asyncio.wait([asked])
    await until(lambda: alive(_StraightFetch, LongPoll) == 0)


@pytest.mark.parametrize("request_", [produce_request("orders", {0: batch_of(b"v")}), fetch_request("orders", {0: 0})])
async def test_a_fault_of_ours_closes_that_connection_and_gives_all_of_it_back(
    strict: Broker, root: Client, monkeypatch: pytest.MonkeyPatch, request_: Payload
) -> None:
    server = Server(strict)
    wire = Wire(server, root)
    monkeypatch.setattr(server.dispatch, "go_straight", Mock(side_effect=RuntimeError("a bug")))
    wire.send(request_, request_)
    await until(lambda: not server.connections)
    assert (server.failures, server.budget.whole_bytes, server.answer_room.used_bytes) == (1, 0, 0)
    assert wire.connection.is_idle


async def test_a_produce_that_fails_half_way_ends_once(
    strict: Broker, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(strict)
    wire = Wire(server, root)
    enqueue, calls = Appender.enqueue, iter([None])

    def fails_at_the_second(writer: Any, part: Any) -> None:
        if next(calls, part) is part:
            raise RuntimeError("a bug")
        enqueue(writer, part)

    monkeypatch.setattr(Appender, "enqueue", fails_at_the_second)
    twice = produce_request("orders", {0: batch_of(b"value")})
    twice.topic_data *= 2
    wire.send(twice)
    await until(lambda: not server.connections)
    (partition,) = strict.store.organisations["default"].partitions
    await until(lambda: partition.writer.is_idle)
    assert (server.failures, server.budget.whole_bytes) == (1, 0)


@pytest.mark.parametrize(("step", "offset"), [("_took", 2), ("_transmit", 1)])
async def test_an_append_that_fails_by_a_fault_of_ours_holds_nobody_up(
    root: Client, strict: Broker, monkeypatch: pytest.MonkeyPatch, step: str, offset: int
) -> None:
    (partition,) = strict.store.organisations["default"].partitions
    writer: Any = partition.writer
    assert isinstance(writer, Appender)
    monkeypatch.setattr(writer, step, Mock(side_effect=RuntimeError("a bug")))
    request = produce_request("orders", {0: batch_of(b"value")})
    assert await root.codes(request, 9) == {ErrorCode.REQUEST_TIMED_OUT}
    monkeypatch.undo()
    assert (await root.ask(request, 9)).responses[0].partition_responses[0].base_offset == offset


async def test_answers_of_one_turn_leave_room_for_each_other(strict: Broker, root: Client) -> None:
    batch = batch_of(bytes(10_000))
    for _ in range(10):
        assert await root.codes(produce_request("orders", {0: batch}), 9) == {0}
    server = Server(strict)
    server.answer_room.limit_bytes = 100_000
    wires = [Wire(server, root) for _ in range(10)]
    for wire in wires:
        wire.send(fetch_request("orders", {0: 1}))
    await until(lambda: all(wire.written for wire in wires))
    assert sum(wire.written_bytes for wire in wires) < 100_000 + 10 * 2 * len(batch)
    assert server.answer_room.used_bytes == 0


@pytest.mark.parametrize("wanted", [{0: 1}, {0: 0}], ids=["waits", "answered"])
async def test_a_broker_that_stops_does_not_wait_for_long_polls_that_are_in_line(
    strict: Broker, root: Client, wanted: dict[int, int]
) -> None:
    server = Server(strict)
    wire = Wire(server, root)
    wire.send(*[fetch_request("orders", wanted, max_wait_ms=LONG_MS, min_bytes=1)] * 3)
    async with asyncio.timeout(strict.options.shutdown_grace_ms / 2_000):
        await server.stop()
    assert (server.failures, server.budget.whole_bytes) == (0, 0)
    assert wire.connection.is_idle

"""Commands of one turn leave in one write, in their order, and none is lost or sent to a closed connection."""

from __future__ import annotations

import asyncio
from typing import cast
from unittest.mock import Mock

from headrace.store.end_of_turn import EndOfTurn
from headrace.store.redis.address import Address
from headrace.store.redis.link import RedisLink
from headrace.store.redis.wire import RedisWire
from headrace.wire.schema import Buffer


class Transport:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.abort = Mock()

    def get_extra_info(self, name: str) -> None:
        return None

    def write(self, data: Buffer) -> None:
        self.writes.append(bytes(data))

    def writelines(self, chunks: list[Buffer]) -> None:
        self.writes.append(b"".join(chunks))


def wired() -> tuple[RedisWire, Transport]:
    wire, transport = RedisWire(RedisLink(Address("127.0.0.1", 1), "test")), Transport()
    wire.connection_made(cast("asyncio.Transport", transport))
    return wire, transport


async def test_what_is_held_back_leaves_in_one_write() -> None:
    wire, transport = wired()
    assert wire.hold_back()
    assert not wire.hold_back()
    wire.send_then([b"a", b"b"], None)
    wire.send_then([b"c"], None)
    assert transport.writes == []
    wire.let_go()
    wire.send_then([b"d"], None)
    assert transport.writes == [b"abc", b"d"]


async def test_large_commands_do_not_wait_and_keep_their_order() -> None:
    wire, transport = wired()
    wire.hold_back()
    wire.send_then([b"a"], None)
    wire.send_then([b"b" * 300_000], None)
    assert transport.writes == [b"a" + b"b" * 300_000]
    wire.send_then([b"c"], None)
    wire.let_go()
    assert transport.writes[1:] == [b"c"]


async def test_replies_hold_back_what_their_callbacks_send() -> None:
    wire, transport = wired()
    wire.send_then([b"1"], lambda *_: wire.send_then([b"3"], None))
    wire.send_then([b"2"], lambda *_: wire.send_then([b"4"], None))
    wire.data_received(b"+OK\r\n+OK\r\n")
    assert transport.writes == [b"1", b"2", b"34"]


async def test_a_connection_that_broke_meanwhile_gets_nothing_and_the_sender_is_told() -> None:
    wire, transport = wired()
    told = Mock()
    wire.hold_back()
    wire.send_then([b"a"], told)
    wire.abort("it is over")
    wire.let_go()
    wire.connection_lost(None)
    assert transport.writes == []
    told.assert_called_once()


async def test_the_last_callbacks_of_a_turn_run_behind_all_others() -> None:
    turn, ran, done = EndOfTurn(), list[str](), asyncio.Event()

    def first() -> None:
        ran.append("first")
        turn.add_last(lambda: ran.append("last"))

    turn.add(first)
    turn.add(lambda: ran.append("second"))
    asyncio.get_running_loop().call_soon(done.set)
    await done.wait()
    assert ran == ["first", "second", "last"]

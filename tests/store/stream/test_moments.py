"""What is read before an await and after it is not of one moment: whatever comes between does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.store.redis.link import Argument
from headrace.store.redis.route import Route
from headrace.store.store import Store
from headrace.store.stream.ids import parse_id
from headrace.wire.errors import ErrorCode, KafkaError
from tests.store.partition.test_contract import all_of
from tests.store.produced import produce, records_in, values
from tests.store.servers import Valkey
from tests.store.stream.test_partition import add, open_stream


def after_the_next(
    monkeypatch: pytest.MonkeyPatch, link: Route, command: str, then: Callable[[], Awaitable[object]]
) -> None:
    """Does something between the store's answer to a command and the moment in which it is looked at."""
    call = link.call

    async def call_and_wait(*arguments: Argument) -> Any:
        reply = await call(*arguments)
        if arguments[0] == command:
            monkeypatch.setattr(link, "call", call)
            await then()
        return reply

    monkeypatch.setattr(link, "call", call_and_wait)


async def test_the_earliest_offset_is_not_behind_a_first_batch_that_arrives_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await open_stream(store)
    await partition.confirm()
    offsets: list[int] = []

    async def first_batch() -> None:
        offsets.append((await produce(partition, b"first")).base_offset)

    after_the_next(monkeypatch, partition.link, "XRANGE", first_batch)
    assert await partition.find_earliest() <= offsets[0]


async def test_the_earliest_offset_of_a_trimmed_stream_is_not_behind_what_arrives_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await open_stream(store)
    await produce(partition, b"old")
    await partition.confirm()
    await store.link.call("XTRIM", partition.keys.log, "MAXLEN", 0)
    offsets: list[int] = []

    async def next_batch() -> None:
        offsets.append((await produce(partition, b"new")).base_offset)

    after_the_next(monkeypatch, partition.link, "XRANGE", next_batch)
    assert await partition.find_earliest() <= offsets[0]


async def test_what_arrives_while_all_before_it_is_deleted_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch, valkey: Valkey
) -> None:
    """The newest entry's sequence does not fit its bits, so that finding what to keep takes a question of its own."""
    partition = await open_stream(store)
    add(valkey, partition, "old", f"{store.clock.wall_ms()}-5000")
    await partition.confirm()

    async def next_batch() -> None:
        await produce(partition, b"new")

    after_the_next(monkeypatch, partition.reads, "XRANGE", next_batch)
    await partition.delete_before(partition.end)
    assert values(await all_of(partition)) == [b"new"]


async def test_a_mirror_does_not_go_beyond_its_commit_for_what_arrives_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch, valkey: Valkey
) -> None:
    partition = await open_stream(store)
    await produce(partition, b"read")
    removed = (await produce(partition, b"removed")).base_offset
    valkey.ask("XDEL", partition.keys.log, str(partition.ids.natural_id(removed)))
    [(kept, _)] = valkey.stream(partition.keys.log)

    async def next_batch() -> None:
        await produce(partition, b"not read")

    await partition.confirm()
    after_the_next(monkeypatch, partition.reads, "XRANGE", next_batch)
    assert await partition.last_before(removed) == parse_id(kept)


async def test_a_read_tells_no_offsets_by_a_table_that_was_cut_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch, valkey: Valkey
) -> None:
    partition = await open_stream(store)
    now_ms = store.clock.wall_ms()
    for value, identity in (("a", f"{now_ms}-1000000"), ("b", f"{now_ms}-3000000000000"), ("c", f"{now_ms + 1}-0")):
        add(valkey, partition, value, identity)
    before = await all_of(partition)
    start = partition.log_start

    async def trim() -> None:
        """As Redis code does, which moves no log start; retention takes note of it."""
        valkey.ask("XTRIM", partition.keys.log, "MAXLEN", 1)
        await partition.enforce_retention(-1, -1)

    after_the_next(monkeypatch, partition.reads, "XRANGE", trim)
    assert set(records_in(await partition.read(start, 1 << 20, True))) <= set(before)


async def test_a_reader_whose_offset_is_deleted_meanwhile_is_told_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not carried over what it misses: with auto.offset.reset=none it wants to know."""
    partition = await open_stream(store)
    first = (await produce(partition, b"deleted")).base_offset
    kept = (await produce(partition, b"kept")).base_offset
    await partition.confirm()
    monkeypatch.setattr(partition.reads, "call", deleting(partition.reads.call, lambda: partition.delete_before(kept)))
    with pytest.raises(KafkaError) as refused:
        await partition.read(first, 1 << 20, True)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def deleting(call: Callable[..., Awaitable[Any]], delete: Callable[[], Awaitable[object]]) -> Callable[..., Any]:
    """A call that deletes records before its own command, once."""
    is_done = False

    async def delete_and_call(*arguments: Argument) -> Any:
        nonlocal is_done
        if not is_done:
            is_done = True
            await delete()
        return await call(*arguments)

    return delete_and_call


async def test_look_ups_by_time_find_nothing_below_the_log_start(store: Store) -> None:
    """A crash can leave entries before the log start: it is written before they are removed."""
    partition = await open_stream(store)
    await produce(partition, b"deleted")
    kept = (await produce(partition, b"kept")).base_offset
    await partition.save_start(kept)
    found = await partition.find_time(0)
    assert found is not None
    assert found[0] == kept
    await partition.save_start(partition.end)
    assert await partition.find_time(0) is None
    assert await partition.find_newest() is None


async def test_a_call_that_one_server_does_not_know_is_not_sent_to_another_before_it_was_looked_at(
    valkey: Valkey, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await open_stream(store)
    await produce(stream, b"0")
    valkey.ask("SCRIPT", "FLUSH")
    send, in_step = stream.scripts.send, []

    def moves_meanwhile(name: str, *rest: Any) -> asyncio.Future[Any]:
        in_step.append(stream.is_in_step)
        reply = send(name, *rest)
        if len(in_step) == 1:
            stream.slot.move_to(stream.shard)
        return reply

    monkeypatch.setattr(stream.scripts, "send", moves_meanwhile)
    await produce(stream, b"1")
    assert all(in_step)
    assert len(valkey.stream(stream.keys.log)) == 2

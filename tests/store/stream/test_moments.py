"""What is read before an await and after it is not of one moment: whatever comes between does no harm."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.store.redis.link import Argument
from headrace.store.redis.route import Route
from headrace.store.store import Store
from headrace.store.stream.ids import parse_id
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

    async def delete() -> None:
        await partition.delete_before(before[2].offset)

    after_the_next(monkeypatch, partition.reads, "XRANGE", delete)
    assert set(records_in(await partition.read(start, 1 << 20, True))) <= set(before)

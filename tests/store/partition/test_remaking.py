"""A log that was deleted by hand, and a broker that dies while it makes it again: nothing is lost without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.store.partition.base import Partition
from headrace.store.store import Store
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import CONFIGS, all_of, numbers, on, produce_each
from tests.store.partition.test_origin import crash
from tests.store.produced import let_a_lease_pass, produce, store_of, until, values
from tests.store.servers import Valkey

RECORDS = 8


@pytest.fixture(params=CONFIGS)
def configs(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


@pytest.fixture
async def either(store: Store, configs: dict[str, str]) -> Partition:
    """Partition 0 of `orders`, in each format."""
    return await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)


class Deadly:
    """A link whose commands do not arrive any more once something holds; the server is the same all the time."""

    def __init__(self, link: Any, holds: Callable[[], bool]) -> None:
        self._link, self._holds = link, holds

    def send(self, *arguments: object) -> Any:
        return self._unless_dead(self._link.send, *arguments)

    def send_chunks(self, *arguments: object) -> Any:
        return self._unless_dead(self._link.send_chunks, *arguments)

    def _unless_dead(self, send: Callable[..., Any], *arguments: object) -> Any:
        return asyncio.get_running_loop().create_future() if self._holds() else send(*arguments)


async def die_while_restoring(valkey: Valkey, partition: Partition, restored: int, patch: pytest.MonkeyPatch) -> None:
    """Deletes the log; its broker ends when so many batches are there again."""

    def is_time() -> bool:
        return bool(valkey.ask("EXISTS", partition.keys.log)) and valkey.ask("XLEN", partition.keys.log) >= restored

    valkey.ask("DEL", partition.keys.log)
    link = partition.shard.link
    with patch.context() as during:
        deadly = Deadly(_Real(link), is_time)
        for name in ("send", "send_chunks"):
            during.setattr(link, name, getattr(deadly, name))
        partition.doubt()
        look = asyncio.create_task(partition.confirm())
        await until(is_time)
        look.cancel()
        await asyncio.gather(look, return_exceptions=True)
        await crash(store_of(partition))


class _Real:
    """A link's own methods."""

    def __init__(self, link: Any) -> None:
        self.send, self.send_chunks = link.send, link.send_chunks


@pytest.mark.parametrize("restored", [0, 3])
async def test_what_a_broker_did_not_restore_before_it_died_is_a_gap(
    valkey: Valkey, either: Partition, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, restored: int
) -> None:
    offsets = await produce_each(either, 0, RECORDS)
    end = either.end
    await die_while_restoring(valkey, either, restored, monkeypatch)
    for events in ({"gaps": 1}, {}):  # the next start finds it noted
        store = await open_store(node_id=0)
        again = await on(store, either)
        assert dict(store.events) == events
        [gap] = again.gaps
        assert (offsets[restored - 1] + 1 if restored else 0) <= gap.start <= offsets[restored]
        assert (gap.end, again.end, again.leader_epoch) == (end, end, 1)
        assert values(await all_of(again)) == numbers(0, restored)
        await crash(store)
    again = await on(await open_store(node_id=0), either)
    assert (await produce(again, b"next")).base_offset >= end
    assert values(await all_of(again)) == [*numbers(0, restored), b"next"]


async def test_a_gap_is_reported_though_the_broker_that_noted_it_died_before_it_said_so(
    valkey: Valkey, either: Partition, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce_each(either, 0, RECORDS)
    either.tail.clear()
    valkey.ask("DEL", either.keys.log)
    never = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(either.context.catalogue, "set_epoch", lambda *_: never)
    either.doubt()
    look = asyncio.create_task(either.confirm())
    await until(lambda: valkey.ask("HGET", either.keys.meta, "gaps") is not None)
    look.cancel()
    await asyncio.gather(look, return_exceptions=True)
    await crash(store_of(either))
    for events in ({"gaps": 1}, {}):
        store = await open_store(node_id=0)
        assert len((await on(store, either)).gaps) == 1
        assert dict(store.events) == events
        await crash(store)


async def test_it_is_a_gap_too_for_a_broker_that_has_what_was_restored_in_its_cache(
    valkey: Valkey,
    clock: MovableClock,
    store: Store,
    open_store: OpenStore,
    configs: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = [store, await open_store()]
    await store.nodes.refresh()
    topic = await store.default.catalogue.create("orders", 1, configs)
    leader, other = sorted(both, key=lambda one: one.nodes.me != store.nodes.leader(topic, 0))
    await leader.default.catalogue.find("orders")
    led = await leader.default.partition(topic, 0)
    seen = await on(other, led)
    offsets = await produce_each(led, 0, 2)
    await seen.confirm_up_to(led.end)
    offsets += await produce_each(led, 2, RECORDS)
    await die_while_restoring(valkey, led, 3, monkeypatch)
    valkey.ask("DEL", other.keys.node(leader.nodes.me.id))
    await other.nodes.refresh()
    await let_a_lease_pass(other, clock)  # nobody waits for it any more
    seen.doubt()
    await seen.confirm()
    assert len(seen.tail) > 0
    [gap] = seen.gaps
    assert offsets[2] < gap.start <= offsets[3]
    assert (gap.end, seen.end, seen.leader_epoch) == (led.end, led.end, 1)
    assert values(await all_of(seen)) == numbers(0, 3)


async def test_a_broker_that_dies_when_all_is_restored_leaves_no_gap(
    valkey: Valkey, either: Partition, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce_each(either, 0, RECORDS)
    await die_while_restoring(valkey, either, RECORDS, monkeypatch)
    again = await on(await open_store(node_id=0), either)
    assert (again.gaps, again.leader_epoch) == ([], 0)
    await produce_each(again, RECORDS, RECORDS + 2)
    assert values(await all_of(again)) == numbers(0, RECORDS + 2)

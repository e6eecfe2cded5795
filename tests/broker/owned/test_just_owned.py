"""An owner of a moment ago knows what the owner of before and after it has never seen: a store that forgot it gets it.

The next owner took the thing before, so the store that went back names it, and nothing tells it that another one was
between.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.broker.owned.contract import Name
from headrace.broker.owned.upkeep import OwnedUpkeep
from headrace.store.store import Store
from tests.broker.owned.tally import Add, Read, Tallies
from tests.broker.owned.test_runtime import document, rows
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.produced import cut_off, is_up, new_servers, until
from tests.store.proxy import Proxy
from tests.store.servers import Valkey

LEASE_MS = 60_000
"""Nothing is renewed by itself while a test runs."""


class Two(NamedTuple):
    """Nodes, what they have, and the name of a tally of one that belongs to the first."""

    first: Store
    second: Store
    before: Tallies
    between: Tallies
    name: Name


class Moved(NamedTuple):
    """A tally of one, which another node raised to two for a moment; then its owner is the same as before."""

    name: str
    now: Tallies
    between: Tallies


@pytest.fixture
async def two(open_store: OpenStore) -> Two:
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await first.nodes.refresh()
    before = Tallies(first)
    name = next(one for at in range(100) if before.runtime.is_mine(one := Name("default", str(at))))
    assert await before.ask(name.id, Add, "me", 1) == 1
    return Two(first, second, before, Tallies(second), name)


async def go_back(valkey: Valkey, two: Two, checkpoint: Path) -> None:
    async with new_servers(two.first, two.second):
        valkey.go_back_to(checkpoint)
    await until(lambda: is_up(two.first) and is_up(two.second))


async def replace_first(valkey: Valkey, two: Two) -> None:
    """Its lease is gone, and it has not noticed yet."""
    valkey.ask("DEL", two.first.keys.node(0))
    await two.second.nodes.refresh()


@pytest.fixture
async def moved(valkey: Valkey, two: Two) -> Moved:
    name = two.name.id
    checkpoint = valkey.checkpoint()
    await replace_first(valkey, two)
    assert await two.between.ask(name, Add, "me", 1) == 2
    for _ in range(3):
        two.second.nodes.term += 1  # it takes the tally again
        assert await two.between.ask(name, Read) == 2
    await go_back(valkey, two, checkpoint)
    await two.first.nodes.renew()
    await two.second.nodes.refresh()
    return Moved(name, two.before, two.between)


async def let_go(tallies: Tallies) -> None:
    OwnedUpkeep(tallies.runtime).let_go_what_moved()
    await until(lambda: not tallies.runtime.things)


async def tell(node: Store, other: Store) -> None:
    """A node has restored what it has, says so, and another one hears it."""
    await until(lambda: bool(node.nodes.restored.news))
    await node.nodes.renew()
    await other.nodes.refresh()


async def test_what_only_the_owner_of_a_moment_ago_knows_is_written_back(moved: Moved, two: Two) -> None:
    await let_go(moved.between)
    await tell(two.second, two.first)
    assert await moved.now.ask(moved.name, Read) == 2


async def test_it_is_not_written_over_what_the_next_owner_acknowledged_there(valkey: Valkey, moved: Moved) -> None:
    assert await moved.now.ask(moved.name, Add, "me", 10) == 11
    await let_go(moved.between)
    assert document(valkey, moved.name)[b"total"] == b"11"


async def test_who_owned_it_before_takes_nothing_from_an_owner_that_the_store_forgot(valkey: Valkey, two: Two) -> None:
    checkpoint = valkey.checkpoint()
    await replace_first(valkey, two)
    assert await two.between.ask(two.name.id, Add, "me", 1) == 2
    await go_back(valkey, two, checkpoint)
    two.first.nodes.step_down()
    await let_go(two.before)
    assert await two.between.ask(two.name.id, Read) == 2
    assert document(valkey, two.name.id)[b"total"] == b"2"


async def test_a_node_that_was_away_writes_nothing_over_what_others_acknowledged_meanwhile(
    valkey: Valkey, two: Two, clock: MovableClock
) -> None:
    checkpoint = valkey.checkpoint()
    two.before.runtime.things[two.name].drop()
    valkey.ask("HSET", f"t:default:{{{two.name.id}}}:tally", "owner", "9.abc.9")
    assert await two.before.ask(two.name.id, Read) == 1  # with a token above the one that the next owner gets
    await go_back(valkey, two, checkpoint)
    valkey.ask("DEL", two.first.keys.node(0))
    while not two.between.runtime.is_mine(two.name):  # whoever was alive before counts as alive for a lease
        clock.advance(LEASE_MS // 4)
        await two.second.nodes.renew()
    assert await two.between.ask(two.name.id, Add, "me", 10) == 11
    await two.first.nodes.renew()
    await let_go(two.before)
    assert await two.between.ask(two.name.id, Add, "me", 10) == 21


async def overtake(valkey: Valkey, two: Two) -> None:
    """The first node alone knows of a later value; the second one takes the thing on a server that has lost it."""
    checkpoint = valkey.checkpoint()
    assert await two.before.ask(two.name.id, Add, "me", 5) == 6
    await replace_first(valkey, two)
    await go_back(valkey, two, checkpoint)
    await replace_first(valkey, two)
    assert await two.between.ask(two.name.id, Add, "you", 7) == 8


async def test_a_later_row_that_only_an_owner_knows_who_was_overtaken_is_put_back(valkey: Valkey, two: Two) -> None:
    await overtake(valkey, two)
    two.first.nodes.step_down()
    await let_go(two.before)
    assert (await two.between.runtime.current(two.name)).rows == {"me": 5, "you": 7}
    assert await two.between.ask(two.name.id, Add, "me", 8) == 16


async def test_a_later_row_that_only_a_node_knows_that_was_away_is_put_back(
    valkey: Valkey, two: Two, clock: MovableClock
) -> None:
    await overtake(valkey, two)
    for _ in range(5):
        clock.advance(LEASE_MS // 4)
        await two.second.nodes.renew()
    assert two.first.nodes.has_overslept
    await two.first.nodes.renew()
    await let_go(two.before)
    assert (await two.between.runtime.current(two.name)).rows == {"me": 5, "you": 7}


async def test_a_row_that_the_next_owner_stored_later_stays(valkey: Valkey, two: Two) -> None:
    await overtake(valkey, two)
    assert await two.between.ask(two.name.id, Add, "me", 6) == 14
    two.first.nodes.step_down()
    await let_go(two.before)
    assert await two.between.ask(two.name.id, Add, "me", 6) == 20, "nothing was taken from it"
    assert rows(valkey, two.name.id) == {b"me": b"6", b"you": b"7"}


async def test_rows_that_an_emptied_store_lost_are_put_back_though_a_node_that_starts_has_taken_the_thing(
    valkey: Valkey, open_store: OpenStore, tmp_path: Path
) -> None:
    """It finds no row of another node, and waits for none."""
    first = await open_store(node_lease_ms=LEASE_MS)
    before = Tallies(first)
    assert await before.ask("a", Add, "me", 1) == 1
    assert await before.ask("a", Add, "you", 1) == 2
    async with new_servers(first):
        valkey.go_back_to(tmp_path)
    between = Tallies(await open_store(node_lease_ms=LEASE_MS))
    assert await between.ask("a", Add, "you", 7) == 7
    await first.leases.wait_up(20)
    await first.nodes.renew()
    first.nodes.step_down()
    await let_go(before)
    assert (await between.runtime.current(Name("default", "a"))).rows == {"me": 1, "you": 7}


async def test_who_stops_writes_back_what_the_store_has_lost(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(node_lease_ms=LEASE_MS)
    tallies = Tallies(store)
    for name in ("a", "b"):
        assert await tallies.ask(name, Add, "me", 1) == 1
    checkpoint = valkey.checkpoint()
    assert await tallies.ask("a", Add, "me", 1) == 2
    async with new_servers(store):
        valkey.go_back_to(checkpoint)
    await tallies.runtime.leave_lost(20)
    assert document(valkey, "a")[b"total"] == b"2"
    assert not tallies.runtime.things


async def test_who_stops_does_not_wait_for_a_server_that_stays_away(open_store: OpenStore, proxy: Proxy) -> None:
    store = await open_store(via=proxy, node_lease_ms=LEASE_MS)
    tallies = Tallies(store)
    assert await tallies.ask("a", Add, "me", 1) == 1
    await cut_off(store, proxy)
    async with asyncio.timeout(20):
        await tallies.runtime.leave_lost(0.05)
    tallies.runtime.close()

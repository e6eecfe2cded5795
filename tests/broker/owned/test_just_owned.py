"""An owner of a moment ago knows what the owner of before and after it has never seen: a store that forgot it gets it.

The next owner took the thing before, so the store that went back names it, and nothing tells it that another one was
between.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from headrace.broker.owned.contract import Name
from headrace.broker.owned.upkeep import OwnedUpkeep
from tests.broker.owned.tally import Add, Read, Tallies
from tests.broker.owned.test_runtime import document
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.produced import is_up, new_servers, until
from tests.store.servers import Valkey

LEASE_MS = 60_000
"""Nothing is renewed by itself while a test runs."""


class Moved(NamedTuple):
    """A tally of one, which another node raised to two for a moment; then its owner is the same as before."""

    name: str
    now: Tallies
    between: Tallies


@pytest.fixture
async def moved(valkey: Valkey, open_store: OpenStore) -> Moved:
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await first.nodes.refresh()
    now, between = Tallies(first), Tallies(second)
    name = next(one for one in map(str, range(100)) if now.runtime.is_mine(Name("default", one)))
    assert await now.ask(name, Add, "me", 1) == 1
    checkpoint = valkey.checkpoint()
    valkey.ask("DEL", first.keys.node(0))
    await second.nodes.refresh()
    assert await between.ask(name, Add, "me", 1) == 2
    for _ in range(3):
        second.nodes.term += 1  # it takes the tally again
        assert await between.ask(name, Read) == 2
    async with new_servers(first, second):
        valkey.go_back_to(checkpoint)
    await until(lambda: is_up(first) and is_up(second))
    await first.nodes.renew()
    await second.nodes.refresh()
    return Moved(name, now, between)


async def let_go(tallies: Tallies) -> None:
    OwnedUpkeep(tallies.runtime).let_go_what_moved()
    await until(lambda: not tallies.runtime.things)


async def test_what_only_the_owner_of_a_moment_ago_knows_is_written_back(moved: Moved) -> None:
    await let_go(moved.between)
    assert await moved.now.ask(moved.name, Read) == 2


async def test_it_is_not_written_over_what_the_next_owner_acknowledged_there(valkey: Valkey, moved: Moved) -> None:
    assert await moved.now.ask(moved.name, Add, "me", 10) == 11
    await let_go(moved.between)
    assert document(valkey, moved.name)[b"total"] == b"11"


async def test_who_owned_it_before_takes_nothing_from_an_owner_that_the_store_forgot(
    valkey: Valkey, open_store: OpenStore
) -> None:
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await first.nodes.refresh()
    before, now = Tallies(first), Tallies(second)
    name = next(one for one in map(str, range(100)) if before.runtime.is_mine(Name("default", one)))
    assert await before.ask(name, Add, "me", 1) == 1
    checkpoint = valkey.checkpoint()
    valkey.ask("DEL", first.keys.node(0))
    await second.nodes.refresh()
    assert await now.ask(name, Add, "me", 1) == 2
    async with new_servers(first, second):
        valkey.go_back_to(checkpoint)
    await until(lambda: is_up(first) and is_up(second))
    first.nodes.step_down()
    await let_go(before)
    assert await now.ask(name, Read) == 2
    assert document(valkey, name)[b"total"] == b"2"


async def test_a_node_that_was_away_writes_nothing_over_what_others_acknowledged_meanwhile(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await first.nodes.refresh()
    away, awake = Tallies(first), Tallies(second)
    name = next(one for one in map(str, range(100)) if away.runtime.is_mine(Name("default", one)))
    assert await away.ask(name, Add, "me", 1) == 1
    checkpoint = valkey.checkpoint()
    away.runtime.things[Name("default", name)].drop()
    valkey.ask("HSET", f"t:default:{{{name}}}:tally", "owner", "9.abc.9")
    assert await away.ask(name, Read) == 1  # with a token above the one that the next owner gets
    async with new_servers(first, second):
        valkey.go_back_to(checkpoint)
    await until(lambda: is_up(first) and is_up(second))
    valkey.ask("DEL", first.keys.node(0))
    while not awake.runtime.is_mine(Name("default", name)):  # whoever was alive before counts as alive for a lease
        clock.advance(LEASE_MS // 4)
        await second.nodes.renew()
    assert await awake.ask(name, Add, "me", 10) == 11
    await first.nodes.renew()
    await let_go(away)
    assert await awake.ask(name, Add, "me", 10) == 21

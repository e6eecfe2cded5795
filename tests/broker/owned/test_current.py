"""What is read is not older than what another node acknowledged, though this one does not know of it yet."""

from __future__ import annotations

import pytest

from headrace.broker.owned.contract import Name
from headrace.store.redis.errors import StoreError
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.broker.owned.tally import Add, End, Read, Strike, Tallies, Tally, Wait
from tests.broker.owned.test_runtime import LEASE_MS, NOT_OURS, tallies
from tests.store.conftest import OpenStore
from tests.store.produced import cut_off, is_up, until
from tests.store.proxy import Proxy

__all__ = ["tallies"]

A = Name("default", "a")


async def test_what_another_owner_stored_is_read_though_no_node_came_or_went(tallies: Tallies, store: Store) -> None:
    await tallies.ask("a", Add, "me", 1)
    assert await Tallies(store, tallies.kind).ask("a", Add, "you", 10) == 11
    found = await tallies.runtime.current(A)
    assert (found.state, found.rows) == (Tally(11, "1"), {"me": 1, "you": 10})


async def test_what_another_owner_deleted_is_gone(tallies: Tallies, store: Store) -> None:
    await tallies.ask("a", Add, "me", 1)
    assert await Tallies(store, tallies.kind).ask("a", End) == "ended"
    assert (await tallies.runtime.current(A)).state is None


async def test_what_nobody_else_changed_stays_as_it_is(tallies: Tallies) -> None:
    await tallies.ask("a", Add, "me", 1)
    held, owner = tallies.ask("a", Wait), tallies.runtime.things[A].owner
    assert (await tallies.runtime.current(A)).owner == owner
    assert not held.done()


async def test_what_was_deleted_and_is_not_stored_again_is_read(tallies: Tallies) -> None:
    await tallies.ask("a", Add, "me", 1)
    await tallies.ask("a", End)
    assert (await tallies.runtime.current(A)).state is None


async def test_a_node_that_joins_is_noticed_by_what_it_took(open_store: OpenStore) -> None:
    first = await open_store(node_lease_ms=LEASE_MS)
    await first.announcements.close()  # it does not hear of the second one, and its next renewal is far away
    tallies = Tallies(first)
    names = [f"tally-{number}" for number in range(16)]
    for name in names:
        await tallies.ask(name, Add, "me", 1)
    second = await open_store(node_lease_ms=LEASE_MS)
    others = Tallies(second)
    theirs = next(name for name in names if others.runtime.is_mine(Name("default", name)))
    assert await others.ask(theirs, Add, "you", 10) == 11
    assert await tallies.ask(theirs, Read) == 1, "the first node still takes it for its own"
    with pytest.raises(KafkaError) as refusal:
        await tallies.runtime.current(Name("default", theirs))
    assert refusal.value.code == ErrorCode.NOT_COORDINATOR
    assert others.runtime.things[Name("default", theirs)].rows == {"me": 1, "you": 10}
    assert await others.ask(theirs, Add, "you", 1) == 12, "it was not taken from its owner"


async def test_what_seems_to_change_nothing_is_refused_if_another_node_owns_it(tallies: Tallies, store: Store) -> None:
    await tallies.ask("a", Add, "me", 1)
    assert await tallies.ask("a", Strike, "you") == "struck"
    assert await Tallies(store, tallies.kind).ask("a", Add, "you", 10) == 11
    assert await tallies.ask("a", Strike, "you") == NOT_OURS
    assert await tallies.ask("a", Strike, "you") == "struck"
    assert (await tallies.runtime.current(A)).rows == {"me": 1}


async def test_while_the_store_is_away_nothing_is_read(open_store: OpenStore, proxy: Proxy) -> None:
    store = await open_store(via=proxy)
    tallies = Tallies(store)
    await tallies.ask("a", Add, "me", 1)
    await cut_off(store, proxy)
    assert await tallies.ask("a", Read) == 1
    with pytest.raises(StoreError):
        await tallies.runtime.current(A)
    proxy.is_open = True
    await until(lambda: is_up(store))
    assert (await tallies.runtime.current(A)).state == Tally(1, "1")


async def test_a_request_that_came_just_before_its_thing_was_ours_is_decided_by_the_one_that_is_kept(
    tallies: Tallies, store: Store
) -> None:
    """Else a second one stays beside it, which would write its old state back once the store is replaced."""
    await Tallies(store, tallies.kind).ask("a", Add, "me", 1)
    owns_now, store.nodes.owns_now = store.nodes.owns_now, lambda what: False  # type: ignore[method-assign]
    asked = tallies.ask("a", Add, "me", 1)
    store.nodes.owns_now = owns_now  # type: ignore[method-assign]
    assert await asked == 2
    assert tallies.runtime.things[A].state == Tally(2, "1")

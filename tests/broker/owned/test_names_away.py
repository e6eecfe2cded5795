"""Things on a server that is well are served though the server of their names is away."""

from __future__ import annotations

import pytest

from headrace.store.redis.errors import StoreAway
from headrace.store.store import Store
from tests.broker.owned.tally import Add, Read, Tallies
from tests.broker.owned.test_runtime import LEASE_MS, NOT_OURS, document, run_out, tallies
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.produced import is_up, until
from tests.store.servers import Valkey

__all__ = ["tallies"]


async def reconnect(store: Store) -> None:
    generation = store.link.generation
    store.link.link.drop("the test cuts it")
    await until(lambda: store.link.generation > generation and is_up(store))


def take_names_away(tallies: Tallies, monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_away(*_: object) -> None:
        raise StoreAway

    monkeypatch.setattr(tallies.runtime.stored, "enlist", is_away)
    monkeypatch.setattr(tallies.kind, "claim", is_away)


async def test_a_new_connection_to_the_thing_needs_no_names(
    tallies: Tallies, store: Store, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tallies.ask("a", Add, "me", 1)
    take_names_away(tallies, monkeypatch)
    await reconnect(store)
    assert await tallies.ask("a", Add, "me", 1) == 2
    assert document(valkey)[b"total"] == b"2"


async def test_so_it_goes_on_once_the_lease_has_run_out_too(
    open_store: OpenStore, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and leases are on one server."""
    store = await open_store(node_lease_ms=LEASE_MS)
    tallies = Tallies(store)
    await tallies.ask("a", Add, "me", 1)
    take_names_away(tallies, monkeypatch)
    await reconnect(store)
    assert await tallies.ask("a", Read) == 1
    run_out(store, clock, tallies)
    assert await tallies.ask("a", Add, "me", 1) == 2


async def test_a_new_connection_made_after_the_lease_has_run_out_is_no_reason_to_stop(
    open_store: OpenStore, clock: MovableClock, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(node_lease_ms=LEASE_MS)
    tallies = Tallies(store)
    await tallies.ask("a", Add, "me", 1)
    take_names_away(tallies, monkeypatch)
    run_out(store, clock, tallies)
    await reconnect(store)
    assert await tallies.ask("a", Add, "me", 1) == 2
    assert document(valkey)[b"total"] == b"2"


async def test_nor_is_a_lease_that_was_lost_and_is_lost_again(
    open_store: OpenStore, clock: MovableClock, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two it could not be looked at: the token in the store says that nobody else owned it."""
    store = await open_store(node_lease_ms=LEASE_MS)
    tallies = Tallies(store)
    await tallies.ask("a", Add, "me", 1)
    take_names_away(tallies, monkeypatch)
    store.nodes.term += 1
    run_out(store, clock, tallies)
    assert await tallies.ask("a", Add, "me", 1) == 2
    assert document(valkey)[b"total"] == b"2"


async def test_nor_is_it_taken_from_another_owner_then(open_store: OpenStore, clock: MovableClock) -> None:
    store = await open_store(node_lease_ms=LEASE_MS)
    tallies = Tallies(store)
    await tallies.ask("a", Add, "me", 1)
    others = Tallies(store, tallies.kind)
    assert await others.ask("a", Add, "you", 10) == 11
    run_out(store, clock, tallies)
    await reconnect(store)
    assert await tallies.ask("a", Read) == NOT_OURS
    others.runtime.is_with_leases = lambda name: False  # type: ignore[method-assign]
    assert await others.ask("a", Add, "you", 1) == 12


async def test_names_that_their_server_may_have_lost_are_written_again(
    tallies: Tallies, store: Store, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tallies.ask("a", Add, "me", 1)
    lose_names(tallies, valkey)
    monkeypatch.setattr(tallies.runtime.stored, "registers_timeline", lambda org: (1,))
    await reconnect(store)
    assert await tallies.ask("a", Read) == 1
    assert are_there(tallies, valkey)


async def test_names_of_a_thing_that_the_store_lost_without_a_sign_are_written_again(
    tallies: Tallies, store: Store, valkey: Valkey
) -> None:
    await tallies.ask("a", Add, "me", 1)
    valkey.ask("DEL", "t:default:{a}:tally")
    lose_names(tallies, valkey)
    await reconnect(store)
    assert await tallies.ask("a", Read) == 1
    assert document(valkey)[b"total"] == b"1"
    assert are_there(tallies, valkey)


def lose_names(tallies: Tallies, valkey: Valkey) -> None:
    valkey.ask("DEL", "t:default:tallies")
    tallies.kind.claims.clear()


def are_there(tallies: Tallies, valkey: Valkey) -> bool:
    return bool(valkey.ask("SISMEMBER", "t:default:tallies", "a")) and tallies.kind.claims == {"1": ("default", "a")}

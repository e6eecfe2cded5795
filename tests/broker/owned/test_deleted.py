"""What another owner deleted, or deleted and made again, is not taken for what the store lost."""

from __future__ import annotations

import pytest

from headrace.broker.owned.contract import Name
from headrace.store.redis.errors import StoreAway
from headrace.store.store import Store
from tests.broker.owned.tally import Add, End, Read, Tallies, TallyKind
from tests.broker.owned.test_runtime import document, rows, tallies
from tests.store.conftest import OpenStore
from tests.store.produced import is_up, until
from tests.store.proxy import Proxy
from tests.store.servers import Valkey

__all__ = ["tallies"]


async def test_what_another_owner_deleted_is_not_written_again(tallies: Tallies, store: Store, valkey: Valkey) -> None:
    await tallies.ask("a", Add, "me", 1)
    assert await Tallies(store, tallies.kind).ask("a", End) == "ended"
    store.nodes.term += 1
    assert await tallies.ask("a", Read) is None
    assert (document(valkey), rows(valkey)) == ({}, {})


async def own_several_times(tallies: Tallies) -> None:
    """So that our token's number is above that of whoever makes the thing again."""
    for _ in range(3):
        await tallies.ask("a", Add, "me", 1)
        tallies.runtime.things[Name("default", "a")].doubt()


async def test_what_another_owner_deleted_and_made_again_is_not_replaced(
    tallies: Tallies, store: Store, valkey: Valkey
) -> None:
    await own_several_times(tallies)
    other = Tallies(store, tallies.kind)
    assert await other.ask("a", End) == "ended"
    assert await other.ask("a", Add, "you", 10) == 10
    store.nodes.term += 1
    assert await tallies.ask("a", Read) == 10
    assert rows(valkey) == {b"you": b"10"}


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_what_another_owner_deleted_stays_so_on_a_server_that_lost_nothing(
    tallies: Tallies, store: Store, valkey: Valkey, is_made_again: bool
) -> None:
    await own_several_times(tallies)
    other = Tallies(store, tallies.kind)
    assert await other.ask("a", End) == "ended"
    if is_made_again:
        assert await other.ask("a", Add, "you", 10) == 10
    generation = store.link.generation
    valkey.go_back_to(valkey.checkpoint())
    await until(lambda: store.link.generation > generation and is_up(store))
    store.nodes.term += 1
    assert await tallies.ask("a", Read) == (10 if is_made_again else None)
    assert rows(valkey) == ({b"you": b"10"} if is_made_again else {})


async def test_only_the_token_of_a_deleted_thing_expires(tallies: Tallies, valkey: Valkey) -> None:
    await tallies.ask("a", Add, "me", 1)
    await tallies.ask("a", End)
    assert valkey.ask("TTL", "t:default:{a}:tally") > 0
    await tallies.ask("a", Add, "me", 1)
    assert valkey.ask("TTL", "t:default:{a}:tally") == -1


async def test_a_deletion_whose_answer_was_lost_holds_once_another_owner_told_of_it(
    open_store: OpenStore, proxy: Proxy, valkey: Valkey
) -> None:
    store = await open_store(via=proxy)
    tallies = Tallies(store)
    for name in ("b", "a"):
        await tallies.ask(name, Add, "me", 1)
    await tallies.ask("b", End)  # from now on the server knows the script
    trap = proxy.trap("lose reply", lambda command: b"t:default:{a}:tally" in command)
    refused = tallies.ask("a", End)
    await trap.sprung.wait()
    assert (await refused).startswith("refused")
    await until(lambda: is_up(store))
    assert await Tallies(store, TallyKind()).ask("a", Read) is None
    store.nodes.term += 1
    assert await tallies.ask("a", Read) is None
    assert (document(valkey), rows(valkey)) == ({}, {})


@pytest.mark.parametrize("register", ["listing", "claims"])
async def test_what_is_deleted_is_gone_though_the_server_of_its_names_is_away(
    tallies: Tallies, store: Store, valkey: Valkey, register: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_away(*_: object) -> None:
        raise StoreAway

    for who in ("me", "you"):
        await tallies.ask("a", Add, who, 1)
    if register == "listing":
        monkeypatch.setattr(tallies.runtime.stored, "unlist", is_away)
    else:
        monkeypatch.setattr(tallies.kind, "give_back", is_away)
    assert await tallies.ask("a", End) == "ended"
    assert await tallies.ask("a", Read) is None
    assert await tallies.ask("a", Add, "me", 5) == 5
    assert valkey.ask("TTL", "t:default:{a}:tally") == -1
    assert await Tallies(store, TallyKind()).ask("a", Read) == 5
    assert rows(valkey) == {b"me": b"5"}

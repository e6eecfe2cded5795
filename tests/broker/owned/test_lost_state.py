"""Taking a thing again: what the store lost is written back, and only that is said to be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker.owned.contract import Name
from headrace.store.cluster.owned.things import Changes
from headrace.store.redis.copied_writes import NotConfirmed
from headrace.store.store import Store
from tests.broker.owned.tally import Add, End, Read, Strike, Tallies
from tests.broker.owned.test_runtime import NOT_OURS, document, rows, tallies
from tests.store.conftest import OpenStore
from tests.store.produced import cut_off, is_up, until
from tests.store.proxy import Proxy
from tests.store.servers import Valkey

__all__ = ["tallies"]

LOST = "the store had lost state of a tally: written again"


def was_told(caplog: pytest.LogCaptureFixture) -> bool:
    return LOST in caplog.messages


async def go_back(store: Store, valkey: Valkey, before: Path) -> None:
    generation = store.link.generation
    valkey.go_back_to(before)
    await until(lambda: store.link.generation > generation and is_up(store))


async def test_an_older_value_is_a_loss(
    tallies: Tallies, store: Store, valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    await tallies.ask("a", Add, "me", 1)
    before = valkey.checkpoint()
    await tallies.ask("a", Add, "me", 1)
    await go_back(store, valkey, before)
    assert await tallies.ask("a", Read) == 2
    assert was_told(caplog)


async def test_a_write_that_meets_another_server_before_we_looked_there_costs_nothing(
    tallies: Tallies, store: Store, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = valkey.checkpoint()
    await tallies.ask("a", Add, "me", 1)
    write = tallies.runtime.stored.write

    async def write_late(org: str, name: str, owner: str, changes: Changes) -> None:
        monkeypatch.undo()
        await go_back(store, valkey, nothing)
        await write(org, name, owner, changes)

    monkeypatch.setattr(tallies.runtime.stored, "write", write_late)
    assert await tallies.ask("a", Add, "me", 1) == NOT_OURS
    assert await tallies.ask("a", Read) == 1
    assert await tallies.ask("a", Add, "me", 1) == 2


async def test_others_wait_until_all_is_written_back(tallies: Tallies, store: Store, valkey: Valkey) -> None:
    nothing = valkey.checkpoint()
    for name in ("a", "b"):
        await tallies.ask(name, Add, "me", 1)
    is_restored = store.nodes.restored.checks[-1]
    assert is_restored()
    await go_back(store, valkey, nothing)
    assert not is_restored()
    assert await tallies.ask("a", Read) == 1
    assert not is_restored()
    assert await tallies.ask("b", Read) == 1
    assert is_restored()
    assert rows(valkey, "b") == {b"me": b"1"}


async def test_a_row_that_is_back_is_a_loss(
    tallies: Tallies, store: Store, valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    await tallies.ask("a", Add, "me", 1)
    before = valkey.checkpoint()
    assert await tallies.ask("a", Strike, "me") == "struck"
    await go_back(store, valkey, before)
    assert await tallies.ask("a", Read) == 1
    assert rows(valkey) == {}
    assert was_told(caplog)


@pytest.mark.parametrize("event", [(Add, "me", 1), (Add, "you", 1), (Strike, "me"), (End,)])
async def test_a_write_whose_answer_was_lost_is_undone_and_no_loss(
    open_store: OpenStore, proxy: Proxy, valkey: Valkey, caplog: pytest.LogCaptureFixture, event: tuple[type, object]
) -> None:
    store = await open_store(via=proxy)
    tallies = Tallies(store)
    for name in ("b", "a"):
        await tallies.ask(name, Add, "me", 1)
    await tallies.ask("b", End)  # from now on the server knows the scripts
    trap = proxy.trap("lose reply", lambda command: b"t:default:{a}:tally" in command)
    refused = tallies.ask("a", *event)
    await trap.sprung.wait()
    assert (await refused).startswith("refused")
    await until(lambda: is_up(store))
    assert await tallies.ask("a", Read) == 1
    assert (document(valkey)[b"total"], rows(valkey)) == (b"1", {b"me": b"1"})
    assert not was_told(caplog)


async def test_so_is_one_behind_which_others_were_refused_because_the_store_was_away(
    open_store: OpenStore, proxy: Proxy, valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(via=proxy)
    tallies = Tallies(store)
    await tallies.ask("a", Add, "me", 1)
    trap = proxy.trap("lose reply", lambda command: b"total" in command)
    refused = tallies.ask("a", Add, "you", 1)
    await trap.sprung.wait()
    await cut_off(store, proxy)
    assert (await refused).startswith("refused")
    for event in ((Add, "they", 1), (End,)):
        assert (await tallies.ask("a", *event)).startswith("refused")
    proxy.is_open = True
    await until(lambda: is_up(store))
    assert await tallies.ask("a", Read) == 1
    assert (document(valkey)[b"total"], rows(valkey)) == (b"1", {b"me": b"1"})
    assert not was_told(caplog)


async def test_a_write_that_too_few_replicas_have_is_undone_and_no_loss(
    tallies: Tallies, store: Store, valkey: Valkey, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def too_few(*_: object) -> None:
        monkeypatch.undo()
        raise NotConfirmed

    await tallies.ask("a", Add, "me", 1)
    monkeypatch.setattr(store.topology.copied, "confirm", too_few)
    assert (await tallies.ask("a", Add, "me", 1)).startswith("refused")
    assert await tallies.ask("a", Read) == 1
    assert document(valkey)[b"total"] == b"1"
    assert not was_told(caplog)


async def test_what_an_earlier_release_wrote_in_another_form_is_no_loss(
    store: Store, valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    await Tallies(store).ask("a", Add, "me", 1)
    with valkey.client() as client:
        client.hset("t:default:{a}:tally", "total", " 1")
        client.hset("t:default:{a}:rows", "me", "01")
    tallies = Tallies(store)
    assert await tallies.ask("a", Read) == 1
    tallies.runtime.things[Name("default", "a")].doubt()
    assert await tallies.ask("a", Read) == 1
    assert rows(valkey) == {b"me": b"01"}
    assert not was_told(caplog)


async def test_what_cannot_be_read_stays(store: Store, valkey: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    await Tallies(store).ask("a", Add, "me", 1)
    with valkey.client() as client:
        client.hset("t:default:{a}:tally", "total", "no JSON")
        client.hset("t:default:{a}:rows", "you", "no number")
    tallies = Tallies(store)
    for _ in range(2):
        thing = await tallies.runtime.look(Name("default", "a"))
        assert thing.rows == {"me": 1}
        thing.doubt()
    assert document(valkey) == {b"total": b"no JSON", b"note": b'"1"'}
    assert rows(valkey) == {b"me": b"1", b"you": b"no number"}
    assert not was_told(caplog)

"""The runtime for owned state, with a machine that is not a group: what it promises holds for any machine."""

from __future__ import annotations

import asyncio

import pytest

from headrace.broker.owned.contract import Name
from headrace.broker.owned.upkeep import OwnedUpkeep
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.broker.owned.tally import IDLE_MS, Add, End, Read, Tallies, TallyKind, Wait
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.produced import cut_off, is_up, until
from tests.store.proxy import Proxy
from tests.store.servers import Valkey

LEASE_MS = 60_000
"""Nothing is renewed by itself while a test runs."""
NOT_OURS = f"refused with {ErrorCode.NOT_COORDINATOR}"


@pytest.fixture
def tallies(store: Store) -> Tallies:
    return Tallies(store)


def document(valkey: Valkey, name: str = "a") -> dict[bytes, bytes]:
    with valkey.client() as client:
        found: dict[bytes, bytes] = client.hgetall(f"t:default:{{{name}}}:tally")
    found.pop(b"owner", None)
    return found


def rows(valkey: Valkey, name: str = "a") -> dict[bytes, bytes]:
    with valkey.client() as client:
        found: dict[bytes, bytes] = client.hgetall(f"t:default:{{{name}}}:rows")
    return found


def run_out(store: Store, clock: MovableClock, *tallies: Tallies) -> None:
    """Lets the lease run out, as if it were on another server; the process is awake all the time."""
    for one in tallies:
        one.runtime.is_with_leases = lambda name: False  # type: ignore[method-assign]
    for _ in range(4):
        clock.advance(LEASE_MS // 3)
        store.nodes.note_awake()


async def lose_the_answer_to_taking(tallies: Tallies, store: Store, proxy: Proxy) -> None:
    """Has the next request take the tally, which the store does and nobody hears of."""
    trap = proxy.trap("lose reply", lambda command: b"t:default:{a}:tally" in command)
    refused = tallies.ask("a", Read)
    await trap.sprung.wait()
    assert (await refused).startswith("refused")
    await until(lambda: is_up(store))


class TestDeciding:
    async def test_document_and_rows_are_stored_before_the_answer(self, tallies: Tallies, valkey: Valkey) -> None:
        assert await tallies.ask("a", Add, "me", 3) == 3
        assert document(valkey) == {b"total": b"3", b"note": b'"1"'}
        assert rows(valkey) == {b"me": b"3"}

    async def test_what_is_stored_is_decided_once(self, tallies: Tallies) -> None:
        await tallies.ask("a", Add, "me", 1)
        await asyncio.gather(*(tallies.ask("a", Add, "me", 1) for _ in range(9)))
        assert len(tallies.kind.machines["a"].decided) == 10

    async def test_events_are_decided_in_their_order(self, tallies: Tallies) -> None:
        asked = [tallies.ask("a", Add, "me", 1) if at % 2 else tallies.ask("a", Read) for at in range(20)]
        assert await asyncio.gather(*asked) == [at // 2 + 1 if at % 2 else (at // 2 or None) for at in range(20)]

    async def test_what_needs_no_storing_is_answered_in_the_same_turn(self, tallies: Tallies) -> None:
        await tallies.ask("a", Add, "me", 1)
        assert tallies.ask("a", Read).done()

    async def test_an_answer_may_be_held_back(self, tallies: Tallies) -> None:
        await tallies.ask("a", Add, "me", 1)
        held = tallies.ask("a", Wait)
        assert not held.done()
        await tallies.ask("a", Add, "me", 1)
        assert await held == 2

    async def test_a_bug_in_the_machine_costs_that_request_alone(self, tallies: Tallies) -> None:
        with pytest.raises(AssertionError):
            await tallies.ask("a", Wait)
        assert await tallies.ask("a", Add, "me", 1) == 1

    async def test_only_fields_that_changed_are_written(self, tallies: Tallies, valkey: Valkey) -> None:
        await tallies.ask("a", Add, "me", 1)
        with valkey.client() as client:
            client.hset("t:default:{a}:tally", "note", '"of somebody else"')
        await tallies.ask("a", Add, "me", 1)
        assert document(valkey) == {b"total": b"2", b"note": b'"of somebody else"'}

    async def test_a_claim_that_is_taken_is_made_again_with_another_name(
        self, tallies: Tallies, valkey: Valkey
    ) -> None:
        await tallies.ask("a", Add, "me", 1)
        await tallies.ask("b", Add, "me", 1)
        assert document(valkey, "b")[b"note"] == b'"2"'

    async def test_a_tombstone_deletes_document_rows_and_claim(self, tallies: Tallies, valkey: Valkey) -> None:
        await tallies.ask("a", Add, "me", 1)
        assert await tallies.ask("a", End) == "ended"
        assert (document(valkey), rows(valkey), tallies.kind.claims) == ({}, {}, {})
        assert tallies.kind.gone_rows == ["me"]
        assert await tallies.ask("a", Read) is None


class TestNames:
    async def test_a_name_of_which_nothing_is_stored_leaves_nothing_behind(
        self, tallies: Tallies, valkey: Valkey
    ) -> None:
        assert await tallies.ask("nobody", Read) is None
        await until(lambda: not tallies.runtime.things)
        assert valkey.ask("KEYS", "t:*") == []

    async def test_a_new_owner_finds_all_without_being_asked(self, tallies: Tallies, store: Store) -> None:
        await tallies.ask("a", Add, "me", 1)
        await tallies.ask("b", Add, "me", 2)
        later = Tallies(store)
        found = await later.runtime.look_at_all("default")
        assert sorted(thing.state.total for thing in found if thing.state is not None) == [1, 2]


class TestTrouble:
    async def test_a_restart_is_a_load(self, tallies: Tallies, store: Store) -> None:
        await tallies.ask("a", Add, "me", 4)
        again = Tallies(store)
        assert await again.ask("a", Read) == 4
        assert (await again.runtime.look(Name("default", "a"))).rows == {"me": 4}

    async def test_while_the_store_is_away_nothing_is_stored_and_nothing_is_lost(
        self, open_store: OpenStore, proxy: Proxy
    ) -> None:
        store = await open_store(via=proxy)
        tallies = Tallies(store)
        await tallies.ask("a", Add, "me", 1)
        await cut_off(store, proxy)
        assert (await tallies.ask("a", Add, "me", 1)).startswith("refused")
        assert await tallies.ask("a", Read) == 1, "reading needs no store while our lease is beyond doubt"
        proxy.is_open = True
        await until(lambda: is_up(store))
        assert await tallies.ask("a", Add, "me", 1) == 2

    async def test_while_the_store_is_away_nothing_is_told_that_another_node_may_have_changed(
        self, open_store: OpenStore, proxy: Proxy
    ) -> None:
        """In a cluster its shard may be away and that of the leases not: our lease ran out, and we have it again."""
        store = await open_store(via=proxy)
        tallies = Tallies(store)
        await tallies.ask("a", Add, "me", 1)
        await cut_off(store, proxy)
        store.nodes.term += 1
        assert (await tallies.ask("a", Read)).startswith("refused")
        proxy.is_open = True
        await until(lambda: is_up(store))
        assert await tallies.ask("a", Read) == 1

    async def test_a_write_whose_answer_was_lost_does_not_count_twice(
        self, open_store: OpenStore, proxy: Proxy, valkey: Valkey
    ) -> None:
        store = await open_store(via=proxy)
        tallies = Tallies(store)
        await tallies.ask("a", Add, "me", 1)
        trap = proxy.trap("lose reply", lambda command: b"total" in command)
        refused = tallies.ask("a", Add, "me", 1)
        await trap.sprung.wait()
        assert (await refused).startswith("refused")
        await until(lambda: is_up(store))
        assert await tallies.ask("a", Read) == 1
        assert await tallies.ask("a", Add, "me", 1) == 2
        assert document(valkey)[b"total"] == b"2"

    async def test_a_store_that_went_back_in_time_gets_back_what_was_acknowledged(
        self, tallies: Tallies, valkey: Valkey, store: Store
    ) -> None:
        await tallies.ask("a", Add, "me", 1)
        before = valkey.checkpoint()
        await tallies.ask("a", Add, "you", 1)
        generation = store.link.generation
        valkey.go_back_to(before)
        await until(lambda: store.link.generation > generation and store.link.is_up)
        assert await tallies.ask("a", Read) == 2
        assert document(valkey)[b"total"] == b"2"
        assert rows(valkey) == {b"me": b"1", b"you": b"1"}

    async def test_bytes_that_cannot_be_read_do_not_cost_the_rows(self, store: Store, valkey: Valkey) -> None:
        await Tallies(store).ask("a", Add, "me", 1)
        with valkey.client() as client:
            client.hset("t:default:{a}:tally", "total", "no JSON")
        thing = await Tallies(store).runtime.look(Name("default", "a"))
        assert (thing.state, thing.rows) == (None, {"me": 1})


class TestOwners:
    async def test_a_node_that_was_replaced_changes_nothing(
        self, tallies: Tallies, store: Store, valkey: Valkey
    ) -> None:
        await tallies.ask("a", Add, "me", 1)
        held = tallies.ask("a", Wait)
        assert await Tallies(store, TallyKind()).ask("a", Add, "you", 10) == 11
        assert await tallies.ask("a", Add, "me", 1) == NOT_OURS
        assert await held == "moved"
        assert document(valkey)[b"total"] == b"11"

    async def test_after_that_it_is_looked_up_again(self, tallies: Tallies, store: Store) -> None:
        await tallies.ask("a", Add, "me", 1)
        await Tallies(store).ask("a", Add, "you", 10)
        await tallies.ask("a", Add, "me", 1)
        assert await tallies.ask("a", Read) == 11

    async def test_a_taking_whose_answer_was_lost_does_not_hide_who_owned_it_in_between(
        self, open_store: OpenStore, proxy: Proxy, valkey: Valkey
    ) -> None:
        store = await open_store(via=proxy)
        tallies = Tallies(store)
        await tallies.ask("a", Add, "me", 1)
        assert await Tallies(store, TallyKind()).ask("a", Add, "you", 10) == 11
        store.nodes.term += 1
        await lose_the_answer_to_taking(tallies, store, proxy)
        assert await tallies.ask("a", Read) == 11
        assert rows(valkey) == {b"me": b"1", b"you": b"10"}

    async def test_a_taking_whose_answer_was_lost_leaves_what_only_its_owner_knows(
        self, open_store: OpenStore, proxy: Proxy, valkey: Valkey
    ) -> None:
        """The store went back to an earlier owner: nobody owned it after us."""
        store = await open_store(via=proxy)
        await Tallies(store, TallyKind()).ask("a", Add, "you", 10)
        before = valkey.checkpoint()
        tallies = Tallies(store)
        assert await tallies.ask("a", Add, "me", 1) == 11
        generation = store.link.generation
        valkey.go_back_to(before)
        await until(lambda: store.link.generation > generation and is_up(store))
        await lose_the_answer_to_taking(tallies, store, proxy)
        assert await tallies.ask("a", Read) == 11
        assert rows(valkey) == {b"me": b"1", b"you": b"10"}

    async def test_what_another_owner_made_while_our_first_write_waited_is_not_replaced(
        self, tallies: Tallies, store: Store, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """We were stopped between deciding and writing."""
        stored, create = tallies.runtime.stored, tallies.runtime.stored.create

        async def create_late(org: str, name: str) -> str:
            monkeypatch.undo()
            assert await Tallies(store, tallies.kind).ask("a", Add, "you", 10) == 10
            return await create(org, name)

        monkeypatch.setattr(stored, "create", create_late)
        assert await tallies.ask("a", Add, "me", 1) == NOT_OURS
        assert await tallies.ask("a", Add, "me", 1) == 11
        assert rows(valkey) == {b"me": b"1", b"you": b"10"}

    async def test_what_the_store_lost_by_itself_is_written_again(self, tallies: Tallies, valkey: Valkey) -> None:
        await tallies.ask("a", Add, "me", 1)
        with valkey.client() as client:
            client.delete("t:default:{a}:tally", "t:default:{a}:rows")
        tallies.runtime.things[Name("default", "a")].doubt()
        assert await tallies.ask("a", Read) == 1
        assert rows(valkey) == {b"me": b"1"}

    async def test_without_a_lease_what_is_known_and_still_ours_goes_on(
        self, open_store: OpenStore, clock: MovableClock, valkey: Valkey
    ) -> None:
        """The server of the leases is away: nobody takes over."""
        store = await open_store(node_lease_ms=LEASE_MS)
        tallies = Tallies(store)
        await tallies.ask("a", Add, "me", 1)
        run_out(store, clock, tallies)
        assert await tallies.ask("a", Add, "me", 1) == 2
        assert await asyncio.gather(*(tallies.ask("a", Read) for _ in range(3))) == [2, 2, 2]
        assert rows(valkey) == {b"me": b"1"}
        assert not store.nodes.lease_is_valid

    async def test_without_a_lease_what_is_on_the_server_of_the_leases_is_refused_at_once(
        self, open_store: OpenStore, clock: MovableClock, valkey: Valkey
    ) -> None:
        store = await open_store(node_lease_ms=LEASE_MS)
        tallies = Tallies(store)
        await tallies.ask("a", Add, "me", 1)
        run_out(store, clock)
        valkey.pause()
        try:
            assert await tallies.ask("a", Read) == NOT_OURS
        finally:
            valkey.resume()

    async def test_without_a_lease_nothing_is_taken(self, open_store: OpenStore, clock: MovableClock) -> None:
        """That server may be away for us alone."""
        store = await open_store(node_lease_ms=LEASE_MS)
        await Tallies(store).ask("a", Add, "me", 1)
        tallies, other = Tallies(store), Tallies(store)
        await tallies.ask("b", Add, "me", 1)
        held = tallies.ask("b", Wait)
        assert await other.ask("b", Add, "you", 10) == 11
        run_out(store, clock, tallies, other)
        assert await tallies.ask("a", Read) == NOT_OURS
        assert await tallies.ask("b", Read) == NOT_OURS
        assert await held == "moved"
        assert await other.ask("b", Read) == 11, "nobody has taken it from its owner"

    async def test_without_a_lease_all_that_is_known_is_looked_at(
        self, open_store: OpenStore, clock: MovableClock
    ) -> None:
        store = await open_store(node_lease_ms=LEASE_MS)
        tallies = Tallies(store)
        await tallies.ask("a", Add, "me", 1)
        run_out(store, clock, tallies)
        assert [thing.name.id for thing in await tallies.runtime.look_at_all("default")] == ["a"]

    async def test_without_a_lease_what_is_not_known_is_not_left_out_without_a_word(
        self, open_store: OpenStore, clock: MovableClock
    ) -> None:
        store = await open_store(node_lease_ms=LEASE_MS)
        await Tallies(store).ask("a", Add, "me", 1)
        tallies = Tallies(store)
        run_out(store, clock, tallies)
        with pytest.raises(KafkaError) as refused:
            await tallies.runtime.look_at_all("default")
        assert refused.value.code == ErrorCode.NOT_COORDINATOR

    async def test_without_a_lease_what_a_store_that_went_back_lost_is_kept(
        self, open_store: OpenStore, clock: MovableClock, valkey: Valkey
    ) -> None:
        store = await open_store(node_lease_ms=LEASE_MS)
        tallies = Tallies(store)
        before = valkey.checkpoint()
        await tallies.ask("a", Add, "me", 1)
        generation = store.link.generation
        valkey.go_back_to(before)
        await until(lambda: store.link.generation > generation and is_up(store))
        run_out(store, clock, tallies)
        assert await tallies.ask("a", Read) == NOT_OURS
        await store.leases.wait_up(20)
        await store.nodes.renew()
        assert await tallies.ask("a", Read) == 1

    async def test_what_belongs_to_another_node_is_refused_and_let_go(self, open_store: OpenStore) -> None:
        first = await open_store()
        tallies = Tallies(first)
        names = [f"tally-{number}" for number in range(16)]
        for name in names:
            await tallies.ask(name, Add, "me", 1)
        held = {name: tallies.ask(name, Wait) for name in names}
        second = await open_store()
        await first.nodes.refresh()
        theirs = [name for name in names if not tallies.runtime.is_mine(Name("default", name))]
        assert theirs, "one of sixteen belongs to the second node, all but surely"
        upkeep = asyncio.create_task(OwnedUpkeep(tallies.runtime).run())
        try:
            assert {await held[name] for name in theirs} == {"moved"}
        finally:
            upkeep.cancel()
        assert await tallies.ask(theirs[0], Read) == NOT_OURS
        with pytest.raises(KafkaError):
            await tallies.runtime.look(Name("default", theirs[0]))
        assert await Tallies(second).ask(theirs[0], Read) == 1
        assert not [name for name in names if name not in theirs and held[name].done()]

    async def test_one_that_is_let_go_while_it_is_being_stored_ends_in_order(
        self, tallies: Tallies, valkey: Valkey
    ) -> None:
        await tallies.ask("a", Add, "me", 1)
        held = tallies.ask("a", Wait)
        valkey.pause()
        stored = tallies.ask("a", Add, "me", 1)
        waiting = tallies.ask("a", Read)
        (thing,) = tallies.runtime.things.values()
        thing.release()
        assert not stored.done()
        valkey.resume()
        assert (await stored, await held) == (2, 2)
        assert await waiting == 2, "it was looked up again, since it is still this node's"

    @pytest.mark.parametrize("turns", [0, 1, 2], ids=["not begun", "begun", "being stored"])
    async def test_whoever_waits_when_the_node_stops_is_refused(
        self, tallies: Tallies, store: Store, turns: int
    ) -> None:
        await tallies.ask("a", Add, "me", 1)
        asked = [tallies.ask("a", Add, "me", 1) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        tallies.runtime.close()
        await store._end_tasks()
        async with asyncio.timeout(5):
            assert [await one for one in asked] == [NOT_OURS] * 3


class TestTimers:
    async def test_a_timer_is_decided_and_stored_like_a_request(self, tallies: Tallies, valkey: Valkey) -> None:
        await tallies.ask("a", Add, "me", 1)
        (thing,) = tallies.runtime.things.values()
        tallies.clock_ms += IDLE_MS
        thing.ring_now()
        await until(lambda: not document(valkey))
        assert await tallies.ask("a", Read) is None

    async def test_a_timer_that_was_renewed_does_not_fire(self, tallies: Tallies, valkey: Valkey) -> None:
        await tallies.ask("a", Add, "me", 1)
        (thing,) = tallies.runtime.things.values()
        tallies.clock_ms += IDLE_MS - 1
        await tallies.ask("a", Add, "me", 1)
        tallies.clock_ms += 1
        thing.ring_now()
        assert await tallies.ask("a", Read) == 2

    async def test_timers_that_ring_while_something_is_stored_wait_as_one_step(
        self, tallies: Tallies, valkey: Valkey
    ) -> None:
        await tallies.ask("a", Add, "me", 1)
        (thing,) = tallies.runtime.things.values()
        tallies.clock_ms += IDLE_MS - 1
        valkey.pause()
        stored = asyncio.ensure_future(tallies.ask("a", Add, "me", 1))
        await asyncio.sleep(0)
        tallies.clock_ms += 1
        for _ in range(3):
            thing.ring_now()
        assert thing.has_fired
        valkey.resume()
        assert await stored == 2
        assert await tallies.ask("a", Read) == 2, "the write before renewed it"
        assert not thing.has_fired

    async def test_after_a_stall_deadlines_start_anew(self, tallies: Tallies) -> None:
        await tallies.ask("a", Add, "me", 1)
        (thing,) = tallies.runtime.things.values()
        tallies.clock_ms += IDLE_MS + 5_000
        thing.ring_now(late_ms=5_000)
        assert await tallies.ask("a", Read) == 1

    async def test_a_timer_that_could_not_be_stored_is_due_again(
        self, open_store: OpenStore, proxy: Proxy, valkey: Valkey
    ) -> None:
        store = await open_store(via=proxy)
        tallies = Tallies(store)
        await tallies.ask("a", Add, "me", 1)
        await cut_off(store, proxy)
        (thing,) = tallies.runtime.things.values()
        tallies.clock_ms += IDLE_MS
        thing.ring_now()
        assert await tallies.ask("a", Read) == 1
        proxy.is_open = True
        await until(lambda: not document(valkey))

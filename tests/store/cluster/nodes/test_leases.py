"""Leases: who may take one over, who counts as alive after an outage, and who is found dead."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from headrace.store.cluster.nodes.endpoints import pack_registration
from headrace.store.cluster.nodes.lease_scripts import LEASE_SOURCES
from headrace.store.cluster.nodes.leases import renewal_timeout_ms
from headrace.store.cluster.nodes.nodes import ANY_ID, NodeIdTaken
from headrace.store.options import StoreOptions
from headrace.store.organisation import Organisation
from headrace.store.redis.errors import StoreError
from headrace.store.store import Store
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.produced import cut_off, is_up, new_servers, until
from tests.store.proxy import Fate, Proxy
from tests.store.servers import Valkey

LEASE_MS = 60_000
"""Nothing expires or is renewed by itself while a test runs: the clock is the test's."""


async def die(store: Store) -> None:
    """No more renewals: what a killed process leaves in the store stays there."""
    await store.leases.close()


def ids(store: Store) -> list[int]:
    return [node.id for node in store.nodes.live]


def begin_outage(store: Store, clock: MovableClock) -> None:
    """A renewal is sent that is never answered."""
    store.nodes.outages.ask(clock.monotonic_s())


async def pass_a_lease(clock: MovableClock, *stores: Store) -> None:
    """Later, with all leases renewed: whoever starts as the first one takes its row for lost until then."""
    for _ in range(2):
        clock.advance(LEASE_MS // 2)
        for store in stores:
            await store.nodes.renew()


async def refreshed(store: Store) -> list[int]:
    await store.nodes.refresh()
    return ids(store)


async def test_a_broker_on_another_machine_does_not_take_a_lease_over_although_it_has_the_same_address(
    valkey: Valkey, open_store: OpenStore
) -> None:
    """Two containers that both say that they are 127.0.0.1:9092."""
    first = await open_store(node_id=0)
    row = msgspec.structs.replace(first.nodes.seen[0].row, machine="another")
    valkey.ask("HSET", first.keys.nodes, 0, pack_registration(row))
    with pytest.raises(NodeIdTaken, match="node id 0 is in use"):
        await open_store(node_id=0)


async def test_a_lease_that_nobody_renews_is_waited_for(open_store: OpenStore) -> None:
    """The machine of node 0 vanished, and another one starts in its place."""
    first = await open_store(node_id=0, node_lease_ms=1_500)
    await die(first)
    again = await open_store(node_id=0, port=9999)
    assert again.nodes.lease_is_valid


async def test_a_node_that_is_starting_is_not_named_until_it_serves(open_store: OpenStore) -> None:
    first = await open_store()
    second = await open_store()
    await until(lambda: ids(first) == [0, 1])
    await second.nodes.claim("starting")
    assert await refreshed(first) == [0]
    await second.serve()
    await until(lambda: ids(first) == [0, 1])


async def test_after_an_outage_whoever_was_alive_counts_as_alive_for_one_lease(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    """The first node back must not take everything: the others claim their leases again in a moment."""
    stores = [await open_store(node_lease_ms=LEASE_MS) for _ in range(3)]
    first = stores[0]
    await until(lambda: ids(first) == [0, 1, 2])
    valkey.ask("DEL", *(first.keys.node(number) for number in range(3)))
    begin_outage(first, clock)
    clock.advance(LEASE_MS)
    await first.nodes.renew()
    assert ids(first) == [0, 1, 2]
    await stores[1].nodes.renew()
    clock.advance(LEASE_MS)
    assert await refreshed(first) == [0, 1]


async def test_after_an_outage_the_first_that_is_back_is_not_the_only_one_to_the_others(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    """It says that it is back before they have claimed their own leases, which the next outage may keep them from."""
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await until(lambda: ids(first) == ids(second) == [0, 1])
    valkey.ask("DEL", *(first.keys.node(number) for number in range(2)))
    for store in (first, second):
        begin_outage(store, clock)
    clock.advance(LEASE_MS)
    await second.nodes.renew()
    await first.nodes.look_again()
    assert ids(first) == ids(second) == [0, 1]
    await first.nodes.renew()
    assert ids(first) == [0, 1]


async def test_after_an_outage_a_node_whose_lease_outlived_it_waits_for_those_whose_did_not(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    """The second was about to renew its lease when the store fell silent: it ran out first, and nobody died."""
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await until(lambda: ids(first) == ids(second) == [0, 1])
    begin_outage(first, clock)
    clock.advance(LEASE_MS * 3 // 4)
    valkey.ask("DEL", second.keys.node(1))
    await first.nodes.look_again()
    assert ids(first) == [0, 1]
    await first.nodes.renew()
    assert ids(first) == [0, 1]
    await second.nodes.renew()
    clock.advance(LEASE_MS)
    assert await refreshed(first) == [0, 1]


async def test_after_an_outage_a_node_that_left_in_order_or_was_found_dead_is_not_waited_for(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    stores = [await open_store(node_lease_ms=LEASE_MS) for _ in range(4)]
    first = stores[0]
    await until(lambda: ids(first) == [0, 1, 2, 3])
    seen = {one.row.node.id: one.row for one in first.nodes.seen}
    await stores[1].leases.drop(seen[1])
    valkey.ask("DEL", *(first.keys.node(number) for number in range(4)))
    assert await stores[3].leases.depose(seen[2])
    begin_outage(first, clock)
    clock.advance(LEASE_MS)
    await first.nodes.renew()
    assert ids(first) == [0, 3]


async def test_after_an_outage_that_cost_the_store_its_data_all_that_were_alive_are_waited_for(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    stores = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    first = stores[0]
    await until(lambda: ids(first) == [0, 1])
    valkey.ask("FLUSHALL")
    begin_outage(first, clock)
    clock.advance(LEASE_MS)
    await first.nodes.renew()
    assert ids(first) == [0, 1]


@pytest.mark.parametrize("ended", ["dead", "left"])
async def test_beside_an_older_store_nodes_are_waited_for_whose_earlier_processes_ended_there(
    ended: str, valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    """Their present processes have acknowledged what that store lacks."""
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await until(lambda: ids(first) == [0, 1])
    row = first.nodes.seen[1].row
    if ended == "dead":
        assert await first.leases.depose(row)
    else:
        await second.leases.drop(row)
    assert await refreshed(first) == [0]
    checkpoint = valkey.checkpoint()
    third = await open_store(node_id=1, node_lease_ms=LEASE_MS)
    await until(lambda: ids(first) == [0, 1])
    await pass_a_lease(clock, first, third)
    await third.leases.close()
    async with new_servers(first):
        valkey.go_back_to(checkpoint)
    await first.leases.wait_up(20)
    await first.nodes.renew()
    assert ids(first) == [0, 1]
    clock.advance(LEASE_MS)
    await first.nodes.renew()
    assert ids(first) == [0]


async def test_a_node_that_is_back_on_another_server_and_leaves_in_order_is_not_waited_for(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await until(lambda: ids(first) == [0, 1])
    await pass_a_lease(clock, first, second)
    async with new_servers(first, second):
        valkey.go_back_to(valkey.checkpoint())
    await first.leases.wait_up(20)
    await first.nodes.renew()
    await first.nodes.refresh()
    (row,) = (one.row for one in first.nodes.seen if one.row.node.id == 1)
    await second.leases.drop(row)
    assert await refreshed(first) == [0]


async def test_a_node_that_looks_before_it_has_put_its_own_row_back_waits_for_all_that_were_alive(
    valkey: Valkey, open_store: OpenStore
) -> None:
    """The store came back empty, and one of three nodes was the first to register again."""
    nothing = valkey.checkpoint()
    first, second, third = [await open_store(node_lease_ms=LEASE_MS) for _ in range(3)]
    await until(lambda: ids(first) == ids(second) == ids(third) == [0, 1, 2])
    async with new_servers(first, second, third):
        valkey.go_back_to(nothing)
    for store in (first, second, third):
        await store.leases.wait_up(20)
    await first.nodes.renew()
    for store in (second, third, first):
        assert await refreshed(store) == [0, 1, 2]
    await second.nodes.renew()
    await first.nodes.renew()
    assert await refreshed(first) == [0, 1, 2]


async def test_a_node_that_overslept_while_the_store_went_back_lets_the_others_restore_it_first(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await until(lambda: ids(first) == ids(second) == [0, 1])
    checkpoint = valkey.checkpoint()
    async with new_servers(first, second):
        valkey.go_back_to(checkpoint)
    for store in (first, second):
        await store.leases.wait_up(20)
    valkey.ask("DEL", first.keys.node(0))  # it ran out, and the other one took over
    is_restored = [False]
    second.nodes.restored.checks.append(lambda: is_restored[0])
    for _ in range(4):
        clock.advance(LEASE_MS // 4)
        await second.nodes.renew()
    assert first.nodes.has_overslept
    await first.nodes.renew()
    assert ids(first) == [1]
    await first.nodes.renew()
    assert ids(first) == [1]
    is_restored[0] = True
    await second.nodes.renew()
    await first.nodes.renew()
    assert ids(first) == [0, 1]
    assert await refreshed(second) == [0, 1]


async def test_nodes_that_overslept_together_while_the_store_was_emptied_go_on_with_what_each_has(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    nothing = valkey.checkpoint()
    stores = [await open_store(node_lease_ms=LEASE_MS) for _ in range(3)]
    await until(lambda: all(ids(store) == [0, 1, 2] for store in stores))
    led_by_others: list[list[int]] = []
    for store in stores:
        store.nodes.restored.checks.append(lambda: False)
        store.nodes.on_change.append(lambda store=store: led_by_others.append(ids(store)))  # type: ignore[misc]
    async with new_servers(*stores):
        valkey.go_back_to(nothing)
    for store in stores:
        await store.leases.wait_up(20)
    clock.advance(LEASE_MS)
    for _ in range(8):
        for store in stores:
            await store.nodes.renew()
        clock.advance(LEASE_MS // 4)
    assert all(store.nodes.lease_is_valid for store in stores)
    assert [await refreshed(store) for store in stores] == [[0, 1, 2]] * 3
    assert not led_by_others


async def test_a_process_that_was_stopped_past_its_lease_does_not_wait_for_the_dead(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    """Its own sleep is no outage: what the store says now holds."""
    stores = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    first = stores[0]
    await until(lambda: ids(first) == [0, 1])
    valkey.ask("DEL", *(first.keys.node(number) for number in range(2)))
    clock.advance(2 * LEASE_MS)
    assert first.nodes.has_overslept
    await first.nodes.renew()
    assert ids(first) == [0]
    assert not first.nodes.has_overslept


async def test_a_node_that_cannot_renew_its_lease_has_not_overslept(
    open_store: OpenStore, proxy: Proxy, clock: MovableClock
) -> None:
    """However slowly the attempts fail: what is on other servers goes on."""
    store = await open_store(via=proxy, node_lease_ms=LEASE_MS)
    await cut_off(store, proxy)
    for _ in range(20):
        clock.advance(LEASE_MS // 3)
        store.nodes.note_awake()
    assert (store.nodes.lease_is_valid, store.nodes.has_overslept) == (False, False)
    with pytest.raises(StoreError):
        await store.nodes.renew()
    assert not store.nodes.has_overslept


async def test_a_node_goes_on_while_the_server_of_the_leases_does_not_answer(
    open_store: OpenStore, proxy: Proxy, clock: MovableClock
) -> None:
    """With the nodes that it knew: nobody takes over. But not if it was stopped itself, or leaves."""
    store = await open_store(via=proxy, node_lease_ms=LEASE_MS)
    await cut_off(store, proxy)
    with pytest.raises(StoreError):
        await store.nodes.renew()
    for _ in range(4):
        clock.advance(LEASE_MS // 3)
        store.nodes.note_awake()
    assert (store.nodes.lease_is_valid, store.nodes.goes_on) == (False, True)
    clock.advance(LEASE_MS + 1)
    assert (store.nodes.has_overslept, store.nodes.goes_on) == (True, False)
    proxy.is_open = True
    await store.leases.wait_up(20)
    await store.nodes.renew()
    assert store.nodes.goes_on
    await store.nodes.release()
    assert not store.nodes.goes_on


async def test_a_node_does_not_go_on_once_another_process_has_its_lease(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    store = await open_store(node_lease_ms=LEASE_MS)
    row = msgspec.structs.replace(store.nodes.seen[0].row, token="another", machine="another")
    valkey.ask("HSET", store.keys.nodes, 0, pack_registration(row))
    valkey.ask("SET", store.keys.node(0), "another")
    renewing = asyncio.create_task(store.nodes.renew())
    await until(lambda: store.nodes.without_lease.is_met)
    for _ in range(4):
        clock.advance(LEASE_MS // 3)
        store.nodes.note_awake()
    assert (store.nodes.has_overslept, store.nodes.goes_on) == (False, False)
    renewing.cancel()


async def test_a_node_to_which_alone_the_leases_were_silent_may_have_been_replaced(
    valkey: Valkey, open_store: OpenStore, proxy: Proxy, clock: MovableClock
) -> None:
    store = await open_store(via=proxy, node_lease_ms=LEASE_MS)
    other = await open_store(node_lease_ms=LEASE_MS)
    await store.nodes.refresh()
    term = store.nodes.term
    await cut_off(store, proxy)
    with pytest.raises(StoreError):
        await store.nodes.renew()
    for _ in range(4):
        clock.advance(LEASE_MS // 3)
        store.nodes.note_awake()
        await other.nodes.renew()
    valkey.ask("DEL", store.keys.node(0))
    assert await refreshed(other) == [1]
    proxy.is_open = True
    await store.leases.wait_up(20)
    await store.nodes.renew()
    assert store.nodes.was_replaced_since(term)


async def test_a_node_that_stands_still_for_less_than_a_lease_in_an_outage_has_not_overslept(
    open_store: OpenStore, proxy: Proxy, clock: MovableClock
) -> None:
    """On a busy machine, after its lease ran out: others wait for a whole one after the outage."""
    store = await open_store(via=proxy, node_lease_ms=LEASE_MS)
    await cut_off(store, proxy)
    for _ in range(4):
        clock.advance(LEASE_MS // 3)
        store.nodes.note_awake()
    assert not store.nodes.lease_is_valid
    clock.advance(LEASE_MS * 3 // 4)
    store.nodes.note_awake()
    assert (store.nodes.has_overslept, store.nodes.leads_all_now) == (False, True)
    clock.advance(LEASE_MS + 1)
    store.nodes.note_awake()
    assert (store.nodes.has_overslept, store.nodes.leads_all_now) == (True, False)


async def test_a_node_that_has_overslept_does_not_serve_until_it_has_its_lease(
    open_store: OpenStore, proxy: Proxy, clock: MovableClock
) -> None:
    store = await open_store(via=proxy, node_lease_ms=LEASE_MS)
    await cut_off(store, proxy)
    clock.advance(LEASE_MS)
    store.nodes.note_awake()
    assert store.nodes.has_overslept
    with pytest.raises(StoreError):
        await store.nodes.renew()
    assert store.nodes.has_overslept
    proxy.is_open = True
    await until(lambda: is_up(store))
    await store.leases.wait_up(20)
    await store.nodes.renew()
    assert not store.nodes.has_overslept


async def test_a_dead_process_is_deposed_by_its_token_and_no_later_one_is(
    valkey: Valkey, open_store: OpenStore
) -> None:
    first = await open_store(node_lease_ms=LEASE_MS)
    second = await open_store(node_id=1, node_lease_ms=LEASE_MS)
    await until(lambda: ids(first) == [0, 1])
    dead = next(one.row for one in first.nodes.seen if one.row.node.id == 1)
    await die(second)
    assert await first.nodes.depose(dead)
    assert ids(first) == [0]
    again = await open_store(node_id=1, node_lease_ms=LEASE_MS)
    await until(lambda: ids(first) == [0, 1])
    assert not await first.nodes.depose(dead)
    assert again.nodes.lease_is_valid
    assert valkey.ask("EXISTS", first.keys.node(1)) == 1


async def test_a_node_that_was_deposed_and_lives_claims_its_lease_again_and_the_others_hear_of_it(
    open_store: OpenStore,
) -> None:
    first = await open_store(node_lease_ms=LEASE_MS)
    second = await open_store(node_lease_ms=LEASE_MS)
    await until(lambda: ids(first) == [0, 1])
    assert await first.nodes.depose(next(one.row for one in first.nodes.seen if one.row.node.id == 1))
    assert ids(first) == [0]
    await second.nodes.renew()
    await until(lambda: ids(first) == [0, 1])


async def test_renewals_do_not_wait_behind_other_commands(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(node_lease_ms=LEASE_MS)
    blocked = asyncio.ensure_future(store.link.call("BLPOP", "nothing", 0))
    also_blocked = asyncio.ensure_future(store.reads.call("BLPOP", "nothing", 0))
    await store.nodes.renew()
    assert store.nodes.lease_is_valid
    valkey.ask("RPUSH", "nothing", 1, 2)
    await asyncio.gather(blocked, also_blocked)


@pytest.mark.parametrize("fate", ["swallow", "lose reply"])
@pytest.mark.parametrize("node_id", [0, ANY_ID])
async def test_a_claim_that_is_not_answered_in_time_does_not_keep_a_node_from_starting(
    open_store: OpenStore, proxy: Proxy, fate: Fate, node_id: int
) -> None:
    trap = proxy.trap(fate, lambda sent: LEASE_SOURCES["claim_lease"].encode() in sent)
    store = await open_store(node_id=node_id, port=9092, via=proxy, timeout_ms=300)
    assert trap.sprung.is_set()
    assert (store.nodes.me.id, ids(store)) == (0, [0])


@pytest.mark.parametrize(("lease_ms", "timeout_ms"), [(500, 1_000), (3_000, 1_000), (9_000, 3_000), (60_000, 5_000)])
def test_a_slow_answer_is_waited_for_well_within_a_lease_but_for_a_second_at_least(
    lease_ms: int, timeout_ms: int
) -> None:
    assert renewal_timeout_ms(StoreOptions(node_lease_ms=lease_ms)) == timeout_ms


async def test_the_lease_is_kept_while_a_node_starts(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading many topics may take longer than a lease."""
    other = await open_store(node_id=1)
    load, has_read = Organisation.load, asyncio.Event()

    async def read_for_long(self: Organisation) -> None:
        await has_read.wait()
        await load(self)

    monkeypatch.setattr(Organisation, "load", read_for_long)
    starting = asyncio.ensure_future(open_store(node_id=0, node_lease_ms=2_000))
    left_ms = [0]

    async def is_renewed() -> bool:
        left_ms.append(await other.leases.remaining_ms(0))
        return 0 < left_ms[-2] < left_ms[-1]

    await until(is_renewed)
    has_read.set()
    await starting


async def test_requests_to_a_node_that_hangs_are_on_their_way_until_it_is_well_again_for_a_lease(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock
) -> None:
    lease_ms = LEASE_MS // 4
    first, second = [await open_store(node_lease_ms=lease_ms) for _ in range(2)]
    await until(lambda: ids(first) == [0, 1])
    valkey.ask("DEL", second.keys.node(1))
    assert await refreshed(first) == [0]
    is_over = first.nodes.after_requests()
    clock.advance(lease_ms)
    await first.nodes.refresh()
    assert not is_over()
    await second.nodes.renew()
    await first.nodes.refresh()
    assert not is_over()
    clock.advance(lease_ms)
    await first.nodes.refresh()
    assert is_over()

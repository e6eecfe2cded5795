"""A node and the store that die together: what was given out and lost is never given out again, in either format."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.partition import origin
from headrace.store.partition.base import Partition
from headrace.store.redis.address import parse_address
from headrace.store.redis.copied_writes import NotConfirmed
from headrace.store.redis.errors import OutcomeUnknown
from headrace.store.redis.link import Argument
from headrace.store.store import Store
from headrace.wire.batch import read_header
from headrace.wire.errors import ErrorCode, KafkaError
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore, StartValkey
from tests.store.partition.test_contract import all_of, numbers, on, produce_each, read_from
from tests.store.partition.test_losses import go_back, made_for
from tests.store.produced import cut_off, let_a_lease_pass, new_servers, produce, store_of, until, values
from tests.store.proxy import Proxy
from tests.store.servers import Valkey
from tests.stores import of_one_server


@pytest.fixture(params=[{}, {"headrace.format": "stream"}], ids=["log", "stream"])
def configs(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


@pytest.fixture
async def either(store: Store, configs: dict[str, str]) -> Partition:
    """Partition 0 of `orders`, in each format."""
    return await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)


async def crash(store: Store) -> None:
    """The node is gone without a farewell."""
    await store.leases.close()
    await store.topology.close()


async def refused_for_now(partition: Partition) -> bool:
    """A batch before it may be on its way still, refused by another node."""
    try:
        await produce(partition, b"10", producer=7, sequence=10)
    except KafkaError as error:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        return True
    return False


async def produced_once_nothing_is_on_its_way(partition: Partition) -> int:
    await until(partition.nodes.after_requests())
    return (await produce(partition, b"10", producer=7, sequence=10)).base_offset


async def test_offsets_that_were_lost_with_the_node_are_not_given_out_again(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    stay = await produce_each(either, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(either, 5, 10)
    seen = either.end
    await crash(store_of(either))
    valkey.go_back_to(checkpoint)
    again = await on(await open_store(node_id=0, node_lease_ms=2_000), either)
    assert again.leader_epoch == 1
    assert again.end >= seen
    # The producer was told of sequence 9, so it goes on with 10; what it sends twice is still known.
    assert (await produce(again, b"4", producer=7, sequence=4)).base_offset == stay[-1]
    assert await refused_for_now(again)
    assert await produced_once_nothing_is_on_its_way(again) >= seen
    with pytest.raises(KafkaError) as raised:
        await produce(again, b"12", producer=7, sequence=12)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # A consumer that had read all of it finds the next record, and one that asks learns where the old epoch ended.
    assert values(await read_from(again, seen)) == [b"10"]
    assert again.epoch_end(0)[1] >= seen
    other = await on(await open_store(), either)
    assert values(await all_of(other)) == [*numbers(0, 5), b"10"]
    assert (other.leader_epoch, other.epoch_end(0)) == (1, again.epoch_end(0))
    assert again.context.catalogue.by_name["orders"].epochs == {0: 1}


async def test_a_second_start_on_the_same_server_changes_nothing_more(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    await produce_each(either, 0, 5)
    await crash(store_of(either))
    valkey.restart()
    once = await on(await open_store(node_id=0), either)
    end = once.end
    await crash(store_of(once))
    again = await on(await open_store(node_id=0), either)
    assert (again.leader_epoch, again.end) == (1, end)


async def test_no_offsets_are_left_out_while_replicas_that_have_to_know_of_it_are_missing(
    valkey: Valkey, either: Partition, clock: MovableClock
) -> None:
    await produce_each(either, 0, 5)
    await crash(store_of(either))
    valkey.restart()
    store = Store(parse_address(valkey.url), node_at(0, "127.0.0.1", 9092), StoreOptions(), clock)
    store.topology.copied.wanted = lambda: 1
    try:
        await store.start()
        for _ in range(3):
            with pytest.raises(KafkaError):
                await on(store, either)
        store.topology.copied.wanted = lambda: 0
        again = await on(store, either)
        assert (again.leader_epoch, [gap.start for gap in again.gaps]) == (1, [either.end])
    finally:
        await store.close()


@pytest.mark.parametrize("fails", ["catalogue", "take up"])
async def test_offsets_are_left_out_once_however_often_it_fails(
    valkey: Valkey, either: Partition, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    await produce_each(either, 0, 5)
    await crash(store_of(either))
    valkey.restart()
    store = Store(parse_address(valkey.url), node_at(0, "127.0.0.1", 9092), StoreOptions(), clock)
    slot, run = store.topology.slot_of(either.keys.meta), store.topology.slot_of(either.keys.meta).scripts.run

    async def unconfirmed(*_: object) -> None:
        raise NotConfirmed

    async def cut_off(name: str, *rest: Any) -> Any:
        if name == "take_up":
            raise OutcomeUnknown("the connection broke")
        return await run(name, *rest)

    try:
        with monkeypatch.context() as patched:
            if fails == "catalogue":
                patched.setattr(store.topology.copied, "confirm", unconfirmed)
            else:
                patched.setattr(slot.scripts, "run", cut_off)
            await store.start()
            for _ in range(3):
                with contextlib.suppress(KafkaError):
                    await on(store, either)
        again = await on(store, either)
        assert (again.leader_epoch, len(again.gaps)) == (1, 1)
        assert again.end == again.gaps[0].end
        assert again.current_topic.epochs == {0: 1}
        await produce(again, b"5")
        assert values(await all_of(again)) == numbers(0, 6)
    finally:
        await store.close()


async def test_offsets_are_left_out_again_for_the_next_loss(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    await produce_each(either, 0, 5)
    await crash(store_of(either))
    valkey.restart()
    once = await on(await open_store(node_id=0), either)
    checkpoint = valkey.checkpoint()
    await produce(once, b"lost")
    seen = once.end
    await crash(store_of(once))
    valkey.go_back_to(checkpoint)
    again = await on(await open_store(node_id=0), either)
    assert again.leader_epoch == 2
    assert again.end >= seen


async def test_a_node_that_is_killed_alone_changes_nothing(either: Partition, open_store: OpenStore) -> None:
    await produce_each(either, 0, 5)
    await crash(store_of(either))
    again = await on(await open_store(node_id=0), either)
    assert (again.leader_epoch, again.end) == (0, either.end)


async def test_nor_does_a_server_that_is_killed_alone(valkey: Valkey, either: Partition, open_store: OpenStore) -> None:
    await produce_each(either, 0, 5)
    timeline, end = either.link.timeline, either.end
    valkey.restart()
    await until(lambda: either.link.timeline > timeline and either.link.is_up)
    await either.confirm()
    assert (either.leader_epoch, either.end) == (0, end)
    await crash(store_of(either))
    again = await on(await open_store(node_id=0), either)
    assert (again.leader_epoch, again.end) == (0, end)


@of_one_server
async def test_data_that_is_moved_to_another_server_after_a_stop_in_order_goes_on_as_it_was(
    valkey: Valkey, either: Partition, open_store: OpenStore, start_valkey: StartValkey
) -> None:
    offsets = await produce_each(either, 0, 5)
    await store_of(either).close()
    elsewhere = start_valkey()
    elsewhere.go_back_to(valkey.checkpoint())
    again = await on(await open_store(node_id=0, url=elsewhere.url), either)
    assert (again.leader_epoch, again.end) == (0, either.end)
    await produce_each(again, 5, 10)
    assert values(await read_from(again, offsets[0])) == numbers(0, 10)
    # What holds for the next stop is what it says, not what the last one said.
    checkpoint = elsewhere.checkpoint()
    await produce_each(again, 10, 15)
    seen = again.end
    await crash(store_of(again))
    elsewhere.go_back_to(checkpoint)
    once_more = await on(await open_store(node_id=0, url=elsewhere.url), either)
    assert once_more.leader_epoch == 1
    assert once_more.end >= seen


async def test_nodes_that_leave_one_after_the_other_leave_every_partition_in_order(
    valkey: Valkey, store: Store, open_store: OpenStore, configs: dict[str, str]
) -> None:
    other = await open_store()
    for one in (store, other):
        await one.nodes.refresh()
    topic = await store.default.catalogue.create("orders", 8, configs)
    await other.default.catalogue.refresh()
    ends = []
    for number in range(8):
        leader = store if store.nodes.leader(topic, number) == store.nodes.me else other
        partition = await leader.default.partition(topic, number)
        await produce_each(partition, 0, 3)
        ends.append(partition.end)
    await other.close()
    await store.close()
    valkey.restart()
    again = await open_store(node_id=0)
    found = [await again.default.partition(topic, number) for number in range(8)]
    assert [(one.leader_epoch, one.end) for one in found] == [(0, end) for end in ends]


async def test_a_node_that_did_not_look_for_long_knows_that_a_later_leader_died_with_the_store(
    valkey: Valkey, clock: MovableClock, store: Store, open_store: OpenStore, configs: dict[str, str]
) -> None:
    either = await made_for(1, open_store, store, configs)
    await produce_each(either, 0, 5)
    other = await on(await open_store(node_id=1), either)
    await store.nodes.refresh()
    await produce_each(other, 5, 7)
    checkpoint = valkey.checkpoint()
    await produce_each(other, 7, 12)
    seen = other.end
    await crash(store_of(other))
    await go_back(valkey, checkpoint, store)
    await store.nodes.refresh()
    valkey.ask("DEL", store.keys.node(1))  # its lease runs out, and nobody waits for it any more
    while not origin.leads(either):
        await let_a_lease_pass(store, clock)
    assert (await produce(either, b"next")).base_offset >= seen
    assert either.leader_epoch == 1
    assert values(await all_of(either)) == [*numbers(0, 7), b"next"]


@pytest.fixture
async def other_store(store: Store, open_store: OpenStore) -> Store:
    other = await open_store(node_id=1)
    await store.nodes.refresh()
    return other


@pytest.fixture
async def led(store: Store, other_store: Store, configs: dict[str, str]) -> Partition:
    """A partition that node 0 leads beside node 1."""
    topic = await store.default.catalogue.create("orders", 16, configs)
    number = next(number for number in range(16) if store.nodes.leads(topic, number))
    return await store.default.partition(topic, number)


async def test_a_node_that_was_replaced_for_a_moment_leaves_out_what_the_store_forgot_of_it(
    valkey: Valkey, store: Store, led: Partition, other_store: Store
) -> None:
    """Another node led, and the store went back so far that it knows nothing of that."""
    await produce_each(led, 0, 5)
    checkpoint = valkey.checkpoint()
    valkey.ask("DEL", store.keys.node(0))
    await other_store.nodes.refresh()
    other = await on(other_store, led)
    await produce_each(other, 5, 10)
    await store.nodes.renew()
    await go_back(valkey, checkpoint, store, other_store)
    assert (await produce(led, b"next")).base_offset >= other.end
    assert led.leader_epoch == 1
    assert values(await all_of(led)) == [*numbers(0, 5), b"next"]


async def test_a_node_that_was_replaced_and_has_looked_since_leaves_out_nothing(
    valkey: Valkey, clock: MovableClock, store: Store, led: Partition
) -> None:
    await produce_each(led, 0, 5)
    valkey.ask("DEL", store.keys.node(0))
    for _ in range(3):  # after a lease every other node knows that it is back
        await store.nodes.renew()
        clock.advance(store.options.node_lease_ms * 2 // 3)
    await produce_each(led, 5, 10)
    await go_back(valkey, valkey.checkpoint(), store)
    await produce(led, b"10")
    assert (led.leader_epoch, values(await all_of(led))) == (0, numbers(0, 11))


async def test_producers_of_a_node_go_on_though_another_one_led_without_what_they_had_sent(
    valkey: Valkey, open_store: OpenStore, proxy: Proxy, configs: dict[str, str]
) -> None:
    """The other node knew that records may be lost. Whoever leads next has it from the leader epoch."""
    store = await open_store(node_id=0, via=proxy, node_lease_ms=2_000)
    either = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    await produce_each(either, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(either, 5, 10)
    async with new_servers(store):
        await cut_off(store, proxy)
        valkey.go_back_to(checkpoint)
        valkey.ask("DEL", store.keys.node(0), store.keys.nodes)
        other = await on(await open_store(node_id=1), either)
        assert other.leader_epoch == 1
        await produce(other, b"other")
        await store_of(other).close()
        proxy.is_open = True
    await store.leases.wait_up(20)
    await store.nodes.renew()

    async def goes_on() -> bool:
        return not await refused_for_now(either)

    await until(goes_on)
    assert values(await all_of(either)) == [*numbers(0, 5), b"other", b"10"]


async def test_a_log_that_was_never_written_to_begins_at_its_first_offset(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    topic = await store.default.catalogue.create("orders", 1, {})
    await crash(store)
    valkey.restart()
    again = await (await open_store(node_id=0)).default.partition(topic, 0)
    assert (again.leader_epoch, again.epoch_end(0), again.end) == (1, (0, 0), 0)
    assert (await produce(again, b"first")).base_offset == 0


async def test_partitions_that_nobody_has_used_are_left_in_order_too(
    valkey: Valkey, store: Store, open_store: OpenStore, configs: dict[str, str]
) -> None:
    topic = await store.default.catalogue.create("orders", 3, configs)
    await produce(await store.default.partition(topic, 0), b"first")
    await store.default.catalogue.add_partitions(topic, 5)
    await store.close()
    valkey.restart()
    again = await open_store(node_id=0)
    topic = again.default.catalogue.by_name["orders"]
    opened = [await again.default.partition(topic, number) for number in range(5)]
    assert [partition.leader_epoch for partition in opened] == [0] * 5


async def test_a_partition_that_another_node_uses_is_not_left_by_the_one_that_made_it(
    store: Store, open_store: OpenStore, configs: dict[str, str], valkey: Valkey
) -> None:
    topic = await store.default.catalogue.create("orders", 20, configs)
    other = await open_store(node_id=1)
    await store.nodes.refresh()
    await other.default.catalogue.refresh()
    theirs = next(n for n in range(20) if store.nodes.leader(topic, n) == other.nodes.me)
    partition = await other.default.partition(topic, theirs)
    await produce(partition, b"theirs")
    await store.close()
    assert valkey.ask("HGET", partition.keys.meta, "left") is None


async def test_a_log_of_a_version_that_noted_no_server_is_taken_up_as_it_is(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    await produce_each(either, 0, 5)
    await crash(store_of(either))
    valkey.ask("HDEL", either.keys.meta, "server")
    valkey.restart()
    again = await on(await open_store(node_id=0), either)
    assert (again.leader_epoch, again.end) == (0, either.end)
    assert valkey.ask("HGET", either.keys.meta, "server").decode().endswith(store_of(again).name)


async def test_an_entry_of_redis_code_that_comes_meanwhile_is_read(
    valkey: Valkey, store: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await store.default.catalogue.create("orders", 1, {"headrace.format": "stream"})
    partition = await store.default.partition(topic, 0)
    await produce_each(partition, 0, 5)
    await crash(store)
    valkey.restart()
    again = await open_store(node_id=0)
    link = again.topology.slot_of(partition.keys.log).link
    call = link.call

    async def with_an_entry_before_the_time(*words: Argument) -> Any:
        if words == ("TIME",):
            last_ms = int(valkey.stream(partition.keys.log)[-1][0].split(b"-")[0])
            valkey.ask("XADD", partition.keys.log, f"{last_ms + 1}-0", "value", "theirs")
        return await call(*words)

    monkeypatch.setattr(link, "call", with_an_entry_before_the_time)
    found = await again.default.partition(topic, 0)
    assert found.leader_epoch == 1
    await produce(found, b"ours")
    for one in (found, await on(await open_store(), found)):
        assert values(await all_of(one)) == [*numbers(0, 5), b"theirs", b"ours"]
        assert one.index.entries == 7


async def test_a_reader_gets_to_the_end_although_its_last_offsets_were_lost(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    stay = await produce_each(either, 0, 5)
    await crash(store_of(either))
    valkey.restart()
    again = await on(await open_store(node_id=0), either)
    assert again.end > stay[-1] + 1
    (marker,) = (await again.read(stay[-1] + 1, 1 << 20, at_least_one=True)).chunks
    header = read_header(marker)
    assert (header.is_control, header.next_offset, header.leader_epoch) == (True, again.end, 1)
    assert (await again.read(again.end, 1 << 20, at_least_one=True)).chunks == []
    await produce(again, b"5")
    assert values(await all_of(again)) == numbers(0, 6), "the records behind it are read, and no marker instead"
    (next_batch,) = (await again.read(stay[-1] + 1, 1 << 20, at_least_one=True)).chunks
    assert not read_header(next_batch).is_control

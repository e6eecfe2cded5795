"""An append whose answer is lost: found by its token, or sent again under the same id; never doubled, never dropped."""

from __future__ import annotations

import asyncio

import pytest

from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from headrace.wire.errors import ErrorCode, KafkaError
from tests.store.conftest import OpenStore
from tests.store.produced import (
    assert_dense,
    log_partition,
    produce,
    same_partition,
    store_of,
    stored,
    stored_entries,
    until,
    values,
)
from tests.store.proxy import Fate, Proxy
from tests.store.servers import Valkey
from tests.stores import of_one_server


@pytest.fixture
async def partition(proxy: Proxy, open_store: OpenStore) -> LogPartition:
    """Partition 0 of `orders`, reached through the proxy."""
    store = await open_store(via=proxy)
    return await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)


async def test_an_append_that_happened_is_found_by_its_token(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    await produce(partition, b"a")
    proxy.trap("lose reply")
    assert await produce(partition, b"b", b"c") == Appended(1)
    assert await produce(partition, b"d") == Appended(3)
    assert values(stored(valkey, partition)) == [b"a", b"b", b"c", b"d"]


async def test_an_append_that_did_not_happen_is_sent_again(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    await produce(partition, b"a")
    proxy.trap("swallow")
    assert await produce(partition, b"b", b"c") == Appended(1)
    assert values(stored(valkey, partition)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("sent_bytes", [0, 1, 9, 60, 150, -4, -1])
async def test_a_connection_cut_inside_the_command_costs_nothing(
    valkey: Valkey, proxy: Proxy, partition: LogPartition, sent_bytes: int
) -> None:
    await produce(partition, b"a")
    proxy.trap("swallow", sent_bytes=sent_bytes)
    futures = [produce(partition, b"%d" % n) for n in range(5)]
    assert [(await one).base_offset for one in futures] == [1, 2, 3, 4, 5]
    assert values(stored(valkey, partition)) == [b"a", b"0", b"1", b"2", b"3", b"4"]


async def test_it_is_sent_again_under_the_same_id_with_the_same_bytes_and_token(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    seen: list[bytes] = []

    def is_the_append(data: bytes) -> bool:
        if b"XADD" in data and b"special" in data:
            seen.append(data)
            return len(seen) == 1
        return False

    proxy.trap("swallow", is_the_append)
    future = produce(partition, b"special")
    await until(lambda: len(seen) == 1)
    proxy.trap("lose reply", lambda data: is_the_append(data) or len(seen) == 2)
    assert await future == Appended(0)
    assert seen[0] == seen[1]
    assert values(stored(valkey, partition)) == [b"special"]


async def test_a_first_copy_that_arrives_late_is_not_a_second_record(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    await produce(partition, b"a")
    first = proxy.trap("hold")
    future = produce(partition, b"b")
    await first.sprung.wait()
    assert await future == Appended(1)
    await produce(partition, b"c")
    first.release.set()
    await first.arrived.wait()
    assert await produce(partition, b"d") == Appended(3)
    assert values(stored(valkey, partition)) == [b"a", b"b", b"c", b"d"]


async def test_a_first_copy_that_overtakes_the_second_is_taken_for_it(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    """The producer has no sequence numbers: only the token tells that the refused entry is in the log."""
    await produce(partition, b"a")
    first = proxy.trap("hold")
    future = produce(partition, b"b")
    await first.sprung.wait()
    second = proxy.trap("hold")
    await second.sprung.wait()
    third = proxy.trap("hold")
    await third.sprung.wait()
    first.release.set()
    await first.arrived.wait()
    assert await future == Appended(1)
    for late in (second, third):
        late.release.set()
        await late.arrived.wait()
    assert await produce(partition, b"c") == Appended(2)
    assert values(stored(valkey, partition)) == [b"a", b"b", b"c"]


async def test_a_resend_refused_because_the_first_copy_came_between_is_no_loss_and_no_double(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    """The first copy arrives after the store was read and before the second copy does."""
    await produce(partition, b"a")
    first = proxy.trap("hold")
    future = produce(partition, b"b")
    await first.sprung.wait()
    released: list[bytes] = []

    def deliver_first(data: bytes) -> bool:
        if b"XADD" in data and b":log" in data and not released:
            released.append(data)
            [entry] = [e for e in [partition.writer._flight] if e is not None]
            valkey.ask(
                "XADD", partition.keys.log, "NOMKSTREAM", f"{entry.entry.base}-1",
                "b", entry.entry.data, "w", entry.entry.token,
            )  # fmt: skip
        return False

    proxy.trap("swallow", deliver_first)
    assert await future == Appended(1)
    assert released
    assert await produce(partition, b"c") == Appended(2)
    assert values(stored(valkey, partition)) == [b"a", b"b", b"c"]


async def test_after_time_ran_out_a_batch_that_was_sent_is_unknown_and_one_that_was_not_is_refused(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    proxy.is_open = False
    proxy.trap("swallow")
    sent = produce(partition, b"sent", timeout_s=0.3)
    await asyncio.sleep(0)  # so that it is sent without the next one
    queued = produce(partition, b"queued", timeout_s=0.3)
    for future, code in ((sent, ErrorCode.REQUEST_TIMED_OUT), (queued, ErrorCode.KAFKA_STORAGE_ERROR)):
        with pytest.raises(KafkaError) as raised:
            await future
        assert raised.value.code == code
    proxy.is_open = True
    assert await produce(partition, b"next") == Appended(0)
    assert values(stored(valkey, partition)) == [b"next"]


async def test_overdue_batches_are_answered_while_the_server_hangs(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(timeout_ms=1000)
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    valkey.pause()
    started = asyncio.get_running_loop().time()
    with pytest.raises(KafkaError) as raised:
        await produce(partition, b"x", timeout_s=0.2)
    assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert asyncio.get_running_loop().time() - started < 5
    valkey.resume()
    assert (await produce(partition, b"y")).base_offset in (0, 1)
    assert values(stored(valkey, partition))[-1] == b"y"
    assert_dense(stored(valkey, partition))


async def test_a_batch_given_up_that_arrives_all_the_same_is_the_duplicate_of_its_retry(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    await produce(partition, b"a", producer=7, sequence=0)
    proxy.is_open = False
    first = proxy.trap("hold")
    future = produce(partition, b"b", producer=7, sequence=1, timeout_s=0.2)
    with pytest.raises(KafkaError):
        await future
    first.release.set()
    await first.arrived.wait()
    proxy.is_open = True
    assert await produce(partition, b"b", producer=7, sequence=1) == Appended(1, duplicate=True)
    assert values(stored(valkey, partition)) == [b"a", b"b"]


async def test_what_a_producer_sent_behind_a_batch_that_was_given_up_does_not_overtake_it(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    """A producer that is not known yet may start anywhere, so only giving up its later batches keeps the order."""
    proxy.is_open = False
    proxy.cut()
    await until(lambda: not partition.link.is_up)
    early = produce(partition, b"0", producer=7, sequence=0, timeout_s=0.2)
    later = produce(partition, b"1", producer=7, sequence=1)
    other = produce(partition, b"other", producer=8, sequence=0)
    for future in (early, later):
        with pytest.raises(KafkaError) as raised:
            await future
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    proxy.is_open = True
    assert await other == Appended(0)
    retried = [produce(partition, b"%d" % n, producer=7, sequence=n) for n in range(2)]
    assert [await one for one in retried] == [Appended(1), Appended(2)]


async def test_a_given_up_batch_in_the_queue_does_not_count_as_its_producers_last(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    await produce(partition, b"0", producer=7, sequence=0)
    valkey.pause()
    first = produce(partition, b"x")
    given_up = produce(partition, b"1", producer=7, sequence=1)
    behind = produce(partition, b"2", producer=7, sequence=2)
    given_up.cancel()
    valkey.resume()
    await first
    with pytest.raises(KafkaError) as raised:
        await behind
    assert raised.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_topic_deleted_while_the_outcome_is_unknown_answers_everybody(
    valkey: Valkey, proxy: Proxy, partition: LogPartition, open_store: OpenStore
) -> None:
    other = await open_store()
    topic = await other.default.catalogue.find("orders")
    assert topic is not None
    proxy.is_open = False
    trap = proxy.trap("swallow")
    futures = [produce(partition, b"%d" % n) for n in range(3)]
    await trap.sprung.wait()
    await other.default.catalogue.delete(topic)
    proxy.is_open = True
    answers = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 10)
    codes = [answer.code for answer in answers if isinstance(answer, KafkaError)]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3


async def test_closing_the_store_answers_everybody(proxy: Proxy, partition: LogPartition) -> None:
    proxy.is_open = False
    trap = proxy.trap("swallow")
    futures = [produce(partition, b"%d" % n) for n in range(3)]
    await trap.sprung.wait()
    await store_of(partition).close()
    answers = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 10)
    assert all(isinstance(answer, KafkaError) for answer in answers)


@pytest.mark.parametrize("idempotent", [False, True])
async def test_many_cuts_lose_and_double_nothing(
    valkey: Valkey, proxy: Proxy, partition: LogPartition, idempotent: bool
) -> None:
    fates: list[Fate] = ["lose reply", "swallow", "hold"]
    futures = []
    for n in range(36):
        if n % 4 == 0:
            trap = proxy.trap(fates[n // 4 % 3])
            trap.release.set()
        futures.append(produce(partition, b"%d" % n, producer=7 if idempotent else -1, sequence=n))
        await asyncio.sleep(0)
        if n % 4 == 3:
            await futures[-1]
    appended = [await future for future in futures]
    assert [one.base_offset for one in appended] == list(range(36))
    assert values(stored(valkey, partition)) == [b"%d" % n for n in range(36)]


async def test_nothing_is_appended_until_the_outcome_is_known(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    proxy.is_open = False
    first = proxy.trap("hold")
    future = produce(partition, b"first")
    await first.sprung.wait()
    behind = [produce(partition, b"%d" % n) for n in range(3)]
    assert stored_entries(valkey, partition) == []
    first.release.set()
    await first.arrived.wait()
    proxy.is_open = True
    assert await future == Appended(0)
    assert [(await one).base_offset for one in behind] == [1, 2, 3]


async def test_another_writer_took_the_place_of_an_append_that_was_lost(
    valkey: Valkey, proxy: Proxy, partition: LogPartition, open_store: OpenStore
) -> None:
    other = await same_partition(await open_store(), partition)
    proxy.is_open = False
    trap = proxy.trap("swallow")
    future = produce(partition, b"ours")
    await trap.sprung.wait()
    await produce(other, b"theirs")
    proxy.is_open = True
    assert await future == Appended(1)
    assert values(stored(valkey, partition)) == [b"theirs", b"ours"]


@of_one_server
async def test_an_append_that_is_found_while_all_is_loaded_again_is_not_a_second_record(
    valkey: Valkey, proxy: Proxy, partition: LogPartition
) -> None:
    """Another node noted a loss, on another server: what this one knew of the log is read anew, its append with it."""
    await produce(partition, b"a")
    lost = proxy.trap("lose reply")
    future = produce(partition, b"b")
    proxy.is_open = False
    await lost.sprung.wait()
    proxy.cut()
    assert values(stored(valkey, partition)) == [b"a", b"b"]
    valkey.ask("HSET", partition.keys.meta, "gaps", "[[0,0]]")
    valkey.kill()
    valkey.start()
    proxy.is_open = True
    assert await future == Appended(1)
    assert await produce(partition, b"c") == Appended(2)
    assert values(stored(valkey, partition)) == [b"a", b"b", b"c"]

"""Reading ahead: a consumer that reads in order finds the next records in memory, and never any that are not true."""

from __future__ import annotations

import pytest

from headrace.store.log.partition import LogPartition
from headrace.store.partition.entries import Batches
from headrace.store.store import Store
from headrace.wire.batch import end_offset
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.produced import batch, log_partition, produce, records_of, store_of, submit, until
from tests.store.servers import Valkey
from tests.stores import of_one_server

ENTRY = b"x" * 1_000
LIMIT = 3_000
"""What a reader takes at once: not quite three entries."""


async def filled(store: Store, entries: int = 40, name: str = "orders") -> LogPartition:
    """A partition whose records are in the store alone."""
    partition = await log_partition(store, await store.default.catalogue.create(name, 1, {}), 0)
    for _ in range(entries):
        await produce(partition, ENTRY)
    return partition


@pytest.fixture
async def partition(open_store: OpenStore) -> LogPartition:
    return await filled(await open_store(tail_cache_bytes=0))


class Consumer:
    """Reads in order as a Fetch does: from memory where that is possible, else from the store."""

    def __init__(self, partition: LogPartition, offset: int = 0, max_bytes: int = LIMIT) -> None:
        self.partition = partition
        self.offset = offset
        self.max_bytes = max_bytes
        self.seen: list[int] = []
        self.from_memory = 0

    async def fetch(self) -> Batches:
        taken = self.partition.read_cached(self.offset, self.max_bytes, True)
        if taken is None:
            taken = await self.partition.read(self.offset, self.max_bytes, True)
        else:
            self.from_memory += 1
        if taken.chunks:
            self.partition.answered(self.offset, self.max_bytes, taken)
            self.seen += [one.offset for one in records_of(b"".join(taken.chunks)) if one.offset >= self.offset]
            self.offset = end_offset(taken.chunks[-1])
        return taken

    async def read_to_end(self) -> None:
        while self.offset < self.partition.end:
            await self.fetch()
            await until(lambda: not self.is_reading)

    @property
    def is_reading(self) -> bool:
        return any(reader.is_reading for reader in self.partition.ahead.readers.values())


def held_bytes(partition: LogPartition) -> int:
    return store_of(partition).ahead.held_bytes


async def test_who_reads_in_order_finds_the_next_records_in_memory(partition: LogPartition) -> None:
    consumer = Consumer(partition)
    await consumer.read_to_end()
    assert consumer.seen == list(range(40))
    assert consumer.from_memory >= 15
    assert not partition.ahead.readers
    assert held_bytes(partition) == 0


async def test_a_single_read_brings_nothing_but_itself(partition: LogPartition) -> None:
    for offset in (20, 5, 30):
        consumer = Consumer(partition, offset)
        await consumer.fetch()
        assert not consumer.is_reading
        assert len(partition.ahead.readers[consumer.offset].entries) <= 1  # the one that did not fit


async def test_batches_of_one_entry_that_go_out_in_several_answers_are_read_once(open_store: OpenStore) -> None:
    partition = await filled(await open_store(tail_cache_bytes=0), 0)
    for _ in range(10):
        await submit_together(partition, 8)
    consumer = Consumer(partition)
    await consumer.read_to_end()
    assert consumer.seen == list(range(80))
    assert consumer.from_memory > 20


async def submit_together(partition: LogPartition, batches: int) -> None:
    made = [batch([ENTRY]) for _ in range(batches)]
    for waited in [submit(partition, data, header) for data, header in made]:
        await waited


async def test_a_quick_reader_is_kept_two_requests_ahead(partition: LogPartition) -> None:
    consumer = Consumer(partition)
    while consumer.offset < partition.end:
        await consumer.fetch()  # without waiting for what is read ahead
    assert consumer.seen == list(range(40))
    assert held_bytes(partition) == 0


async def test_two_readers_at_one_place_each_get_everything(partition: LogPartition) -> None:
    one, other = Consumer(partition), Consumer(partition)
    while one.offset < partition.end:
        await one.fetch()
        await other.fetch()
    await other.read_to_end()
    assert one.seen == other.seen == list(range(40))


async def test_nothing_is_read_ahead_beyond_the_limit(open_store: OpenStore) -> None:
    store = await open_store(tail_cache_bytes=0, read_ahead_bytes=2 * LIMIT)
    partition = await filled(store)
    consumers = [Consumer(partition, first) for first in range(8)]
    while any(consumer.offset < partition.end for consumer in consumers):
        for consumer in consumers:
            if consumer.offset < partition.end:
                await consumer.fetch()
            assert store.ahead.held_bytes <= 2 * LIMIT
    assert all(consumer.seen == list(range(first, 40)) for first, consumer in enumerate(consumers))


async def test_an_idle_reader_makes_room_for_another(open_store: OpenStore, clock: MovableClock) -> None:
    store = await open_store(tail_cache_bytes=0, read_ahead_bytes=LIMIT + 1_000)
    partition = await filled(store)
    idle, other = Consumer(partition), Consumer(partition, 1)
    for consumer in (idle, other):
        for _ in range(3):
            await consumer.fetch()
            await until(lambda: not other.is_reading)
    assert other.from_memory == 0
    clock.advance(60_000)
    await other.read_to_end()
    assert other.from_memory > 5
    assert other.seen == list(range(1, 40))


async def test_without_memory_for_it_nothing_is_kept(open_store: OpenStore) -> None:
    partition = await filled(await open_store(tail_cache_bytes=0, read_ahead_bytes=0))
    consumer = Consumer(partition)
    await consumer.read_to_end()
    assert consumer.seen == list(range(40))
    assert not consumer.from_memory


async def test_what_was_read_ahead_is_not_served_after_a_doubt(partition: LogPartition) -> None:
    consumer = Consumer(partition)
    for _ in range(3):
        await consumer.fetch()
        await until(lambda: not consumer.is_reading)
    assert partition.ahead.entries_at(consumer.offset)
    partition.doubt()
    assert partition.read_cached(consumer.offset, LIMIT, True) is None
    await partition.confirm()
    await consumer.read_to_end()
    assert consumer.seen == list(range(40))


@of_one_server
async def test_records_that_a_store_lost_are_not_served_from_what_was_read_ahead(
    valkey: Valkey, open_store: OpenStore
) -> None:
    store = await open_store(tail_cache_bytes=0)
    partition = await filled(store, 10)
    checkpoint = valkey.checkpoint()
    for _ in range(30):
        await produce(partition, ENTRY)
    consumer = Consumer(partition, 10)
    for _ in range(3):
        await consumer.fetch()
        await until(lambda: not consumer.is_reading)
    generation = partition.reads.generation
    valkey.go_back_to(checkpoint)
    await until(lambda: partition.reads.generation > generation and partition.link.is_up)
    await partition.confirm()
    assert partition.end >= 40
    assert partition.read_cached(consumer.offset, LIMIT, True) is None
    taken = await partition.read(consumer.offset, LIMIT, True)
    assert ENTRY not in [record.value for record in records_of(b"".join(taken.chunks))]


async def test_a_reader_whose_connection_breaks_reads_the_store_again(partition: LogPartition) -> None:
    consumer = Consumer(partition)
    for _ in range(3):
        await consumer.fetch()
    partition.reads.drop("test")
    await until(lambda: partition.reads.is_up and partition.link.is_up)
    await partition.confirm()
    await consumer.read_to_end()
    assert consumer.seen == list(range(40))


async def test_a_reader_stops_reading_ahead_where_the_cached_tail_begins(open_store: OpenStore) -> None:
    partition = await filled(await open_store(tail_cache_bytes=15_000))
    consumer = Consumer(partition)
    await consumer.read_to_end()
    assert consumer.seen == list(range(40))
    assert not partition.ahead.readers
    assert held_bytes(partition) == 0


async def test_a_deleted_topic_gives_the_memory_back(partition: LogPartition) -> None:
    consumer = Consumer(partition)
    for _ in range(3):
        await consumer.fetch()
    await store_of(partition).default.catalogue.delete(partition.topic)
    await until(lambda: partition.is_gone)
    assert held_bytes(partition) == 0

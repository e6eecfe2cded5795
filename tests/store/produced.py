"""Batches as producers send them, and the log as a reader of the raw stream finds it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from headrace.store.cluster.catalogue import Topic
from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from headrace.store.partition.base import Partition
from headrace.store.partition.entries import Batches
from headrace.store.partition.sequences.gaps import Skip
from headrace.store.store import Store
from headrace.store.stream.partition import StreamPartition
from headrace.store.stream.records import pack_batch
from headrace.wire.batch import BatchHeader, check_produced, iter_headers, read_header
from headrace.wire.records import Record, decode_batch, encode_batch, unpack
from headrace.wire.skim import finish
from tests.movable_clock import MovableClock
from tests.store.proxy import Proxy
from tests.store.servers import Valkey

MAX_BATCH_BYTES = 64 << 20
TIMEOUT_S = 20.0


def batch(
    values: Sequence[bytes],
    *,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    timestamps: Sequence[int] | None = None,
) -> tuple[memoryview, BatchHeader]:
    """A batch, and its header as the broker checked it."""
    times = timestamps or [1000] * len(values)
    records = [Record(at, time, None, value, []) for at, (value, time) in enumerate(zip(values, times, strict=True))]
    data = encode_batch(
        records,
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence if producer >= 0 else -1,
    )
    view = memoryview(bytearray(data))
    return view, check_produced(view, MAX_BATCH_BYTES)


def produce(
    partition: Partition,
    *values: bytes,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    timestamps: Sequence[int] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> asyncio.Future[Appended]:
    """Hands one batch to the writer."""
    data, header = batch(values, producer=producer, epoch=epoch, sequence=sequence, timestamps=timestamps)
    return submit(partition, data, header, timeout_s)


async def wait_for_a_lease(partition: Partition, producer: int = 7) -> None:
    """Whatever a producer that is not known may have on its way has come: it may begin in the middle."""
    partition.sequence_gaps.admits(Skip(producer, (0,), 1 << 20))
    clock = partition.context.clock
    assert isinstance(clock, MovableClock)
    await let_a_lease_pass(store_of(partition), clock)


async def let_a_lease_pass(store: Store, clock: MovableClock) -> None:
    """The node is awake meanwhile, and keeps its own."""
    for _ in range(3):
        clock.advance(store.options.node_lease_ms // 3 + 1)
        await store.nodes.renew()


def submit(
    partition: Partition, data: memoryview, header: BatchHeader, timeout_s: float = TIMEOUT_S
) -> asyncio.Future[Appended]:
    """Hands a batch that is small to the writer, in the form that the partition's format has."""
    packed = b""
    if isinstance(partition, StreamPartition):
        packed = finish(pack_batch(unpack(data, header, MAX_BATCH_BYTES), header, not partition.policy.log_append_time))
    return partition.writer.submit(data, header, timeout_s, packed)


class Stored(NamedTuple):
    """A record as it is in the log."""

    offset: int
    value: bytes | None
    timestamp: int
    leader_epoch: int


def stored_entries(valkey: Valkey, partition: Partition) -> list[tuple[int, bytes]]:
    """Base and bytes of each entry of the stream."""
    rows = valkey.stream(partition.keys.log)
    return [(int(identity.split(b"-")[0]), fields[b"b"]) for identity, fields in rows]


def stored(valkey: Valkey, partition: Partition) -> list[Stored]:
    """All records of the stream, by asking the server and nobody else; each entry's id is its first offset."""
    records: list[Stored] = []
    for base, data in stored_entries(valkey, partition):
        found = records_of(data)
        assert found[0].offset == base
        records += found
    return records


def records_of(data: bytes | memoryview) -> list[Stored]:
    """The records of batches that follow one another."""
    view = memoryview(data)
    return [
        Stored(record.offset, record.value, record.timestamp, header.leader_epoch)
        for pos, header in iter_headers(view)
        for record in decode_batch(view[pos : pos + header.length])
    ]


def records_in(taken: Batches) -> list[Stored]:
    """The records of what was read; a batch that only carries readers over a gap has none."""
    shown = [chunk for chunk in taken.chunks if not read_header(chunk).is_control]
    return [record for chunk in shown for record in records_of(memoryview(chunk))]


def values(records: Sequence[Stored]) -> list[bytes | None]:
    return [record.value for record in records]


def assert_dense(records: Sequence[Stored], start: int = 0) -> None:
    """No offset twice, none left out."""
    assert [record.offset for record in records] == list(range(start, start + len(records)))


async def until(holds: Callable[[], bool | Awaitable[bool]], timeout_s: float = 20.0) -> None:
    """Waits for a state."""
    async with asyncio.timeout(timeout_s):
        while True:
            answer = holds()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def new_servers(*stores: Store) -> AsyncIterator[None]:
    """What happens inside gives stores other servers; all their connections know it afterwards.

    No time passes for them: a cluster takes longer than a lease to start, and nobody would be awake meanwhile.
    """
    links = [link for store in stores for shard in store.topology.shards for link in (shard.link, shard.reads)]
    before = {link: link.timeline for link in links}
    with contextlib.ExitStack() as clocks:
        for clock in {store.clock for store in stores}:
            if isinstance(clock, MovableClock):
                clocks.enter_context(clock.standing_still())
        yield
    await until(lambda: all(link.timeline > before[link] and link.is_up for link in links))


async def cut_off(store: Store, proxy: Proxy) -> None:
    """Returns once nothing of the store is reached; `proxy.is_open = True` ends it."""
    proxy.is_open = False
    proxy.cut()
    await until(lambda: not any(shard.link.is_up for shard in store.topology.shards))


def is_up(store: Store) -> bool:
    """Whether it is connected to all servers."""
    return all(link.is_up for shard in store.topology.shards for link in (shard.link, shard.reads))


async def log_partition(store: Store, topic: Topic, number: int = 0) -> LogPartition:
    """A partition of format `log`."""
    partition = await store.default.partition(topic, number)
    assert isinstance(partition, LogPartition)
    return partition


async def same_partition(store: Store, partition: Partition) -> LogPartition:
    """The partition as another store sees it."""
    topic = await store.default.catalogue.find(partition.topic.name)
    assert topic is not None
    return await log_partition(store, topic, partition.number)


def store_of(partition: Partition) -> Store:
    """The store that opened a partition: the partition itself does not know it."""
    store = getattr(partition.context.spawn, "__self__", None)
    assert isinstance(store, Store)
    return store

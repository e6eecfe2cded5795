"""Random histories against a naive compactor: what stays is exactly what Kafka's rules say, for every reader."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.log.partition import LogPartition
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from headrace.wire.compression import CODECS, Compression
from tests.movable_clock import MovableClock
from tests.store.compacted import NEVER, UNKNOWN_MS, Left, Pair, left, let_pass, put
from tests.store.compacting import compaction_policy
from tests.store.produced import log_partition
from tests.store.servers import Valkey

RETENTION_MS = 10_000
POLICY = compaction_policy(dirty_ratio=0.0, delete_retention_ms=RETENTION_MS)
KEYS = st.sampled_from([b"a", b"b", b"c", b"a key that is longer than its digest", b""])
VALUES = st.one_of(st.none(), st.binary(max_size=3), st.just(b"x" * 40_000))
STEP = st.one_of(
    st.tuples(st.just("write"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6), st.sampled_from(CODECS)),
    st.tuples(st.just("write"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6), st.just("none")),
    st.tuples(st.just("compact"), st.none(), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1_000, 6_000, RETENTION_MS]), st.none()),
    st.tuples(st.just("reopen"), st.none(), st.none()),
    st.tuples(st.just("delete"), st.integers(0, 9), st.none()),
)


@pytest.fixture(scope="module")
def server() -> object:
    server = Valkey(appendonly=False).start()
    yield server
    server.end()


class Batch(NamedTuple):
    """What is left of a batch, and from when on its tombstones may go."""

    records: list[Left]
    horizon_ms: int | None


class Model:
    """The log as it should be."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.end = 0
        self.start = 0

    def write(self, pairs: list[Pair]) -> None:
        records = [Left(self.end + at, key, value, 1_000) for at, (key, value) in enumerate(pairs)]
        self.batches.append(Batch(records, None))
        self.end += len(pairs)

    def compact(self, border: int, now_ms: int) -> None:
        """Everything below the border, a whole batch at a time."""
        last = {one.key: one.offset for batch in self.batches for one in batch.records if one.offset < border}
        for at, (records, horizon_ms) in enumerate(self.batches):
            if not records or records[0].offset >= border:
                continue
            is_past = horizon_ms is not None and horizon_ms <= now_ms
            kept = [r for r in records if last[r.key] == r.offset and (r.value is not None or not is_past)]
            if horizon_ms is None and any(one.value is None for one in kept):
                horizon_ms = now_ms + RETENTION_MS
            self.batches[at] = Batch(kept, horizon_ms)

    @property
    def left(self) -> list[Left]:
        return [one for batch in self.batches for one in batch.records if one.offset >= self.start]


class Frozen(MovableClock):
    """Stands still between the steps of a test, so that a horizon is known to the millisecond."""

    def __init__(self) -> None:
        super().__init__()
        self._stands_at_ms = super().wall_ms()

    def wall_ms(self) -> int:
        return self._stands_at_ms + self._ahead_ms


async def play(server: Valkey, steps: list[tuple[str, object, object]]) -> None:
    clock, model = Frozen(), Model()
    server.ask("FLUSHALL")
    stores = [await opened(server, clock)]
    topic = await stores[0].default.catalogue.create("orders", 1, {"cleanup.policy": "compact,delete"})
    orders = await log_partition(stores[0], topic)
    try:
        for what, how, codec in steps:
            if what == "write":
                await write(orders, model, how, codec)  # type: ignore[arg-type]
            elif what == "compact":
                await compact_both(orders, model, clock)
            elif what == "wait":
                await let_pass(orders, clock, int(str(how)))
            elif what == "delete" and model.end:
                offset = model.end * int(str(how)) // 10
                await orders.delete_before(offset)
                model.start = max(model.start, offset)
            elif what == "reopen":
                await stores.pop().close()
                stores.append(await opened(server, clock))
                orders = await log_partition(stores[0], topic)
        assert await left(orders) == model.left
        for start in range(model.start, model.end, 3):
            assert await left(orders, start, 50) == [one for one in model.left if one.offset >= start]
    finally:
        await stores[0].close()


async def opened(server: Valkey, clock: MovableClock) -> Store:
    store = Store(
        parse_address(server.url),
        node_at(0, "127.0.0.1", 9092),
        StoreOptions(index_interval_bytes=1 << 10, tail_cache_bytes=1 << 10),
        clock,
    )
    await store.start()
    return store


async def write(orders: LogPartition, model: Model, pairs: list[Pair], codec: Compression) -> None:
    await put(orders, *pairs, compression=codec)
    model.write(pairs)


async def compact_both(orders: LogPartition, model: Model, clock: MovableClock) -> None:
    """A pass, if there is one: only if the border moves, or tombstones are old, does anything change."""
    await orders.cleaner.run_if_due(NEVER, UNKNOWN_MS)
    await let_pass(orders, clock, UNKNOWN_MS)
    before = orders.clean.stored
    await orders.cleaner.run_if_due(POLICY, UNKNOWN_MS)
    if orders.clean.stored != before:
        assert orders.clean.end == orders.last_base
        model.compact(orders.clean.end, clock.wall_ms())


@given(steps=st.lists(STEP, max_size=25))
@settings(deadline=None, max_examples=40)
def test_what_is_left_is_what_a_naive_compactor_leaves(server: Valkey, steps: list[tuple[str, object, object]]) -> None:
    uvloop.run(play(server, steps))

"""Records without a time, in a stream that keeps its records' own times: they are as old as their ids say."""

from __future__ import annotations

from headrace.store.store import Store
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import on
from tests.store.produced import produce

HOUR_MS = 3_600_000
CONFIGS = {"headrace.format": "stream", "message.timestamp.type": "CreateTime"}


async def test_they_stay_for_the_retention_time_from_their_append(
    clock: MovableClock, store: Store, open_store: OpenStore
) -> None:
    stream = await store.default.partition(await store.default.catalogue.create("orders", 1, CONFIGS), 0)
    for number in range(5):
        await produce(stream, b"%d" % number, timestamps=[-1])
    reader = await on(await open_store(), stream)
    for partition in (stream, reader):
        await partition.enforce_retention(HOUR_MS, -1)
        assert partition.log_start < partition.end
    clock.advance(2 * HOUR_MS)
    for partition in (reader, stream):
        assert partition.index.expired_by_time(clock.wall_ms() - HOUR_MS, partition.end) == partition.end
    await reader.enforce_retention(HOUR_MS, -1)
    assert reader.log_start == reader.end

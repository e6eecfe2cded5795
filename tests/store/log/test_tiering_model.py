"""Whatever is produced, archived, trimmed, deleted, restarted, in whatever order: a tiered log reads as one log."""

from __future__ import annotations

import random

import pytest

from headrace.store.log import tiering, trim
from headrace.store.log.partition import LogPartition
from tests.store.cold_copy import ColdCopy
from tests.store.produced import Stored, produce, same_partition, stored_entries
from tests.store.servers import Valkey
from tests.store.tiered import LOCAL_NOTHING, OpenTiered, read_all

STEPS = 60


class Model:
    """The log as it has to read, and what the lake has of it."""

    def __init__(self, chance: random.Random, valkey: Valkey, cold: ColdCopy, partition: LogPartition) -> None:
        self.chance, self.valkey, self.cold, self.partition = chance, valkey, cold, partition
        self.records: list[Stored] = []
        self.start = 0
        self.archived = 0

    async def step(self) -> None:
        await self.chance.choice([self.produce, self.produce, self.archive, self.trim, self.delete])()

    async def produce(self) -> None:
        count = self.chance.randint(1, 5)
        values = [b"%d" % (len(self.records) + n) + bytes(self.chance.randint(0, 80)) for n in range(count)]
        times = [self.chance.randint(0, 1_000) for _ in values]
        appended = await produce(self.partition, *values, timestamps=times)
        assert appended.base_offset == len(self.records)
        self.records += [
            Stored(appended.base_offset + n, value, at_ms, 0)
            for n, (value, at_ms) in enumerate(zip(values, times, strict=True))
        ]

    async def archive(self) -> None:
        """Some of what is in Redis and the lake does not have."""
        entries = [data for base, data in stored_entries(self.valkey, self.partition) if base >= self.archived]
        some = entries[: self.chance.randint(0, len(entries))]
        self.cold.archive(self.partition.topic.uuid, 0, some)
        held = await self.cold.held(self.partition.cold_name)
        self.archived = held.end if held else 0

    async def trim(self) -> None:
        await tiering.enforce(self.partition, LOCAL_NOTHING._replace(local_bytes=self.chance.choice([0, 200, 1_000])))
        assert self.partition.trimmed_to <= self.archived

    async def delete(self) -> None:
        if self.chance.random() < 0.3:
            self.start = max(self.start, self.chance.randint(0, len(self.records)))
            await trim.delete_before(self.partition, self.start)

    async def check(self) -> None:
        """It starts and ends where it has to, reads as it has to from anywhere, and finds every time."""
        partition = self.partition
        assert (partition.log_start, partition.end) == (self.start, len(self.records))
        assert partition.log_start <= partition.local_start <= partition.end
        if self.start == len(self.records):
            return
        offset = self.chance.randrange(self.start, len(self.records))
        assert await read_all(partition, offset, self.chance.randint(1, 1_000)) == self.records[offset:]
        at_ms = self.chance.randint(0, 1_000)
        late = ((r.offset, r.timestamp) for r in self.records[self.start :] if r.timestamp >= at_ms)
        assert await partition.find_time(at_ms) == next(late, None)


@pytest.mark.parametrize("seed", range(8))
async def test_a_tiered_log_reads_as_one(valkey: Valkey, cold: ColdCopy, open_tiered: OpenTiered, seed: int) -> None:
    store = await open_tiered()
    topic = await store.default.catalogue.create("orders", 1, {"remote.storage.enable": "true"})
    partition = await store.default.partition(topic, 0)
    assert isinstance(partition, LogPartition)
    model = Model(random.Random(seed), valkey, cold, partition)
    for step in range(STEPS):
        await model.step()
        await model.check()
        if step % 20 == 19:
            model.partition = await same_partition(await open_tiered(), partition)
            await model.check()

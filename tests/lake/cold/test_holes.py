"""Offsets without records: markers of transactions, aborted records, what compaction took. Cold reads step over them.

The tables are made here, row by row, so that a hole may lie anywhere: at a file's beginning or end, over a whole file,
before the offset at which Redis goes on.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.cold_log import ColdPartition, Held
from headrace.lake.archive.verify import verify_lake
from headrace.lake.cold.log import LakeLog, open_cold_log
from headrace.lake.storage.place import place_of
from headrace.lake.table.table import TopicTable
from headrace.lake.upkeep.compaction import compact_table
from tests.lake.cold_topic import EVERYTHING, read_all
from tests.lake.made_table import FIRST_MS, IDENTITY, make_table, written_of

PARTITION = ColdPartition(IDENTITY.topic, IDENTITY.topic_id, 0)


@pytest.fixture
async def cold(tmp_path: Path) -> AsyncIterator[LakeLog]:
    reader = open_cold_log(str(tmp_path), {}, IDENTITY.cluster_id)
    yield reader
    await reader.close()


def make(lake: Path, offsets: Sequence[int], ends: Sequence[int]) -> TopicTable:
    """A table whose files end at `ends` and whose rows have these offsets."""
    table = make_table(lake)
    for start, end in pairwise([0, *ends]):
        table.commit([written_of(table.place, 0, start, end, [at for at in offsets if start <= at < end])])
    return table


async def check_reads(cold: LakeLog, offsets: Sequence[int], stops: Sequence[int]) -> None:
    """From each offset to each stop come the records between them, and the reader gets to the stop."""
    for stop in stops:
        for start in range(stop):
            wanted = [at for at in offsets if start <= at < stop]
            assert [r.offset for r in await read_all(cold, PARTITION, start, stop, 1 << 20)] == wanted, (start, stop)


async def test_a_marker_before_the_offset_where_redis_goes_on(tmp_path: Path, cold: LakeLog) -> None:
    """A transaction of 10 records, its marker, another one: Redis begins with the second."""
    make(tmp_path, [*range(10), *range(11, 20)], [21])
    read = await cold.read(PARTITION, 10, 11, 1 << 20)
    assert (read.batches, read.next_offset) == ([], 11)
    await check_reads(cold, [*range(10), *range(11, 20)], [10, 11, 12, 20, 21])


async def test_files_without_a_row_are_stepped_over_and_are_held(tmp_path: Path, cold: LakeLog) -> None:
    """An aborted transaction may fill whole files, at the beginning, in the middle and at the end."""
    table = make(tmp_path, [7, 8], [3, 5, 6, 10, 12, 20])
    assert await cold.held(PARTITION) == Held(0, 20, table.coverage[0].size_bytes)
    read = await cold.read(PARTITION, 0, 20, 1 << 20)
    assert (len(read.batches), read.next_offset) == (1, 9)
    read = await cold.read(PARTITION, 9, 20, 1 << 20)
    assert (read.batches, read.next_offset) == ([], 20)
    await check_reads(cold, [7, 8], [3, 6, 8, 9, 20])
    assert table.coverage[0].gaps == []
    assert await cold.find_time(PARTITION, FIRST_MS, 0, 20) == (7, FIRST_MS + 7000)
    assert await cold.find_time(PARTITION, FIRST_MS, 9, 20) is None
    assert await cold.find_newest(PARTITION, 0, 20) == (8, FIRST_MS + 8000)
    assert await cold.retained_start(PARTITION, 0, 20, FIRST_MS + 8001, None) == 20
    assert await cold.retained_start(PARTITION, 0, 20, FIRST_MS + 8000, None) == 6


@pytest.mark.parametrize("seed", range(3))
async def test_holes_anywhere_before_and_after_files_are_merged(tmp_path: Path, cold: LakeLog, seed: int) -> None:
    chance = random.Random(seed)
    end = 40
    offsets = sorted(chance.sample(range(end), 15))
    table = make(tmp_path, offsets, [*sorted(chance.sample(range(1, end), 6)), end])
    stops = chance.sample(range(1, end + 1), 8)
    await check_reads(cold, offsets, stops)
    compact_table(table)
    assert len(table.coverage[0].files) == 1
    await cold.held(PARTITION, fresh=True)
    await check_reads(cold, offsets, stops)
    assert (await cold.read(PARTITION, offsets[-1], EVERYTHING, 1 << 20)).next_offset == offsets[-1] + 1
    proof = verify_lake(place_of(tmp_path), None)
    assert (proof.rows, proof.findings) == (len(offsets), [])

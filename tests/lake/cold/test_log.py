"""Cold records are the records that the topic had: read from tables that a real broker's topics were archived into."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.cold_log import ColdAway, ColdPartition, Held
from headrace.lake.cold.cpu_share import CpuShare
from headrace.lake.cold.row_groups import FileCache, PieceCache
from tests.broker_process import BrokerProcess
from tests.lake.cold_topic import EVERYTHING, ColdTopic, OpenCold, read_all, timestamp_types


async def test_every_record_comes_back_as_it_was(made: ColdTopic, open_cold: OpenCold) -> None:
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        made.send([b"a", None, b"", b"x" * 300], key=b"k", headers=[("h", b"1"), ("h", None), ("", b"")],
                  compression=compression)  # fmt: skip
        made.send([b"no key"], compression=compression, times=[-1])
        made.send([b"t"] * 4, times=[0, 1 << 62, 7, 1_700_000_000_000])
    made.archive(7, 19, 20, made.end())
    hot = made.hot()
    cold = open_cold(made)
    for max_bytes in (1, 1000, 1 << 20):
        assert await read_all(cold, made.partition, 0, made.end(), max_bytes) == hot


async def test_append_times_stay_append_times(
    broker: BrokerProcess, topic: str, tmp_path: Path, open_cold: OpenCold
) -> None:
    made = ColdTopic(broker.address, tmp_path / "lake", topic, {"message.timestamp.type": "LogAppendTime"})
    for _ in range(3):
        made.send([b"v"] * 5, times=[5] * 5)
    made.archive()
    cold = open_cold(made)
    assert await read_all(cold, made.partition, 0, 15, 1 << 20) == made.hot()
    assert timestamp_types((await cold.read(made.partition, 0, 15, 1 << 20)).batches) == {"LogAppendTime"}


async def test_held_is_what_live_files_cover_and_a_read_stops_where_it_should(
    made: ColdTopic, open_cold: OpenCold
) -> None:
    cold = open_cold(made)
    assert await cold.held(made.partition) is None
    assert "no table" in (cold.reason(made.partition) or "")
    made.send([b"v"] * 30)
    table = made.archive(10, 20)
    size_bytes = table.coverage[0].size_bytes
    assert await cold.held(made.partition, fresh=True) == Held(0, 20, size_bytes)
    assert cold.reason(made.partition) is None
    assert [r.offset for r in await read_all(cold, made.partition, 3, 17, 1 << 20)] == list(range(3, 17))
    with pytest.raises(ColdAway, match="lacks offset 20"):
        await cold.read(made.partition, 20, EVERYTHING, 1 << 20)
    made.archive()
    assert (await cold.read(made.partition, 25, EVERYTHING, 1 << 20)).next_offset == 30


async def test_a_table_of_another_topic_or_cluster_holds_nothing(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"v"] * 3)
    made.archive()
    cold = open_cold(made)
    again = ColdPartition(made.name, bytes(16), 0)
    assert await cold.held(again) is None
    assert "earlier topic" in (cold.reason(again) or "")
    with pytest.raises(ColdAway, match="earlier topic"):
        await cold.read(again, 0, 3, 1000)
    assert await cold.held(ColdPartition(made.name, made.identity.topic_id, 1)) is None


async def test_tables_of_another_organisation_lie_in_a_folder_of_theirs(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"v"] * 3)
    made.archive()
    cold = open_cold(made)
    theirs = ColdPartition(made.name, made.identity.topic_id, 0, "acme")
    assert await cold.held(theirs) is None
    assert "no table" in (cold.reason(theirs) or "")
    shutil.copytree(made.lake / made.name, made.lake / "_.orgs/acme" / made.name)
    assert await cold.held(theirs, fresh=True) == await cold.held(made.partition)
    assert await read_all(cold, theirs, 0, 3, 1 << 20) == made.hot()


async def test_a_recorded_gap_is_stepped_over(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"v"] * 30)
    made.archive(10)
    made.archive_gap(20)
    made.archive()
    cold = open_cold(made)
    read = await cold.read(made.partition, 12, 30, 1000)
    records = await read_all(cold, made.partition, 0, 30, 1 << 20)
    assert [record.offset for record in records] == [*range(10), *range(20, 30)]
    assert read.next_offset == 30
    assert (await cold.read(made.partition, 12, 18, 1000)).next_offset == 18


async def test_offsets_made_of_time_keep_their_holes(
    broker: BrokerProcess, topic: str, tmp_path: Path, open_cold: OpenCold
) -> None:
    made = ColdTopic(broker.address, tmp_path / "lake", topic, {"headrace.format": "stream"})
    for _ in range(3):
        made.send([b"v"] * 4, key=b"k")
    hot = made.hot()
    made.archive(hot[5].offset, made.end())
    cold = open_cold(made)
    assert await read_all(cold, made.partition, 0, made.end(), 1000) == hot
    middle = hot[7].offset
    assert await read_all(cold, made.partition, middle + 1, made.end(), 1 << 20) == hot[8:]


async def test_times_are_found_in_whatever_order_they_are(made: ColdTopic, open_cold: OpenCold) -> None:
    chance = random.Random(7)
    times = [chance.choice([-1, 0, 5, 1 << 62, *range(1_000, 1_050)]) for _ in range(400)]
    made.send([b"v"] * 400, times=times)
    made.archive(90, 91, 250, 400)
    cold = open_cold(made)
    for first, stop in ((0, 400), (30, 95), (91, 249), (200, 200)):
        inside = range(first, stop)
        for wanted in (-5, 0, 3, 1_000, 1_049, 1 << 61, (1 << 62) + 1):
            late = next(((offset, times[offset]) for offset in inside if times[offset] >= wanted), None)
            assert await cold.find_time(made.partition, wanted, first, stop) == late
        newest = max(((times[offset], -offset) for offset in inside), default=None)
        assert await cold.find_newest(made.partition, first, stop) == (newest and (-newest[1], newest[0]))
    with pytest.raises(ColdAway, match="lacks offset 400"):
        await cold.find_time(made.partition, 0, 0, 401)


async def test_the_log_starts_behind_whole_files_that_are_old_or_beyond_its_size(
    made: ColdTopic, open_cold: OpenCold
) -> None:
    made.send([b"v"] * 40, times=[1_000 + n for n in range(40)])
    made.archive(10, 20)
    made.archive_gap(30)
    table = made.archive(40)
    sizes = [file.size_bytes for file in table.coverage[0].files]
    cold = open_cold(made)

    async def start(oldest_ms: int | None, most_bytes: int | None, first: int = 0, stop: int = 40) -> int:
        return await cold.retained_start(made.partition, first, stop, oldest_ms, most_bytes)

    assert await start(None, None) == 0
    assert [await start(at, None) for at in (1_009, 1_010, 1_020, 1_040, 5_000)] == [0, 10, 30, 40, 40]
    assert await start(5_000, None, first=5, stop=25) == 20
    assert await start(0, None, first=15) == 15
    assert [await start(None, most) for most in (sum(sizes), sum(sizes[1:]), sizes[3], 0)] == [0, 10, 30, 40]


async def test_files_of_records_without_a_time_are_as_old_as_themselves(made: ColdTopic, open_cold: OpenCold) -> None:
    before_ms = time.time_ns() // 1_000_000
    made.send([b"v"] * 20, times=[-1] * 20)
    made.archive(10, 20)
    after_ms = time.time_ns() // 1_000_000
    cold = open_cold(made)
    assert await cold.retained_start(made.partition, 0, 20, before_ms, None) == 0
    assert await cold.retained_start(made.partition, 0, 20, after_ms + 1_000, None) == 20


async def test_consumers_at_several_places_read_at_once(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"%d" % n * 50 for n in range(3_000)])
    made.archive(*range(300, 3_001, 300))
    cold, hot = open_cold(made), made.hot()
    starts = (0, 700, 1_400, 2_950)
    found = await asyncio.gather(*(read_all(cold, made.partition, start, 3_000, 5_000) for start in starts))
    for start, records in zip(starts, found, strict=True):
        assert records == hot[start:]


async def test_pieces_are_kept_within_their_bound_and_made_once(made: ColdTopic) -> None:
    made.send([bytes(1_000)] * 40)
    table = made.archive(10, 20, 30, 40)
    files = FileCache()
    opened = [files.open(table.place, file) for file in table.coverage[0].files]
    with ThreadPoolExecutor(2) as executor:
        pieces = PieceCache(executor, CpuShare(0), kept_bytes=25_000)
        both = await asyncio.gather(*(pieces.get(opened[0], opened[0].groups[0], EVERYTHING) for _ in range(2)))
        assert both[0] is both[1]
        for file in opened:
            await pieces.get(file, file.groups[0], EVERYTHING)
            assert pieces.size_bytes <= 25_000
        assert await pieces.get(opened[0], opened[0].groups[0], EVERYTHING) is not both[0]

"""Cold records are the records that the topic had: read from tables that a real broker's topics were archived into."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headrace.cold_log import ColdAway, ColdPartition, Held
from headrace.lake.cold import ColdReader
from tests.broker_process import BrokerProcess
from tests.lake.cold_topic import EVERYTHING, ColdTopic, read_all, timestamp_types

Opened = Callable[[ColdTopic], ColdReader]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Readers that end with the test."""
    readers: list[ColdReader] = []

    def start(topic: ColdTopic) -> ColdReader:
        readers.append(topic.reader())
        return readers[-1]

    yield start
    for reader in readers:
        await reader.close()


@pytest.fixture
def made(broker: BrokerProcess, topic: str, tmp_path: Path) -> ColdTopic:
    """A topic that takes any timestamp."""
    return ColdTopic(broker.address, tmp_path / "lake", topic, {"message.timestamp.after.max.ms": str((1 << 63) - 1)})


async def test_every_record_comes_back_as_it_was(made: ColdTopic, opened: Opened) -> None:
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        made.send([b"a", None, b"", b"x" * 300], key=b"k", headers=[("h", b"1"), ("h", None), ("", b"")],
                  compression=compression)  # fmt: skip
        made.send([b"no key"], compression=compression, times=[-1])
        made.send([b"t"] * 4, times=[0, 1 << 62, 7, 1_700_000_000_000])
    made.archive(7, 19, 20, made.end())
    hot = made.hot()
    cold = opened(made)
    for max_bytes in (1, 1000, 1 << 20):
        assert await read_all(cold, made.partition, 0, made.end(), max_bytes) == hot


async def test_append_times_stay_append_times(
    broker: BrokerProcess, topic: str, tmp_path: Path, opened: Opened
) -> None:
    made = ColdTopic(broker.address, tmp_path / "lake", topic, {"message.timestamp.type": "LogAppendTime"})
    for _ in range(3):
        made.send([b"v"] * 5, times=[5] * 5)
    made.archive()
    cold = opened(made)
    assert await read_all(cold, made.partition, 0, 15, 1 << 20) == made.hot()
    assert timestamp_types((await cold.read(made.partition, 0, 15, 1 << 20)).batches) == {"LogAppendTime"}


async def test_held_is_what_live_files_cover_and_a_read_stops_where_it_should(made: ColdTopic, opened: Opened) -> None:
    cold = opened(made)
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


async def test_a_table_of_another_topic_or_cluster_holds_nothing(made: ColdTopic, opened: Opened) -> None:
    made.send([b"v"] * 3)
    made.archive()
    cold = opened(made)
    again = ColdPartition(made.name, bytes(16), 0)
    assert await cold.held(again) is None
    assert "earlier topic" in (cold.reason(again) or "")
    with pytest.raises(ColdAway, match="earlier topic"):
        await cold.read(again, 0, 3, 1000)
    assert await cold.held(ColdPartition(made.name, made.identity.topic_id, 1)) is None


async def test_a_recorded_gap_is_stepped_over(made: ColdTopic, opened: Opened) -> None:
    made.send([b"v"] * 30)
    made.archive(10)
    made.archive_gap(20)
    made.archive()
    cold = opened(made)
    read = await cold.read(made.partition, 12, 30, 1000)
    records = await read_all(cold, made.partition, 0, 30, 1 << 20)
    assert [record.offset for record in records] == [*range(10), *range(20, 30)]
    assert read.next_offset == 30
    assert (await cold.read(made.partition, 12, 18, 1000)).next_offset == 18

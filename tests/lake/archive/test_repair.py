"""Files that are gone from a table's folder: not shown as cold, and written again as long as the topic has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.client import Cluster
from headrace.lake.archive.status import lake_status
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from headrace.lake.table.names import RangeFile
from headrace.lake.table.table import TopicTable
from headrace.lake.upkeep.compaction import compact_table
from tests.cli.conftest import run_command
from tests.conftest import StartBroker
from tests.lake.archiving import archive_once, records_of, table_of
from tests.lake.conftest import Topic
from tests.lake.local_archive import archive_locally
from tests.lake.other_reader import rows_of
from tests.tiered import BROKER, TieredTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

EACH = 10


@pytest.fixture
def table(orders: Topic, tmp_path: Path) -> TopicTable:
    """Three files of partition 0, one of partition 1."""
    for n in range(3):
        orders.send([b"%d" % (n * EACH + row) for row in range(EACH)])
        archive_locally(orders.address, tmp_path, orders.name)
    orders.send([b"one"] * EACH, partition=1)
    return archive_locally(orders.address, tmp_path, orders.name)


def lose(table: TopicTable, number: int) -> RangeFile:
    file = table.coverage[0].files[number]
    Path(table.place.uri, file.path).unlink()
    return file


def test_status_shows_nothing_as_cold_whose_file_is_gone(orders: Topic, table: TopicTable, tmp_path: Path) -> None:
    options = ["--lake", tmp_path, "--bootstrap", orders.address]
    lose(table, 1)
    shown = run_command("lake", "status", *options)
    assert shown.table[0][:6] == [orders.name, "0", "0-29", "0-9,20-29", "0", "20"]
    assert shown.out.splitlines()[-1] == f"{orders.name}-0: its table has lost the files with offsets 10 to 19"
    lose(table, 2)
    first, other = lake_status(place_of(tmp_path), orders.cluster)
    assert (first.cold_start, first.cold_end, first.lost, first.rows, first.files) == (0, 10, [(10, 30)], 10, 1)
    assert (other.cold_end, other.lost) == (10, [])
    lose(table, 0)
    first, _ = lake_status(place_of(tmp_path), orders.cluster)
    assert (first.cold_start, first.cold_end, first.lost, first.rows) == (None, None, [(0, 30)], 0)


@pytest.mark.parametrize("numbers", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_it_is_written_again_and_nobody_sees_that_it_was_gone(
    numbers: tuple[int, ...], spark: SparkSession, orders: Topic, table: TopicTable, tmp_path: Path
) -> None:
    notes = table.notes()
    lost = [lose(table, number) for number in numbers]
    orders.send([b"new"] * EACH, partition=1)
    _, said = archive_once(spark, orders.address, tmp_path, orders.name)
    assert said == [
        f"{orders.name}-0: offsets {file.start} to {file.end - 1} were lost from the table and have been written again"
        for file in lost
    ]
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []
    mended = TopicTable(table.place)
    assert mended.notes()[0] == notes[0]
    assert mended.snapshot.find_lost() == []
    compact_table(mended)
    assert verify_lake(place_of(tmp_path), None).findings == []


def test_a_file_that_is_cut_off_counts_as_gone(
    spark: SparkSession, orders: Topic, table: TopicTable, tmp_path: Path
) -> None:
    path = Path(table.place.uri, table.coverage[0].files[1].path)
    path.write_bytes(path.read_bytes()[:-1])
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


def test_what_the_topic_has_no_more_is_said_and_becomes_a_gap_if_that_is_accepted(
    spark: SparkSession, orders: Topic, table: TopicTable, tmp_path: Path
) -> None:
    lose(table, 0)
    lose(table, 1)
    orders.admin.delete_records({(orders.name, 0): 15})
    orders.send([b"new"] * EACH)
    archive, said = archive_once(spark, orders.address, tmp_path, orders.name)
    assert said == [
        f"{orders.name}-0: offsets {start} to {start + 9} are lost from the table, and the topic no longer has them"
        "; --accept-gap records that as a gap"
        for start in (0, 10)
    ]
    assert archive.troubles == {}
    assert TopicTable(table.place).position(0) == 40
    archive_once(spark, orders.address, tmp_path, orders.name, accept_gap=True)
    mended = TopicTable(table.place)
    assert mended.coverage[0].gaps == [(0, 10), (10, 15)]
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


def test_a_gap_that_is_gone_is_recorded_again(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    orders.send([b"%d" % n for n in range(EACH)])
    archive_once(spark, orders.address, tmp_path, orders.name)
    orders.send([b"x"] * EACH)
    orders.admin.delete_records({(orders.name, 0): 15})
    archive_once(spark, orders.address, tmp_path, orders.name, accept_gap=True)
    table = TopicTable(place_of(table_of(tmp_path, orders.name)))
    lose(table, 1)
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert TopicTable(table.place).coverage[0].gaps == [(10, 15)]
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


def test_what_a_tiered_topic_has_in_the_table_alone_is_not_fetched_from_the_table_again(
    spark: SparkSession, start_broker: StartBroker, topic: str, tmp_path: Path
) -> None:
    """Its log start lies below what Redis has, and the broker would read the lost file to answer."""
    lake = tmp_path / "lake"
    broker = start_broker(lake=lake, **BROKER)
    tiered = TieredTopic(broker, lake, topic)
    tiered.fill(100)
    table = TopicTable(place_of(tiered.folder))
    lose(table, 0)
    archive, (lost, stopped) = archive_once(spark, broker.address, lake, topic)
    assert lost.startswith(f"{topic}-0: offsets 0 to 49 are lost from the table, and the topic no longer has them")
    assert "the last file of its table cannot be read" in stopped
    assert [*archive.troubles] == [(topic, 0)]
    archive, _ = archive_once(spark, broker.address, lake, topic, accept_gap=True)
    assert archive.troubles == {}
    table.refresh()
    assert (table.coverage[0].gaps, table.position(0)) == ([(0, 50)], 100)
    assert [row[1] for row in rows_of(tiered.folder)] == [*range(50, 100)]
    with Cluster(broker.address) as cluster:
        assert verify_lake(place_of(lake), cluster).findings == []

"""Expiry and vacuum: old rows go by policy and are not missed, files go once nobody needs them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.client import Admin, Cluster, Producer, Reader
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import PENDING, place_of
from headrace.lake.table.delta_log import CHECKPOINT_EVERY, ENTRIES_KEPT, SHORTEN_EVERY, FileAway
from headrace.lake.table.names import marked, new_mark
from headrace.lake.table.parquet_file import write_gap
from headrace.lake.table.table import TopicTable
from headrace.lake.upkeep.compaction import FAN_IN, compact_table
from headrace.lake.upkeep.continuous import VACUUM_EVERY_S, Upkeep
from headrace.lake.upkeep.expiry import Before, expire
from headrace.lake.upkeep.vacuum import remove_leftovers, vacuum
from headrace.wire.special_times import EARLIEST
from tests.broker_process import BrokerProcess
from tests.lake.conftest import Topic
from tests.lake.local_archive import archive_locally
from tests.lake.made_table import FIRST_MS, fill, make_table, written
from tests.lake.other_reader import rows_of

HOUR_S = 3600


def test_rows_below_an_offset_go_by_whole_files_and_verify_misses_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 5)
    planned = expire(table, None, Before(offset=35), dry_run=True)
    assert [(one.start, one.rows, one.files) for one in planned] == [(30, 30, 3)]
    assert len(table.coverage[0].files) == 5
    assert expire(table, None, Before(offset=35), dry_run=False) == planned
    assert [offset for _, offset, _ in rows_of(tmp_path / "orders")] == list(range(30, 50))
    assert verify_lake(place_of(tmp_path), None).findings == []
    fill(table, 1)
    assert compact_table(table) == (3, 1)
    assert verify_lake(place_of(tmp_path), None).findings == []


def test_rows_before_a_moment_go_with_the_gaps_between_them(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 1)
    table.commit([write_gap(table.place, 0, 10, 20)])
    fill(table, 3)
    expire(table, None, Before(moment_ms=FIRST_MS + 30_000), dry_run=False)
    assert (table.coverage[0].start, table.coverage[0].end) == (30, 50)
    assert verify_lake(place_of(tmp_path), None).findings == []


def test_the_last_file_stays_for_it_says_how_far_the_archive_is(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 3)
    expire(table, None, Before(offset=1 << 60), dry_run=False)
    assert (table.coverage[0].start, table.position(0)) == (20, 30)


def test_without_a_policy_nothing_goes(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 3)
    assert expire(table, None, None, dry_run=False) == []


def test_the_table_of_a_topic_that_is_not_tiered_outlives_what_the_broker_deleted(
    orders: Topic, tmp_path: Path
) -> None:
    for _ in range(3):
        orders.send([b"x"] * 10)
        table = archive_locally(orders.address, tmp_path, orders.name)
    orders.admin.delete_records({(orders.name, 0): 20})
    assert expire(table, orders.cluster, None, dry_run=False) == []
    (gone,) = expire(table, orders.cluster, Before(offset=10), dry_run=False)
    assert (gone.partition, gone.rows, gone.start) == (0, 10, 10)
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


def test_a_tiered_topic_loses_what_lies_below_its_log_start_and_never_more(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", lake=tmp_path / "lake")
    broker.start()
    try:
        with Cluster(broker.address) as cluster:
            Admin(cluster).create_topic("orders", 1, {"remote.storage.enable": "true"})
            for _ in range(4):
                with Producer(cluster) as producer:
                    for n in range(10):
                        producer.send("orders", b"%d" % n)
                table = archive_locally(broker.address, tmp_path / "lake", "orders")
            assert expire(table, cluster, Before(offset=1 << 60), dry_run=False) == []
            Admin(cluster).delete_records({("orders", 0): 25})
            (gone,) = expire(table, cluster, None, dry_run=False)
            assert (gone.rows, gone.start) == (20, 20)
            assert expire(table, cluster, Before(offset=1 << 60), dry_run=False) == []
            assert verify_lake(place_of(tmp_path / "lake"), cluster).findings == []
            read = [record.offset for _, _, record in Reader(cluster).read({("orders", 0): EARLIEST})]
            assert read == list(range(25, 40))
    finally:
        broker.end()


def test_vacuum_deletes_what_was_replaced_or_never_committed_and_old(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 4)
    compact_table(table)
    orphan = written(table.place, 0, 40, 50).file
    table.place.settle([orphan.path])
    assert vacuum(table, 24, dry_run=True) == []
    long_ago = time.time() - 25 * HOUR_S
    os.utime(tmp_path / "orders" / orphan.path, (long_ago, long_ago))
    assert vacuum(table, 24, dry_run=True) == [orphan.path]
    assert (tmp_path / "orders" / orphan.path).exists()
    assert vacuum(table, 24, dry_run=False) == [orphan.path]
    assert not (tmp_path / "orders" / orphan.path).exists()
    # What was replaced a moment ago may still be read.
    assert len([*(tmp_path / "orders" / "p0").iterdir()]) == 5
    assert verify_lake(place_of(tmp_path), None).findings == []


def test_the_archive_looks_after_its_tables_now_and_then(orders: Topic, tmp_path: Path) -> None:
    now, said = 0.0, list[str]()
    upkeep = Upkeep(
        place_of(tmp_path),
        orders.cluster,
        lambda tasks, run: [run(task) for task in tasks],
        lambda about, sentence: said.append(sentence),
        clock=lambda: now,
    )
    table = make_table(tmp_path)
    fill(table, FAN_IN)
    orphans = [written(table.place, 0, 900, 910).file.path for _ in range(2)]
    table.place.settle(orphans)
    long_ago = time.time() - 49 * HOUR_S
    for number, orphan in enumerate(orphans):
        os.utime(tmp_path / "orders" / orphan, (long_ago, long_ago))
        upkeep.round([table])
        assert (tmp_path / "orders" / orphan).exists() == bool(number)
    now = VACUUM_EVERY_S
    upkeep.round([table])
    assert not (tmp_path / "orders" / orphans[1]).exists()
    assert [file.rows for file in table.coverage[0].files] == [10 * FAN_IN]
    assert said == []
    (tmp_path / "orders" / table.coverage[0].files[0].path).unlink()
    fill(table, FAN_IN)
    (tmp_path / "orders" / table.coverage[0].files[1].path).unlink()
    upkeep.round([table])
    assert len(said) == 1
    assert said[0].startswith("upkeep of the table of orders failed: ")


def test_a_partition_whose_files_cannot_be_merged_keeps_no_other_from_it(orders: Topic, tmp_path: Path) -> None:
    said: list[str] = []
    upkeep = Upkeep(
        place_of(tmp_path),
        orders.cluster,
        lambda tasks, run: [run(task) for task in tasks],
        lambda about, sentence: said.append(sentence),
    )
    table = make_table(tmp_path)
    for partition in (0, 1):
        fill(table, FAN_IN, partition=partition)
    (tmp_path / "orders" / table.coverage[0].files[1].path).unlink()
    upkeep.round([table])
    assert [len(table.coverage[partition].files) for partition in (0, 1)] == [FAN_IN, 1]
    assert len(said) == 1
    assert said[0].startswith("upkeep of the table of orders failed: ")


def test_what_a_killed_writer_left_goes_after_an_hour_and_what_is_in_flight_stays(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 1)
    left, in_flight = written(table.place, 0, 10, 20), written(table.place, 0, 10, 20)
    folder = tmp_path / "orders"
    hour_ago = time.time() - HOUR_S - 1
    os.utime(folder / f"{left.file.path}{PENDING}", (hour_ago, hour_ago))
    assert vacuum(table, 24, dry_run=True) == [f"{left.file.path}{PENDING}"]
    assert vacuum(table, 24, dry_run=False) == [f"{left.file.path}{PENDING}"]
    with pytest.raises(FileAway, match="does not exist here"):
        table.commit([left])
    assert table.position(0) == 10
    table.commit([in_flight])
    assert {str(file.relative_to(folder)) for file in folder.rglob("p0/*")} == {
        file.path for file in table.coverage[0].files
    }
    assert verify_lake(place_of(tmp_path), None).findings == []


def test_a_writer_takes_away_its_own_leftovers_alone(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    marks = [new_mark(), new_mark()]
    ours, theirs = (marked(mark, lambda _: written(table.place, 0, 0, 10).file.path.encode(), b"") for mark in marks)
    assert remove_leftovers(table.place, marks[0]) == [f"{ours.decode()}{PENDING}"]
    assert [file.path for file in table.place.files("p0")] == [f"{theirs.decode()}{PENDING}"]


def test_vacuum_of_less_than_a_day_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 24 hours"):
        vacuum(make_table(tmp_path), 23, dry_run=False)


def test_the_log_stays_short_and_readers_find_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.lake.table.delta_log.ENTRIES_KEPT", 20)
    monkeypatch.setattr("headrace.lake.table.table.SHORTEN_EVERY", 10)
    assert CHECKPOINT_EVERY < ENTRIES_KEPT
    assert SHORTEN_EVERY < ENTRIES_KEPT
    table = make_table(tmp_path)
    fill(table, 65)
    entries = [entry for entry in (tmp_path / "orders" / "_delta_log").iterdir() if entry.suffix == ".json"]
    assert 20 <= len(entries) <= 45
    assert len(rows_of(tmp_path / "orders")) == 650
    assert TopicTable(table.place).notes() == table.notes()
    assert verify_lake(place_of(tmp_path), None).findings == []

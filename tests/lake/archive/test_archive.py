"""The archive with real Spark, a real broker and real Delta tables: what is in the table is what is in the topic."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.client import Cluster
from headrace.client.admin import TopicInfo
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.plan import plan_partition
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from headrace.lake.table.delta_log import FileAway
from headrace.lake.table.table import TopicTable
from headrace.lake.upkeep.compaction import FAN_IN
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker
from tests.lake.archiving import archive_once, records_of, table_of
from tests.lake.conftest import Topic
from tests.lake.other_reader import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

TIMEOUT_S = 60
MAY_FIRST_MS = 1_777_629_600_123


def values(count: int, first: int = 0) -> list[bytes | None]:
    return [b"%d" % n for n in range(first, first + count)]


def test_a_row_is_its_record_with_all_that_it_has(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    orders.admin.alter_configs(orders.name, {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    orders.send([b"lamp"], key=b"k", headers=[("a", b"1"), ("b", None), ("a", b"")], timestamp_ms=MAY_FIRST_MS)
    orders.send([None], compression="zstd", timestamp_ms=0)
    orders.send([b""], partition=1, timestamp_ms=(1 << 62))
    archive_once(spark, orders.address, tmp_path, orders.name)
    table = DeltaTable(str(table_of(tmp_path, orders.name))).to_pyarrow_table()
    assert sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"])) == [
        {
            "partition": 0, "offset": 0, "timestamp": datetime(2026, 5, 1, 10, 0, 0, 123_000, UTC),
            "timestamp_ms": MAY_FIRST_MS, "timestamp_type": 0, "key": b"k", "value": b"lamp",
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b""}],
            "day": date(2026, 5, 1),
        },
        {
            "partition": 0, "offset": 1, "timestamp": datetime(1970, 1, 1, tzinfo=UTC), "timestamp_ms": 0,
            "timestamp_type": 0, "key": None, "value": None, "headers": None, "day": date(1970, 1, 1),
        },
        {
            "partition": 1, "offset": 0, "timestamp": datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC),
            "timestamp_ms": 1 << 62, "timestamp_type": 0, "key": None, "value": b"", "headers": None,
            "day": date(9999, 12, 31),
        },
    ]  # fmt: skip


def test_later_runs_add_what_came_since_and_nothing_else(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    table = table_of(tmp_path, orders.name)
    orders.send(values(500), compression="lz4")
    archive_once(spark, orders.address, tmp_path, orders.name)
    version = DeltaTable(str(table)).version()
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert DeltaTable(str(table)).version() == version
    orders.send(values(300, 500), partition=1)
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table) == records_of(orders.address, orders.name)
    assert len(rows_of(table)) == 800


def test_large_ranges_become_several_files_of_sorted_row_groups(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    orders.send([bytes([n % 251]) * 50_000 for n in range(400)])
    archive_once(spark, orders.address, tmp_path, orders.name, commit_bytes=1)
    table = TopicTable(place_of(table_of(tmp_path, orders.name)))
    files = table.coverage[0].files
    assert len(files) > 1
    assert [file.end for file in files[:-1]] == [file.start for file in files[1:]]
    parquet = pq.ParquetFile(table.place.open(files[0].path)).metadata
    sizes = [parquet.row_group(n).total_byte_size for n in range(parquet.num_row_groups)]
    assert max(sizes) <= 8 << 20
    offsets = [parquet.row_group(n).column(1).statistics for n in range(parquet.num_row_groups)]
    assert all(one.max < other.min for one, other in pairwise(offsets))
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)


def test_a_partition_that_is_far_behind_is_written_by_several_tasks(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    orders.send([bytes([n % 251]) * 50_000 for n in range(600)])
    archive_once(spark, orders.address, tmp_path, orders.name, commit_bytes=8 << 20)
    table = TopicTable(place_of(table_of(tmp_path, orders.name)))
    assert len(table.coverage[0].files) > table.version
    assert not table.coverage[0].missing()
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)


def test_files_stay_few_however_often_it_commits(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    for n in range(FAN_IN + 2):
        orders.send(values(10, 10 * n))
        archive_once(spark, orders.address, tmp_path, orders.name)
    table = TopicTable(place_of(table_of(tmp_path, orders.name)))
    assert [file.rows for file in table.coverage[0].files] == [10 * FAN_IN, 10, 10]
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)


@pytest.mark.parametrize("step", ["before-write", "after-write", "before-commit", "after-commit"])
def test_a_crash_at_any_step_neither_loses_nor_doubles(
    step: str, spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    class Crash(Exception):
        pass

    def crash(reached: str) -> None:
        if reached == step:
            raise Crash

    for n in range(2):
        orders.send(values(100, 100 * n))
        with pytest.raises(Crash):
            archive_once(spark, orders.address, tmp_path, orders.name, at_step=crash)
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)
    assert len(rows_of(table_of(tmp_path, orders.name))) == 200


def test_of_two_archives_at_once_one_commits_and_the_other_goes_on_from_there(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    overtaken: list[str] = []

    def overtake(step: str) -> None:
        if step == "before-commit" and not overtaken:
            overtaken.append(step)
            archive_once(spark, orders.address, tmp_path, orders.name)
            orders.send(values(50, 100))

    orders.send(values(100))
    _, said = archive_once(spark, orders.address, tmp_path, orders.name, at_step=overtake)
    assert said == [f"another archive writes the table of {orders.name}: standing by"]
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)


def test_two_archives_side_by_side_archive_each_record_once_and_one_takes_over(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    table = table_of(tmp_path, orders.name)
    stops = [threading.Event(), threading.Event()]

    def follow(stop: threading.Event) -> None:
        with Cluster(orders.address) as cluster:
            Archive(spark, cluster, ArchiveSettings(place_of(tmp_path), [orders.name], commit_every_s=0.2)).run(stop)

    orders.send(values(100))
    with ThreadPoolExecutor(2) as threads:
        archives = [threads.submit(follow, stop) for stop in stops]
        try:
            for n in range(1, 4):
                await_rows(table, 100 * n)
                orders.send(values(100, 100 * n), partition=n % 2)
            stops[0].set()
            archives[0].result(TIMEOUT_S)
            orders.send(values(100, 400))
            await_rows(table, 500)
        finally:
            for stop in stops:
                stop.set()
        archives[1].result(TIMEOUT_S)
    assert rows_of(table) == records_of(orders.address, orders.name)
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


def await_rows(table: Path, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not (DeltaTable.is_deltatable(str(table)) and len(rows_of(table)) >= count):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_was_deleted_before_it_was_archived_stops_that_partition_alone(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    table = table_of(tmp_path, orders.name)
    for partition in (0, 1):
        orders.send(values(10), partition=partition)
    archive_once(spark, orders.address, tmp_path, orders.name)
    for partition in (0, 1):
        orders.send(values(10, 10), partition=partition)
    orders.admin.delete_records({(orders.name, 0): 15})
    archive, said = archive_once(spark, orders.address, tmp_path, orders.name)
    assert said == [
        f"{orders.name}-0 is not archived: offsets 10 to 14 were deleted before they were archived; "
        "--accept-gap records that gap and continues at 15"
    ]
    assert list(archive.troubles) == [(orders.name, 0)]
    assert [row for row in rows_of(table) if row[0] == 1] == [(1, n, b"%d" % n) for n in range(20)]
    archive_once(spark, orders.address, tmp_path, orders.name, accept_gap=True)
    assert [offset for partition, offset, _ in rows_of(table) if partition == 0] == [*range(10), *range(15, 20)]
    assert TopicTable(place_of(table)).coverage[0].gaps == [(10, 15)]
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


def test_trimming_what_is_archived_loses_nothing(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    orders.send(values(10))
    archive_once(spark, orders.address, tmp_path, orders.name)
    orders.admin.delete_records({(orders.name, 0): 10})
    orders.send(values(10, 10))
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table_of(tmp_path, orders.name)) == [(0, n, b"%d" % n) for n in range(20)]
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


def test_new_partitions_join_from_their_first_record_on(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    orders.send(values(5))
    archive_once(spark, orders.address, tmp_path, orders.name)
    orders.admin.create_partitions(orders.name, 4)
    orders.send(values(5), partition=3)
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)


def test_a_topic_made_again_gets_a_new_table_and_the_old_one_is_kept(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    orders.send(values(5))
    archive_once(spark, orders.address, tmp_path, orders.name)
    old: TopicInfo = orders.admin.describe_topic(orders.name)
    orders.admin.delete_topic(orders.name)
    orders.admin.create_topic(orders.name, 1)
    orders.send(values(3, 100))
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table_of(tmp_path, orders.name)) == [(0, n, b"%d" % (100 + n)) for n in range(3)]
    kept = tmp_path / f"{table_of(tmp_path, orders.name).name}_.{old.topic_id.hex()}"
    assert rows_of(kept) == [(0, n, b"%d" % n) for n in range(5)]
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


def test_a_restart_of_the_broker_in_between_loses_nothing(
    spark: SparkSession, start_broker: StartBroker, topic: str, tmp_path: Path
) -> None:
    broker: BrokerProcess = start_broker(durability="always")
    orders = Topic(broker, topic, 2)
    orders.send(values(100))
    archive_once(spark, broker.address, tmp_path / "lake", topic)
    orders.send(values(100, 100))
    broker.kill()
    broker.start()
    orders.send(values(100, 200), partition=1)
    archive_once(spark, broker.address, tmp_path / "lake", topic)
    assert rows_of(table_of(tmp_path / "lake", topic)) == records_of(broker.address, topic)
    assert len(records_of(broker.address, topic)) == 300


def test_a_table_taken_back_is_filled_again_from_where_its_files_end(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    table = table_of(tmp_path, orders.name)
    orders.send(values(10))
    archive_once(spark, orders.address, tmp_path, orders.name)
    before = DeltaTable(str(table)).version()
    orders.send(values(10, 10))
    archive_once(spark, orders.address, tmp_path, orders.name)
    DeltaTable(str(table)).restore(before)
    (finding,) = verify_lake(place_of(tmp_path), orders.cluster).findings
    assert (finding.partition, finding.offset) == (0, 10)
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table) == records_of(orders.address, orders.name)
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


def test_a_topic_that_ends_before_its_table_is_not_archived(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    orders.send(values(10))
    archive_once(spark, orders.address, tmp_path, orders.name)
    plan = plan_partition(TopicTable(place_of(table_of(tmp_path, orders.name))), 0, 0, 7, accept_gap=True)
    assert plan.trouble is not None
    assert plan.trouble.startswith("it ends at 7, before the end of its table at 10")


def test_a_commit_never_names_a_file_that_is_not_there(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    table = table_of(tmp_path, orders.name)

    def lose_the_file(step: str) -> None:
        if step == "before-commit":
            for file in table.glob("p*/*"):
                file.unlink()

    orders.send(values(10))
    with pytest.raises(FileAway, match="--lake must be shared by the"):
        archive_once(spark, orders.address, tmp_path, orders.name, at_step=lose_the_file)
    assert rows_of(table) == []
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table) == records_of(orders.address, orders.name)


def test_the_table_of_another_cluster_is_refused_with_the_remedy(
    spark: SparkSession, start_broker: StartBroker, orders: Topic, tmp_path: Path
) -> None:
    orders.send(values(10))
    archive_once(spark, orders.address, tmp_path / "lake", orders.name)
    other = Topic(start_broker(), orders.name, 2)
    archive, said = archive_once(spark, other.address, tmp_path / "lake", orders.name)
    assert [*archive.troubles] == [(orders.name, 0), (orders.name, 1)]
    assert "Give this cluster another --lake" in said[0]
    assert len(rows_of(table_of(tmp_path / "lake", orders.name))) == 10


def test_properties_that_would_lose_the_position_are_refused(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    orders.send(values(1))
    archive_once(spark, orders.address, tmp_path, orders.name)
    delta = DeltaTable(str(table_of(tmp_path, orders.name)))
    delta.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"}, False)
    archive, said = archive_once(spark, orders.address, tmp_path, orders.name)
    assert [*archive.troubles] == [(orders.name, 0), (orders.name, 1)]
    assert "Unset the property" in said[0]

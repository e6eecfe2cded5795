"""Topics into Delta tables: `headrace lake archive` and Spark's own Kafka connector, alternating, in one session.

Both carry the same topic into a new table with the same columns, on the same two cores, in a session with Spark's own
settings that has done both before. The connector streams into delta-spark's sink with `availableNow` and no limit, the
quickest way that it has. A table that does not hold every record afterwards is an error, not a figure. Then the table
is sent back into new topics, as `headrace lake replay` does it.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from deltalake import DeltaTable
from interop.clients import CACHE, SPARK
from interop.runner import Broken, Missing, prepare
from interop.spark.session import session
from pyspark.sql import SparkSession

from bench.report import HEADRACE, Figure, Report
from bench.systems import Headrace
from bench.targets import LIMIT, SPARK_KAFKA
from headrace.client import Admin, Cluster
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.replay.replay import Replay, ReplaySettings
from headrace.lake.replay.target import find_target
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import tables_in
from headrace.lake.table.names import folder_of

PARTITIONS = 6
REPLAY_RATE = 500_000.0
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    # delta-spark's default of 50 would cost the connector a second for each table as small as these.
    "spark.databricks.delta.snapshotPartitions": "2",
}
_COLUMNS = (
    "partition", "offset", "timestamp", "unix_millis(timestamp) AS timestamp_ms", "timestampType AS timestamp_type",
    "key", "value", "headers", "to_date(timestamp) AS day",
)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """Records of one size."""

    name: str
    value_bytes: int
    count: int


def run(report: Report, *, quick: bool) -> None:
    loads = (
        Load("100 B", 100, 40_000 if quick else 3_000_000),
        Load("1 KB", 1024, 10_000 if quick else 500_000),
    )
    with_connector = _fetched(report)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-archive-") as name:
        folder = Path(name)
        broker = Headrace(folder)
        try:
            with session(folder, _SETTINGS, with_packages=with_connector) as spark:
                for load in loads:
                    _measure(report, spark, broker.address, folder, load, repeats=1 if quick else 3)
                    if load.value_bytes == 100:
                        _measure_replay(report, spark, broker.address, folder, load, repeats=1 if quick else 4)
        finally:
            broker.stop()


def _topic_of(load: Load) -> str:
    return f"orders-{load.value_bytes}"


def _fetched(report: Report) -> bool:
    """Whether the connector and delta-spark can be had."""
    CACHE.mkdir(exist_ok=True)
    try:
        prepare(SPARK, CACHE / "spark.log")
    except (Missing, Broken) as why:
        report.leave_out(SPARK_KAFKA, str(why))
        return False
    return True


def _measure(report: Report, spark: SparkSession, address: str, folder: Path, load: Load, *, repeats: int) -> None:
    topic = _topic_of(load)
    _fill(address, topic, load)
    ways: dict[str, Callable[[Path], Path]] = {HEADRACE: partial(_by_archive, spark, address, topic)}
    if SPARK_KAFKA not in report.left_out:
        ways[SPARK_KAFKA] = partial(_by_connector, spark, address, topic)
    values: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(1 + repeats):
        for way in ways if repeat % 2 else reversed(ways):
            place = folder / "lake"
            began = time.perf_counter()
            table = ways[way](place)
            seconds = time.perf_counter() - began
            _expect_all(table, load)
            shutil.rmtree(place)
            if repeat > 0:  # the first is for warming up
                values[way].append(load.count / seconds)
    note = f"{load.count:,} records, {PARTITIONS} partitions"
    goal = "archive" if load.value_bytes == 100 else "archive 1 KB"
    report.add(Figure("archive", f"topic to Delta table, {load.name}", "records/s", values, goal, note))


def _by_archive(spark: SparkSession, address: str, topic: str, place: Path) -> Path:
    with Cluster(address) as cluster:
        cluster.retrying(lambda: cluster.refresh([]))
        Archive(spark, cluster, ArchiveSettings(place_of(place), [topic])).run_once()
    return place / folder_of(topic)


def _measure_replay(
    report: Report, spark: SparkSession, address: str, folder: Path, load: Load, *, repeats: int
) -> None:
    """A new topic each time: nothing of the table is there yet."""
    place, topic, rates = folder / "lake", _topic_of(load), list[float]()
    _by_archive(spark, address, topic, place)
    for repeat in range(1 + repeats):
        with Cluster(address) as cluster:
            cluster.retrying(lambda: cluster.refresh([]))
            (table,) = tables_in(place_of(place), [topic])
            target = find_target(cluster, table, f"replayed-{repeat}", create=True)
            done = Replay(table, cluster, target, ReplaySettings(partitioner="keep")).run()
            Admin(cluster).delete_topic(target.name)
        if done.sent != load.count:
            raise AssertionError(f"{done.sent:,} of {load.count:,} records were replayed")
        if repeat > 0:  # the first is for warming up
            rates.append(done.sent / done.seconds)
    shutil.rmtree(place)
    values = {HEADRACE: rates, LIMIT: [REPLAY_RATE] * len(rates)}
    note = f"{load.count:,} records, {PARTITIONS} partitions"
    report.add(Figure("archive", f"Delta table to topic, {load.name}", "records/s", values, "replay", note))


def _by_connector(spark: SparkSession, address: str, topic: str, place: Path) -> Path:
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    query = (
        rows.selectExpr(*_COLUMNS)
        .writeStream.format("delta")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(place / "table"))
    )
    query.awaitTermination()
    return place / "table"


def _expect_all(table: Path, load: Load) -> None:
    rows = DeltaTable(table).count()
    if rows != load.count:
        raise AssertionError(f"{rows:,} rows in the table of {load.count:,} records")


def _fill(address: str, topic: str, load: Load) -> None:
    """Small orders in JSON, no two alike: with a few that repeat, Parquet would keep a dictionary and no values."""
    with Cluster(address) as cluster:
        Admin(cluster).create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "batch.size": 1 << 19})
    chance = random.Random(load.value_bytes)
    remarks = chance.randbytes(1 << 20).hex().encode()
    for number in range(load.count):
        start = b'{"order":%d,"customer":"customer-%d","price":%d,"remark":"' % (number, number % 997, number % 89)
        at = chance.randrange(1 << 20)
        value = start + remarks[at : at + load.value_bytes - len(start) - 2] + b'"}'
        while True:
            try:
                producer.produce(topic, value, partition=number // 500 % PARTITIONS)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if number % 1000 == 0:
            producer.poll(0)
    if left := producer.flush(120):
        raise AssertionError(f"{left} records were not acknowledged")

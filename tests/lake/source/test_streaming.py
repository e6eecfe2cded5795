"""Topics read by Spark as streams: admission, AvailableNow, restarts, partitions that join."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace.lake.fetching import OffsetRange
from headrace.lake.source.data_source import Offset, RangePartition, StreamReader
from headrace.lake.source.losses import DataLost
from headrace.lake.source.options import parse_options
from tests.lake.conftest import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def reader(orders: Topic, **options: str) -> StreamReader:
    return StreamReader(parse_options(orders.options | options).for_stream())


def planned(stream: StreamReader, start: Offset, end: Offset) -> list[OffsetRange]:
    ranges = []
    for partition in stream.partitions(start, end):
        assert isinstance(partition, RangePartition)
        ranges.append(partition.wanted)
    return ranges


def test_a_first_batch_is_read_again_from_where_it_began(orders: Topic) -> None:
    """A query that starts at `latest` and is killed in its first batch goes on with that batch, not behind it."""
    orders.send([b"before"])
    stream = reader(orders)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    orders.send([b"in the first batch"] * 2)
    end = stream.latestOffset(start, ReadAllAvailable())
    wanted = [OffsetRange(orders.name, 0, 1, 3)]
    assert planned(stream, start, end) == wanted

    orders.send([b"after the kill"])
    restarted = reader(orders)
    assert planned(restarted, restarted.initialOffset(), end) == wanted
    following = restarted.latestOffset(end, ReadAllAvailable())
    assert planned(restarted, end, following) == [OffsetRange(orders.name, 0, 3, 4)]
    assert restarted.latestOffset(following, ReadAllAvailable()) == following


def test_a_partition_that_joins_is_read_from_its_beginning(orders: Topic) -> None:
    orders.send([b"x"])
    stream = reader(orders, startingOffsets="earliest")
    first = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    orders.admin.create_partitions(orders.name, 3)
    orders.send([b"y"] * 3, partition=2)
    second = stream.latestOffset(first, ReadMaxRows(2))
    assert planned(stream, first, second) == [OffsetRange(orders.name, 2, 0, 2)]
    third = stream.latestOffset(second, ReadMaxRows(2))
    assert planned(stream, second, third) == [OffsetRange(orders.name, 2, 2, 3)]
    assert stream.reportLatestOffset() == {orders.name: {"0": 1, "1": 0, "2": 3}}


def test_a_topic_that_is_gone_stops_the_query_unless_loss_is_accepted(orders: Topic) -> None:
    orders.send([b"x"] * 3)
    stream = reader(orders, startingOffsets="earliest")
    start = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    orders.admin.delete_topic(orders.name)
    with pytest.raises(DataLost, match=f"{orders.name}-0, which was read up to offset 3, is gone"):
        stream.latestOffset(start, ReadAllAvailable())
    assert reader(orders, failOnDataLoss="false").latestOffset(start, ReadAllAvailable()) == {}


def run(spark: SparkSession, orders: Topic, home: Path, **options: str) -> StreamingQuery:
    """One run with Trigger.AvailableNow into files, which keep what they have over restarts."""
    stream = spark.readStream.format("headrace").options(**orders.options, startingOffsets="earliest")
    written = (
        stream.options(**options)
        .load()
        .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
    )
    query = written.start(str(home / "rows"))
    assert query.awaitTermination(120)
    return query


def test_a_stream_takes_its_limit_ends_and_goes_on_from_its_checkpoint(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    orders.send([b"%d" % i for i in range(40)])
    orders.send([b"x"] * 10, partition=1)
    first = run(spark, orders, tmp_path, maxOffsetsPerTrigger="30")
    assert [progress.numInputRows for progress in first.recentProgress if progress.numInputRows] == [30, 20]

    orders.send([b"%d" % i for i in range(40, 50)])
    orders.admin.create_partitions(orders.name, 3)
    orders.send([b"new"], partition=2)
    second = run(spark, orders, tmp_path)
    assert sum(progress.numInputRows for progress in second.recentProgress) == 11

    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("partition", "offset").collect()
    assert [tuple(row) for row in rows] == [
        *((0, i, str(i)) for i in range(50)),
        *((1, i, "x") for i in range(10)),
        (2, 0, "new"),
    ]


def test_streaming_sql_follows_a_topic(spark: SparkSession, orders: Topic) -> None:
    stream = spark.readStream.format("headrace").options(**orders.options).load()
    stream.createOrReplaceTempView("orders_stream")
    counted = spark.sql("SELECT CAST(value AS STRING) AS item, count(*) AS n FROM orders_stream GROUP BY value")
    query = counted.writeStream.format("memory").queryName("items").outputMode("complete").start()
    try:
        query.processAllAvailable()  # the query has begun: what is sent now comes after `latest`
        orders.send([b"tea", b"tea", b"coffee"])
        query.processAllAvailable()
        assert {row.item: row.n for row in spark.table("items").collect()} == {"tea": 2, "coffee": 1}
    finally:
        query.stop()

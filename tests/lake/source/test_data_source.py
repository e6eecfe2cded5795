"""Topics read by Spark in batches: `format("headrace")` in a session with Spark's own defaults."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from headrace.wire.compression import CODECS
from tests.lake.conftest import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, orders: Topic, **options: str) -> DataFrame:
    return spark.read.format("headrace").options(**orders.options).options(**options).load()


def test_rows_have_the_columns_of_sparks_kafka_source(spark: SparkSession, orders: Topic) -> None:
    orders.send([b"v"], key=b"k", headers=[("a", b"1"), ("b", None), ("a", b"2")], timestamp_ms=1_700_000_000_123)
    orders.send([None, b""], partition=1, timestamp_ms=0)
    frame = load(spark, orders, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in frame.schema.fields)
    # Seconds and milliseconds by Spark itself: Python would show a timestamp in the machine's own time zone.
    rows = frame.selectExpr("* except (timestamp)", "unix_millis(timestamp) ms").orderBy("partition", "offset")
    assert [row.asDict(recursive=True) for row in rows.collect()] == [
        {
            "key": b"k",
            "value": b"v",
            "topic": orders.name,
            "partition": 0,
            "offset": 0,
            "timestampType": 0,
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b"2"}],
            "ms": 1_700_000_000_123,
        },
        {
            "key": None,
            "value": None,
            "topic": orders.name,
            "partition": 1,
            "offset": 0,
            "timestampType": 0,
            "headers": None,
            "ms": 0,
        },
        {
            "key": None,
            "value": b"",
            "topic": orders.name,
            "partition": 1,
            "offset": 1,
            "timestampType": 0,
            "headers": None,
            "ms": 0,
        },
    ]
    assert "headers" not in load(spark, orders).columns


def test_all_compressions_come_through_and_filters_hold_without_push_down(spark: SparkSession, orders: Topic) -> None:
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
    for codec in CODECS:
        orders.send([f"{codec}-{i}".encode() for i in range(100)], compression=codec)
    frame = load(spark, orders, minPartitions="4")
    assert frame.rdd.getNumPartitions() >= 4
    kept = frame.filter("offset >= 250 and offset < 450 and cast(value as string) not like 'lz4%'")
    values = [bytes(row.value) for row in kept.orderBy("offset").collect()]
    assert values == [f"snappy-{i}".encode() for i in range(50, 100)] + [f"zstd-{i}".encode() for i in range(50)]


def test_sql_over_a_topic_from_one_offset_or_time_to_another(spark: SparkSession, orders: Topic) -> None:
    for hour in range(4):
        orders.send([b'{"item": "tea", "cups": %d}' % hour] * 2, timestamp_ms=hour * 3_600_000)
    spark.sql(
        f"""CREATE OR REPLACE TEMPORARY VIEW orders USING headrace OPTIONS (
            'kafka.bootstrap.servers' '{orders.address}',
            subscribe '{orders.name}',
            startingOffsetsByTimestamp '{{"{orders.name}": {{"0": 3600000, "1": 0}}}}',
            startingOffsetsByTimestampStrategy 'latest',
            endingOffsets '{{"{orders.name}": {{"0": 7, "1": -1}}}}'
        )"""
    )
    (row,) = spark.sql(
        """SELECT count(*) AS records, sum(CAST(get_json_object(CAST(value AS STRING), '$.cups') AS INT)) AS cups,
                  min(timestamp) AS since FROM orders"""
    ).collect()
    # Offsets 2 to 6: two cups of hour 1, four of hour 2, three of hour 3.
    assert (row.records, row.cups) == (5, 9)
    assert row.since.astimezone(UTC) == datetime(1970, 1, 1, 1, tzinfo=UTC)


def test_what_is_wrong_is_told_in_one_sentence(spark: SparkSession, orders: Topic) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="There is no option 'startingofsets'; there are"):
        load(spark, orders, startingOfsets="earliest").schema  # noqa: B018
    with pytest.raises(PySparkException, match="There is no topic 'nowhere'"):
        load(spark, orders, subscribe="nowhere").collect()
    with pytest.raises(PySparkException, match=r"omit \.schema\(\)"):
        spark.read.format("headrace").options(**orders.options).schema("value STRING").load().collect()

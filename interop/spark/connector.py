"""`format("kafka")`: Spark's own connector reads and writes topics, in batches and as streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headrace.client import Admin, Cluster
from interop.report import expect
from interop.spark.topics import CODECS, LIMIT_S, TIME_MS, Seen, Topic

COUNT = 500
_COLUMNS = ("partition", "offset", "unix_millis(timestamp)", "key", "value", "headers")


class Connector:
    """The checks. Each has topics and folders of its own."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self._spark, self._address, self._folder = spark, address, folder

    @property
    def checks(self) -> dict[str, Callable[[], None]]:
        return {
            "batch read, every compression, nulls and headers": self.batch_read,
            "where a batch starts and ends": self.batch_ranges,
            "batch write with keys and headers": self.batch_write,
            "stream in limited batches, and again from its checkpoint": self.stream_in_steps,
            "stream from the latest, and added partitions": self.stream_of_new_records,
            "stream from topic to topic": self.stream_to_topic,
            "records deleted under a stream": self.deleted_records,
            "a topic in the format stream": self.sparse_offsets,
        }

    # Batches

    def batch_read(self) -> None:
        topic = Topic(self._address, "spark-read", 3)
        for at, codec in enumerate(CODECS):
            topic.send(range(at * COUNT, (at + 1) * COUNT), codec)
        expect("records", seen(self._read(topic)), topic.seen())
        expect("count", len(topic.seen()), COUNT * len(CODECS))
        split = self._read(topic, minPartitions="10")
        expect("more tasks than partitions", split.rdd.getNumPartitions() > 3, True)
        expect("records of many tasks", seen(split), topic.seen())

    def batch_ranges(self) -> None:
        topic = Topic(self._address, "spark-ranges", 2)
        for partition in (0, 1):
            topic.send(range(100), partition=partition)

        def span(**options: str) -> list[list[int]]:
            found = self._read(topic, **options).selectExpr("partition", "offset").collect()
            each = [sorted(row.offset for row in found if row.partition == partition) for partition in (0, 1)]
            return [offsets and [offsets[0], offsets[-1] + 1] for offsets in each]

        def at(first: int, second: int) -> str:
            return json.dumps({topic.name: {"0": first, "1": second}})

        expect("all", span(startingOffsets="earliest", endingOffsets="latest"), [[0, 100], [0, 100]])
        expect("by offset", span(startingOffsets=at(10, -2), endingOffsets=at(20, -1)), [[10, 20], [0, 100]])
        expect("by time", span(startingTimestamp=str(TIME_MS + 30)), [[30, 100], [30, 100]])
        by_time = span(
            startingOffsetsByTimestamp=at(TIME_MS + 10, TIME_MS + 90), endingOffsetsByTimestamp=at(TIME_MS + 20, -1)
        )
        expect("by partition and time", by_time, [[10, 20], [90, 100]])
        late = {"startingTimestamp": str(TIME_MS + 1000), "startingOffsetsByTimestampStrategy": "latest"}
        expect("after the last", span(**late), [[], []])
        assigned = self._read(topic, subscribe="", assign=json.dumps({topic.name: [1]}))
        expect("assigned", {row.partition for row in assigned.collect()}, {1})
        expect("by pattern", self._read(topic, subscribe="", subscribePattern="spark-ran.*").count(), 200)

    def batch_write(self) -> None:
        source = Topic(self._address, "spark-write-from", 2)
        source.send(range(COUNT))
        target = Topic(self._address, "spark-write-to", 2)
        rows = self._read(source).select("key", "value", "headers", "partition")
        rows.write.format("kafka").options(**self._to(target)).option("includeHeaders", "true").save()
        expect("written", contents(target.seen()), contents(source.seen()))
        expect("in their partitions", spread(target.seen()), spread(source.seen()))
        codecs = Topic(self._address, "spark-write-codecs", 1)
        for codec in CODECS:
            options = self._to(codecs) | {"kafka.compression.type": codec}
            rows.drop("partition").write.format("kafka").options(**options).save()
        expect("in every compression", len(codecs.seen()), COUNT * len(CODECS))

    # Streams

    def stream_in_steps(self) -> None:
        topic = Topic(self._address, "spark-steps", 2)
        topic.send(range(COUNT))
        most = COUNT // 5
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
        batches = self._to_table(self._follow(topic, **options), "steps")
        expect("batches above the limit", [rows for rows in batches if rows > most], [])
        expect("rows of all batches", sum(batches), COUNT)
        expect("records", seen(self._table("steps")), topic.seen())
        topic.send(range(COUNT, COUNT + 50))
        expect("batches after the restart", self._to_table(self._follow(topic, **options), "steps"), [50])
        expect("records, each once", seen(self._table("steps")), topic.seen())

    def stream_of_new_records(self) -> None:
        topic = Topic(self._address, "spark-latest", 1)
        topic.send(range(100))
        latest = self._follow(topic, startingOffsets="latest")
        self._to_table(latest, "latest")
        expect("old records", self._table("latest").count(), 0)
        with Cluster(self._address) as cluster:
            Admin(cluster).create_partitions(topic.name, 2)
        for partition in (0, 1):
            topic.send(range(100, 150), partition=partition)
        self._to_table(latest, "latest")
        new = [record for record in topic.seen() if record.partition == 1 or record.offset >= 100]
        expect("new records", seen(self._table("latest")), new)

    def stream_to_topic(self) -> None:
        source = Topic(self._address, "spark-through-from", 2)
        target = Topic(self._address, "spark-through-to", 2)
        for numbers in (range(COUNT), range(COUNT, COUNT + 20)):
            source.send(numbers)
            rows = self._follow(source, startingOffsets="earliest").select("key", "value", "headers", "partition")
            query = (
                rows.writeStream.format("kafka")
                .options(**self._to(target))
                .option("includeHeaders", "true")
                .option("checkpointLocation", str(self._folder / "through"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(int(LIMIT_S))
            expect("written", contents(target.seen()), contents(source.seen()))
            expect("in their partitions", spread(target.seen()), spread(source.seen()))

    def deleted_records(self) -> None:
        topic = Topic(self._address, "spark-deleted", 1)
        topic.send(range(100))
        everything = {"startingOffsets": "earliest"}
        self._to_table(self._follow(topic, **everything), "deleted")
        topic.send(range(100, 300))
        with Cluster(self._address) as cluster:
            Admin(cluster).delete_records({(topic.name, 0): 150})
        try:
            self._to_table(self._follow(topic, **everything), "deleted")
        except StreamingQueryException:
            expect("rows of the stream that failed", self._table("deleted").count(), 100)
        else:
            raise AssertionError("the stream continued past deleted records")
        self._to_table(self._follow(topic, failOnDataLoss="false", **everything), "deleted")
        offsets = sorted(row.offset for row in self._table("deleted").collect())
        expect("what was there and what is left", offsets, [*range(100), *range(150, 300)])

    def sparse_offsets(self) -> None:
        topic = Topic(self._address, "spark-sparse", 1, **{"headrace.format": "stream"})
        topic.send(range(100))
        topic.send(range(100, 200))
        expect("a batch", seen(self._read(topic)), topic.seen())
        self._to_table(self._follow(topic, startingOffsets="earliest"), "sparse")
        expect("a stream", seen(self._table("sparse")), topic.seen())

    # What they are made of

    def _options(self, topic: Topic, given: dict[str, str]) -> dict[str, str]:
        """An option that is given as empty is left out."""
        every = topic.options | {"includeHeaders": "true"} | given
        return {name: value for name, value in every.items() if value}

    def _read(self, topic: Topic, **options: str) -> DataFrame:
        return self._spark.read.format("kafka").options(**self._options(topic, options)).load()

    def _follow(self, topic: Topic, **options: str) -> DataFrame:
        return self._spark.readStream.format("kafka").options(**self._options(topic, options)).load()

    def _to(self, topic: Topic) -> dict[str, str]:
        return {"kafka.bootstrap.servers": topic.address, "topic": topic.name}

    def _to_table(self, rows: DataFrame, name: str) -> list[int]:
        """Runs a stream into a Delta table for all that is there; the rows of each batch that had some."""
        query = (
            rows.writeStream.format("delta")
            .option("checkpointLocation", str(self._folder / f"{name}.checkpoint"))
            .trigger(availableNow=True)
            .start(str(self._folder / name))
        )
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def _table(self, name: str) -> DataFrame:
        return self._spark.read.format("delta").load(str(self._folder / name))


def seen(rows: DataFrame) -> list[Seen]:
    """Rows of the connector's columns, in the form of what librdkafka saw."""
    found = rows.selectExpr(*_COLUMNS).collect()
    return sorted(
        Seen(
            partition,
            offset,
            time_ms,
            _bytes(key),
            _bytes(value),
            tuple((h.key, _bytes(h.value)) for h in headers or ()),
        )
        for partition, offset, time_ms, key, value, headers in found
    )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def contents(records: list[Seen]) -> list[str]:
    """What was produced, in an order of its own: partitions interleave in different ways."""
    return sorted(repr(record.content) for record in records)


def spread(records: list[Seen]) -> list[tuple[int, str]]:
    """Which record is in which partition, in the order of each."""
    return [(record.partition, repr(record.content)) for record in records]

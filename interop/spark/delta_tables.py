"""delta-spark opens the tables that the archive makes, and the connector says whether they are the topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.client import Cluster
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import tables_in
from headrace.lake.upkeep.compaction import compact_table
from interop.report import expect
from interop.spark.topics import CODECS, Topic

COUNT = 300
TOPIC = "spark-archived"
SCHEMA = {
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_ms": "bigint",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "day": "date",
}
_SAME = ("partition", "offset", "timestamp", "key", "value", "headers")


class DeltaTables:
    """The checks, one after the other on one table; each commit of it holds the records of one compression."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self._spark, self._address = spark, address
        self._lake = folder / "lake"
        self._path = str(self._lake / TOPIC)

    @property
    def checks(self) -> dict[str, Callable[[], None]]:
        return {
            "delta-spark: count, columns, and row by row the topic": self.same_as_topic,
            "delta-spark: time travel and history": self.time_travel,
            "delta-spark: queries by offset, day and JSON field": self.queries,
            "delta-spark: a stream of the table": self.as_stream,
            "delta-spark: a compacted table, and a stream that continues across the compaction": self.compacted,
            "delta-spark: RESTORE, and the archive fills in": self.restored,
        }

    def same_as_topic(self) -> None:
        self._topic = Topic(self._address, TOPIC, 2)
        for at, codec in enumerate(CODECS):
            self._topic.send(range(at * COUNT, (at + 1) * COUNT), codec)
            self._archive()
        table = self._table()
        expect("columns", dict(table.dtypes), SCHEMA)
        expect("count", table.count(), COUNT * len(CODECS))
        self._expect_same(table)

    def time_travel(self) -> None:
        versions = [row.version for row in self._sql("DESCRIBE HISTORY {} LIMIT 5").collect()]
        counts = [self._table(versionAsOf=str(version)).count() for version in sorted(versions)]
        expect("rows as of each commit", counts, [COUNT * (at + 1) for at in range(len(CODECS))])
        as_sql = self._sql(f"SELECT count(*) AS n FROM {{}} VERSION AS OF {max(versions) - 1}").first()
        expect("rows as of the one before the last, in SQL", as_sql and as_sql.n, COUNT * (len(CODECS) - 1))

    def queries(self) -> None:
        found = self._sql("SELECT * FROM {} WHERE partition = 0 AND offset BETWEEN 10 AND 19")
        expect("by offset", sorted(row.offset for row in found.collect()), list(range(10, 20)))
        days = self._sql("SELECT day, count(*) AS n FROM {} GROUP BY day").collect()
        expect("by day", [(str(row.day), row.n) for row in days], [("2023-11-14", COUNT * len(CODECS))])
        json = "CAST(get_json_object(CAST(value AS STRING), '$.n') AS LONG)"
        total = self._sql(f"SELECT sum({json}) AS total FROM {{}}").first()
        expect("by field", total and total.total, sum(n for n in range(COUNT * len(CODECS)) if n % 5 > 1))

    def as_stream(self) -> None:
        expect("rows", self._stream(), COUNT * len(CODECS))

    def compacted(self) -> None:
        files = len(self._table().inputFiles())
        (table,) = tables_in(place_of(self._lake))
        replaced, made = compact_table(table)
        expect("files before, less those that were merged", files - replaced + made, len(self._table().inputFiles()))
        expect("files of each partition", made, 2)
        self._expect_same(self._table())
        expect("rows of the stream that are new", self._stream(), 0)
        self._topic.send(range(COUNT * len(CODECS), COUNT * len(CODECS) + 10))
        self._archive()
        expect("rows of the stream after ten more records", self._stream(), 10)
        before = self._table(versionAsOf=str(table.version - 1))
        expect("rows as of the time before the compaction", before.count(), COUNT * len(CODECS))

    def restored(self) -> None:
        history = self._sql("DESCRIBE HISTORY {}").collect()
        first = min(row.version for row in history if self._table(versionAsOf=str(row.version)).count())
        self._sql(f"RESTORE TABLE {{}} TO VERSION AS OF {first}")
        expect("rows after RESTORE", self._table().count(), COUNT)
        self._archive()
        self._expect_same(self._table())
        with Cluster(self._address) as cluster:
            expect("findings", verify_lake(place_of(self._lake), cluster).findings, [])

    # What they are made of

    def _archive(self) -> None:
        with Cluster(self._address) as cluster:
            cluster.retrying(lambda: cluster.refresh([]))
            Archive(self._spark, cluster, ArchiveSettings(place_of(self._lake), [TOPIC])).run_once()

    def _stream(self) -> int:
        """How many rows a stream of the table gets since it was last run."""
        checkpoint = str(self._lake.with_name("archived.checkpoint"))
        query = (
            self._spark.readStream.format("delta").load(self._path).writeStream.format("noop")
            .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    def _table(self, **options: str) -> DataFrame:
        return self._spark.read.format("delta").options(**options).load(self._path)

    def _sql(self, statement: str) -> DataFrame:
        return self._spark.sql(statement.format(f"delta.`{self._path}`"))

    def _expect_same(self, table: DataFrame) -> None:
        """Nothing is in one and not in the other, each as often as there."""
        options = self._topic.options | {"includeHeaders": "true"}
        topic = self._spark.read.format("kafka").options(**options).load().select(*_SAME)
        archived = table.select(*_SAME)
        expect("only in the topic", topic.exceptAll(archived).limit(3).collect(), [])
        expect("only in the table", archived.exceptAll(topic).limit(3).collect(), [])

"""The guarantees of our Spark source and archive on any Kafka cluster, checked on Apache Kafka itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.lake.archiving import table_of
from tests.lake.other_reader import rows_of

from headrace.client import Cluster
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from interop.lake_kafka.sasl import PASSWORD, USER, WITH_PASSWORD, login
from interop.report import expect, expect_in
from interop.spark.connector import seen
from interop.spark.topics import CODECS, LIMIT_S, TIME_MS, Topic

COUNT = 500
STREAM_LIMIT_S = 300


class LakeOnKafka:
    """The checks. Each has topics and folders of its own."""

    def __init__(self, spark: SparkSession, address: str, asking: str, folder: Path) -> None:
        self._spark, self._address, self._asking, self._folder = spark, address, asking, folder

    @property
    def checks(self) -> dict[str, Callable[[], None]]:
        return {
            "batch, every compression, nulls and headers": self.batch,
            "from one time to another": self.by_time,
            "aborted transactions are skipped": self.transactions,
            "stream in limited batches, and again from its checkpoint": self.stream,
            "SASL PLAIN and SCRAM": self.sasl,
            "archive exactly once, without aborted transactions": self.archive,
        }

    def batch(self) -> None:
        topic = Topic(self._address, "batch", 3)
        for at, codec in enumerate(CODECS):
            topic.send(range(at * COUNT, (at + 1) * COUNT), codec)
        expect("records", seen(self._read(topic)), topic.seen())
        expect("count", len(topic.seen()), COUNT * len(CODECS))
        expect("records of many tasks", seen(self._read(topic, minPartitions="10")), topic.seen())

    def by_time(self) -> None:
        topic = Topic(self._address, "times", 1)
        topic.send(range(100))
        times = {"startingTimestamp": str(TIME_MS + 30), "endingTimestamp": str(TIME_MS + 70)}
        found = self._read(topic, **times).selectExpr("min(offset)", "max(offset)").collect()
        expect("offsets", [tuple(row) for row in found], [(30, 69)])

    def transactions(self) -> None:
        topic = Topic(self._address, "transactions", 1)
        committed = self._transactions(topic)
        found = self._read(topic).orderBy("offset").collect()
        expect("committed", [bytes(row.value) for row in found], committed)
        everything = self._read(topic, **{"kafka.isolation.level": "read_uncommitted"})
        expect("all of them", everything.count(), 2 * len(committed))

    def stream(self) -> None:
        topic = Topic(self._address, "stream", 2)
        topic.send(range(COUNT))
        most = COUNT // 5
        batches = self._follow(topic, most)
        expect("batches above the limit", [rows for rows in batches if rows > most], [])
        expect("rows of all batches", sum(batches), COUNT)
        topic.send(range(COUNT, COUNT + 50))
        expect("batches after the restart", self._follow(topic, most), [50])
        rows = self._spark.read.parquet(str(self._folder / "stream"))
        expect("records, each once", seen(rows), topic.seen())

    def sasl(self) -> None:
        topic = Topic(self._address, "guarded", 1)
        topic.send(range(COUNT), "zstd")
        for mechanism in WITH_PASSWORD:
            rows = self._read(topic, **self._as_user(mechanism, PASSWORD))
            expect(mechanism, seen(rows), topic.seen())
            try:
                self._read(topic, **self._as_user(mechanism, "a guess")).count()
            except PySparkException as refused:
                expect_in("The broker rejected this user", str(refused))
            else:
                raise AssertionError(f"{mechanism} with a wrong password was accepted")

    def archive(self) -> None:
        topic, lake = Topic(self._address, "archived", 2), self._folder / "lake"
        topic.send(range(COUNT), "lz4", partition=1)
        self._transactions(topic)
        said: list[str] = []
        with Cluster(self._address) as cluster:
            for _ in range(2):
                Archive(self._spark, cluster, ArchiveSettings(place_of(lake), [topic.name]), say=said.append).run_once()
                topic.send(range(COUNT, COUNT + 10), partition=1)
            proof = verify_lake(place_of(lake), cluster)
        wanted = [(r.partition, r.offset, _bytes(r.value)) for r in self._read(topic).collect()]
        before = [row for row in sorted(wanted) if row[0] == 0 or row[1] < COUNT + 10]
        expect("rows", rows_of(table_of(lake, topic.name)), before)
        expect("findings", (proof.rows, proof.findings), (len(before), []))
        expect("gaps and other things to say", said, [])

    # Parts

    def _read(self, topic: Topic, **options: str) -> DataFrame:
        given = topic.options | {"includeHeaders": "true"} | options
        return self._spark.read.format("headrace").options(**given).load()

    def _follow(self, topic: Topic, most: int) -> list[int]:
        """One run with Trigger.AvailableNow into files; the rows of each batch."""
        options = topic.options | {"startingOffsets": "earliest", "includeHeaders": "true"}
        stream = self._spark.readStream.format("headrace").options(**options, maxOffsetsPerTrigger=str(most)).load()
        written = stream.writeStream.format("parquet").option("checkpointLocation", str(self._folder / "checkpoint"))
        query = written.trigger(availableNow=True).start(str(self._folder / "stream"))
        expect("the query ends", query.awaitTermination(STREAM_LIMIT_S), True)
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def _transactions(self, topic: Topic) -> list[bytes]:
        """Two transactions that are committed and two that are aborted; the values of the former."""
        producer = Producer({"bootstrap.servers": self._address, "transactional.id": topic.name})
        producer.init_transactions(LIMIT_S)
        committed: list[bytes] = []
        for turn in range(4):
            values = [b"%d-%d" % (turn, n) for n in range(50)]
            producer.begin_transaction()
            for value in values:
                producer.produce(topic.name, value, partition=0)
            producer.flush(LIMIT_S)
            if turn % 2:
                producer.commit_transaction(LIMIT_S)
                committed += values
            else:
                producer.abort_transaction(LIMIT_S)
        return committed

    def _as_user(self, mechanism: str, password: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._asking,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": login(mechanism, USER, password),
        }


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)

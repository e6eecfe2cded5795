"""Topics of Apache Kafka with transactions: markers and aborted records leave holes in the offsets of a table.

What must hold: the table has what a consumer with read_committed sees, up to the last stable offset; nobody takes a
hole for a loss; and what a transaction aborted in the target of a replay counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from tests.broker_process import wait_until
from tests.lake.archiving import table_of
from tests.lake.other_reader import rows_of

from headrace.client import Admin, Cluster
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.archive.status import PartitionStatus, lake_status
from headrace.lake.archive.verify import verify_lake
from headrace.lake.replay.replay import Replay, ReplaySettings, Summary
from headrace.lake.replay.target import find_target
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import tables_in
from headrace.lake.table.table import TopicTable
from headrace.lake.upkeep.compaction import compact_table
from headrace.wire.special_times import LATEST
from interop.report import expect
from interop.spark.topics import LIMIT_S, Topic

PARTITIONS = 2
_FAST_CLEANER = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}

Row = tuple[int, int, bytes | None]


class TransactionsOnKafka:
    """The checks, each with a lake of its own."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self._spark, self._address, self._folder = spark, address, folder

    @property
    def checks(self) -> dict[str, Callable[[], None]]:
        return {
            "transactions side by side, one of them open": self.side_by_side,
            "files of nothing but aborted records, merged and lost": self.holes,
            "replay, with what was aborted in the target": self.replay,
            "a compacted topic with transactions": self.compacted,
        }

    def side_by_side(self) -> None:
        topic, lake = Topic(self._address, "side-by-side", PARTITIONS), self._folder / "side-by-side"
        one, other, plain = self._producer("one"), self._producer("other"), self._producer()
        for turn in range(6):
            one.begin_transaction()
            other.begin_transaction()
            for producer, partition in ((one, 0), (other, 0), (plain, 0), (one, 1), (other, 1), (one, 0)):
                _send(producer, topic, partition)
            _end(one, commits=turn % 2 == 1)
            _send(other, topic, 0)
            _send(plain, topic, 1)
            _end(other, commits=turn % 3 > 0)
        self._await_stable(topic)
        one.begin_transaction()
        for producer in (one, plain):
            _send(producer, topic, 0)
        self._archive(topic, lake)
        held = self._table(topic, lake).position(0)
        expect("the table ends where the open transaction begins", held, self._end(topic, 0) - 6)
        _end(one, commits=True)
        self._await_stable(topic)
        self._archive(topic, lake)

    def holes(self) -> None:
        topic, lake = Topic(self._address, "holes", PARTITIONS), self._folder / "holes"
        one, plain = self._producer("holes"), self._producer()
        for turn in range(4):
            one.begin_transaction()
            _send(one, topic, 0)
            _end(one, commits=False)
            if turn == 1:
                _send(plain, topic, 0)
            self._await_stable(topic)
            self._archive(topic, lake)
        table = self._table(topic, lake)
        expect("files and rows", [(len(c.files), c.rows) for c in table.coverage.values()], [(4, 3)])
        expect("merged", compact_table(table), (4, 1))
        (table_of(lake, topic.name) / table.coverage[0].files[0].path).unlink()
        name, end = f"{topic.name}-0", table.position(0) - 1
        self._archive(topic, lake, [f"{name}: offsets 0 to {end} were lost from the table and have been written again"])

    def replay(self) -> None:
        topic, lake = Topic(self._address, "source", PARTITIONS), self._folder / "source"
        one = self._producer("source")
        for turn in range(4):
            one.begin_transaction()
            for partition in range(PARTITIONS):
                _send(one, topic, partition)
            _end(one, commits=turn % 2 == 1)
        self._await_stable(topic)
        self._archive(topic, lake)
        whole = [(partition, value) for partition, _, value in self._seen(topic)]
        first, second = Topic(self._address, "first", PARTITIONS), Topic(self._address, "second", PARTITIONS)
        expect("sent", self._replay(topic, lake, first).sent, len(whole))
        expect("records", [(partition, value) for partition, _, value in self._seen(first)], whole)
        self._copy_aborted(first, second)
        expect("what was aborted is sent", self._replay(topic, lake, second).sent, len(whole))
        expect("records again", [(partition, value) for partition, _, value in self._seen(second)], whole)

    def compacted(self) -> None:
        topic, lake = Topic(self._address, "compacted", PARTITIONS, **_FAST_CLEANER), self._folder / "compacted"
        one, plain = self._producer("compacted"), self._producer()
        for turn in range(4):
            one.begin_transaction()
            _send(one, topic, 0, key=b"same")
            _end(one, commits=turn % 2 == 1)
        before = self._archive_cleaned(topic, lake)

        def is_cleaned() -> bool:
            _send(plain, topic, 0, key=b"same")
            return not set(before) <= set(self._seen(topic))

        wait_until(is_cleaned, "Kafka compacts nothing", LIMIT_S)
        rows = self._archive_cleaned(topic, lake)
        expect("rows that were archived", rows[: len(before)], before)
        self._archive_cleaned(topic, self._folder / "compacted-later")

    # Parts

    def _producer(self, transactional_id: str | None = None) -> Producer:
        if transactional_id is None:
            return Producer({"bootstrap.servers": self._address})
        producer = Producer({"bootstrap.servers": self._address, "transactional.id": transactional_id})
        producer.init_transactions(LIMIT_S)
        return producer

    def _end(self, topic: Topic, partition: int) -> int:
        with Cluster(self._address) as cluster:
            return Admin(cluster).list_offsets({(topic.name, partition): LATEST})[topic.name, partition].offset

    def _await_stable(self, topic: Topic) -> None:
        """Returns once the markers of all transactions are there: a commit is answered before."""
        wanted = {(topic.name, partition): LATEST for partition in range(PARTITIONS)}
        with Cluster(self._address) as cluster:
            admin = Admin(cluster)
            wait_until(
                lambda: admin.list_offsets(wanted, read_committed=True) == admin.list_offsets(wanted),
                "a transaction stays open", LIMIT_S,
            )  # fmt: skip

    def _run(self, topic: Topic, lake: Path) -> tuple[list[str], list[str]]:
        said: list[str] = []
        settings = ArchiveSettings(place_of(lake), [topic.name])
        with Cluster(self._address) as cluster:
            Archive(self._spark, cluster, settings, say=said.append).run_once()
            proof = verify_lake(place_of(lake), cluster)
            for held in lake_status(place_of(lake), cluster):
                expect("status", _standing(held), (0, [], [], held.hot_end))
        return said, [finding.what for finding in proof.findings]

    def _archive(self, topic: Topic, lake: Path, sentences: list[str] | None = None) -> None:
        """Archives what there is: the table has what a consumer sees, and nothing is found wrong."""
        expect("what was said and found", self._run(topic, lake), (sentences or [], []))
        expect("rows", rows_of(table_of(lake, topic.name)), self._seen(topic))

    def _archive_cleaned(self, topic: Topic, lake: Path) -> list[Row]:
        """Archives a topic that Kafka compacts at any moment; the rows, among them all that the topic still has."""
        self._await_stable(topic)
        expect("what was said and found", self._run(topic, lake), ([], []))
        rows = rows_of(table_of(lake, topic.name))
        expect("records without a row", set(self._seen(topic)) - set(rows), set())
        return rows

    def _table(self, topic: Topic, lake: Path) -> TopicTable:
        (table,) = tables_in(place_of(lake), [topic.name])
        return table

    def _replay(self, topic: Topic, lake: Path, into: Topic) -> Summary:
        with Cluster(self._address) as cluster:
            table = self._table(topic, lake)
            target = find_target(cluster, table, into.name)
            return Replay(table, cluster, target, ReplaySettings(partitioner="keep")).run()

    def _copy_aborted(self, source: Topic, target: Topic) -> None:
        """What an application does that handles records one by one, headers and all, and fails."""
        copier = self._producer("copier")
        copier.begin_transaction()
        consumer = Consumer({"bootstrap.servers": self._address, "group.id": "copier", "enable.auto.commit": False})
        consumer.assign([TopicPartition(source.name, 0, 0)])
        for _ in range(3):
            message = consumer.poll(LIMIT_S)
            assert message is not None
            copier.produce(target.name, message.value(), headers=message.headers(), partition=0)
        copier.flush(LIMIT_S)
        _end(copier, commits=False)
        consumer.close()
        self._await_stable(target)

    def _seen(self, topic: Topic) -> list[Row]:
        """What a consumer with read_committed, its own default, sees."""
        settings = {"bootstrap.servers": self._address, "group.id": "seen", "enable.auto.commit": False}
        consumer, found = Consumer(settings | {"enable.partition.eof": True}), []
        for partition in range(PARTITIONS):
            consumer.assign([TopicPartition(topic.name, partition, 0)])
            while (message := consumer.poll(LIMIT_S)) is not None and message.error() is None:
                found.append((partition, message.offset() or 0, message.value()))
        consumer.close()
        return found


def _send(producer: Producer, topic: Topic, partition: int, key: bytes | None = None) -> None:
    for number in range(3):
        producer.produce(topic.name, b"%d" % number, key, partition)
    producer.flush(LIMIT_S)


def _end(producer: Producer, *, commits: bool) -> None:
    (producer.commit_transaction if commits else producer.abort_transaction)(LIMIT_S)


def _standing(held: PartitionStatus) -> tuple[int | None, list[tuple[int, int]], list[tuple[int, int]], int | None]:
    """Lag, gaps, what was lost, and where the table ends, which for an empty one is where the topic does."""
    return held.lag, held.gaps, held.lost, held.hot_end if held.cold_end is None else held.cold_end

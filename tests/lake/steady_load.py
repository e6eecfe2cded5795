"""Load on a topic while its archive runs, and the proof that the table has what was acknowledged, each record once.

Each record's value is a number of its own, sent by an idempotent producer that goes on through trouble, at a modest
pace: what happens to the brokers and the archive meanwhile is the test, not how fast they are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import confluent_kafka

from headrace.client import Cluster
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from tests.broker_process import wait_until
from tests.lake.archiving import table_of
from tests.lake.other_reader import Row, count_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 300
BURST = 20
PAUSE_S = 0.05
COMMIT_EVERY_S = 0.2


class SteadyLoad:
    """Sends bursts of records to each partition in turn, in a thread, until it is told to stop."""

    def __init__(
        self, addresses: str, topic: str, partitions: int = 2, *, pause_s: float = PAUSE_S, **settings: object
    ) -> None:
        self.topic, self.partitions, self._pause_s = topic, partitions, pause_s
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """Value by partition and offset, of all that a broker acknowledged."""
        self.failures: list[str] = []
        self.sent = 0
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": addresses, "enable.idempotence": True, "linger.ms": 1, "retry.backoff.max.ms": 200}
            | settings
        )
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> SteadyLoad:
        self._thread.start()
        self.goes_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def rows(self) -> list[Row]:
        """What was acknowledged, as rows of a table."""
        return sorted((partition, offset, value) for (partition, offset), value in self.acknowledged.items())

    def goes_on(self, more: int = 200) -> None:
        """Returns once so many more records were acknowledged."""
        goal = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= goal, f"the producer is stuck: {self.failures}", TIMEOUT_S)

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            for partition in range(self.partitions):
                for _ in range(BURST):
                    self._send(partition)
            self._producer.flush(TIMEOUT_S)
        if left := self._producer.flush(TIMEOUT_S):
            self.failures.append(f"{left} records were never answered")

    def _send(self, partition: int) -> None:
        value = b"%d" % self.sent
        self.sent += 1

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(f"{partition}: {error}")
            else:
                self.acknowledged[partition, message.offset()] = value

        self._producer.produce(self.topic, value, partition=partition, on_delivery=delivered)


@contextmanager
def running_archive(spark: SparkSession, address: str, settings: ArchiveSettings) -> Iterator[Archive]:
    """An archive that follows its topics in a thread, in the session that tests share, while the block runs."""
    stop, failed = threading.Event(), list[BaseException]()
    with Cluster(address) as cluster:
        archive = Archive(spark, cluster, settings)

        def follow() -> None:
            try:
                archive.run(stop)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=follow, name="archive")
        thread.start()
        try:
            yield archive
        finally:
            stop.set()
            thread.join()
    assert failed == []


def await_rows(lake: Path, load: SteadyLoad) -> None:
    """Returns once the table has as many rows as were acknowledged so far."""
    table, wanted = table_of(lake, load.topic), len(load.acknowledged)
    wait_until(lambda: count_rows(table) >= wanted, f"the archive does not come to {wanted}", TIMEOUT_S)


def check_exactly_once(lake: Path, address: str, load: SteadyLoad) -> None:
    """The table is what was acknowledged, each record once, for us and for a reader that is not ours."""
    assert load.failures == []
    rows = rows_of(table_of(lake, load.topic))
    assert rows == load.rows
    assert len({value for _, _, value in rows}) == len(rows)
    with Cluster(address) as cluster:
        proof = verify_lake(place_of(lake), cluster, [load.topic])
    assert (proof.rows, proof.findings) == (len(rows), [])


def check_acknowledged(lake: Path, address: str, load: SteadyLoad) -> None:
    """The table has what was acknowledged, at most what was sent, and no offset twice; after losses of the store.

    Of records that were acknowledged twice with one offset, which nobody could have kept, the later one counts.
    """
    rows = rows_of(table_of(lake, load.topic))
    archived = {(partition, offset): value for partition, offset, value in rows}
    assert len(archived) == len(rows)
    assert {at: value for at, value in load.acknowledged.items() if archived.get(at) != value} == {}
    assert {value for value in archived.values() if int(value or b"-1") not in range(load.sent)} == set()
    with Cluster(address) as cluster:
        assert verify_lake(place_of(lake), cluster, [load.topic]).findings == []

"""An archive that runs for months: what it depends on dies, fills up and goes away, and it never needs a hand.

In the end every row that was acknowledged is there once, for readers that are not ours, and the log tells what
happened in plain sentences.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest

from headrace.lake.storage.place import PENDING, place_of
from headrace.lake.table.catalogue import open_or_create
from headrace.lake.table.snapshot import Identity
from headrace.lake.typed.setting import set_definition
from headrace.schemas.definition import Definition
from tests.broker_process import BrokerProcess, wait_until
from tests.cli.conftest import environment
from tests.conftest import StartBroker
from tests.lake.archiving import table_of
from tests.lake.conftest import Topic
from tests.lake.other_reader import ask, count_rows
from tests.lake.spark_processes import jvm_of, workers_of
from tests.lake.steady_load import TIMEOUT_S, SteadyLoad, await_rows, check_exactly_once

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[3]
DISK_BYTES = 768 << 20
AWAY_S = 120
FOREIGN = "foreign"
MANY = [f"topic-{number}" for number in range(6)]
TYPED = Definition("json", {"type": "integer", "multipleOf": 2})
"""Of the first topic: every other record is a reject."""
PAUSE_S = 0.2
STORY = re.compile(
    r"[\d,]+ rows? archived in \d+\.\d s, [\d,]+ to go(, [\d,]+ parsed, [\d,]+ rejected)?(, [\d,]+ to parse)?"
    r", 2 partitions stopped"
    r"|[^;]+(; [^;]+)*; retrying in \d+ s"
    r"|Spark's JVM is gone: restarting it"
    r"|foreign is not archived: \S+ holds topic foreign of cluster another, not foreign of \S+ Give this cluster "
    r"another --lake, or move the folder away\."
    r"|upkeep of the table of \S+ failed: .+"
    r"|\S+: offsets \d+ to \d+ were lost from the table and have been written again"
)


class Enduring:
    """An archive in a process of its own, the load on its topics, and what is done to them."""

    def __init__(self, broker: BrokerProcess, lake: Path, names: Sequence[str], log: Path) -> None:
        self.broker, self.lake, self.names, self._log_path = broker, lake, names, log
        self.loads: list[SteadyLoad] = []
        self._chance = random.Random(7)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The archive and the load run while the block does; then all there is is archived, and the archive ends."""
        command = [sys.executable, "-m", "tests.lake.following_archive", self.broker.address, str(self.lake)]
        with ExitStack() as stack, self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *self.names, FOREIGN],
                cwd=ROOT, stdout=log, stderr=log, env=environment(TMPDIR=str(self.lake.parent)),
            )  # fmt: skip
            stack.callback(self.process.wait)
            stack.callback(self.process.kill)
            with ExitStack() as sending:
                for name in self.names:
                    load = SteadyLoad(self.broker.address, name, pause_s=PAUSE_S)
                    self.loads.append(sending.enter_context(load))
                self.goes_on()
                yield
            self.goes_on(more=0)
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(TIMEOUT_S) == 0, self.log

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    def goes_on(self, more: int = 40) -> None:
        """Returns once more was sent to each topic, and it is archived, and parsed where there is a schema."""
        for load in self.loads:
            if more:
                load.goes_on(more)
        for load in self.loads:
            await_rows(self.lake, load)
        if self.loads:
            table = table_of(self.lake, self.names[0])
            parsed, wanted = [Path(f"{table}_.typed"), Path(f"{table}_.rejects")], count_rows(table)
            wait_until(lambda: sum(map(count_rows, parsed)) >= wanted, "it is not parsed", TIMEOUT_S)
        assert self.process.poll() is None, self.log

    def says(self, words: str, before: int) -> None:
        """Returns once the log, from a position on, has these words."""
        wait_until(lambda: words in self.log[before:], f"the archive does not say {words!r}", TIMEOUT_S)

    def is_at_work(self) -> bool:
        """Whether tasks have written and their round is not committed."""
        return any(self.lake.glob(f"*/p*/*{PENDING}"))

    def kill_a_worker(self) -> None:
        wait_until(lambda: bool(workers_of(self.process.pid)), "there is no worker", TIMEOUT_S)
        wait_until(self.is_at_work, "nothing is written", TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(self._chance.choice(workers_of(self.process.pid)), signal.SIGKILL)
        self.goes_on()

    def kill_the_jvm(self) -> None:
        before, found = len(self.log), jvm_of(self.process.pid)
        assert found is not None
        wait_until(self.is_at_work, "nothing is written", TIMEOUT_S)
        time.sleep(self._chance.uniform(0, 2))  # not for a state: at any moment of a round, or between two
        os.kill(found, signal.SIGKILL)
        self.goes_on()
        assert "Spark's JVM is gone: restarting it" in self.log[before:]

    def fill_the_disk(self) -> None:
        before, ballast = len(self.log), self.lake.parent / "ballast"
        fill(ballast)
        self.says("No space left on device", before)
        ballast.unlink()
        self.goes_on()

    def take_the_broker_away(self, for_s: float) -> None:
        before = len(self.log)
        self.broker.kill()
        end = time.monotonic() + for_s
        self.says("waiting for the broker", before)
        time.sleep(max(0.0, end - time.monotonic()))  # not for a state: how long it is away is the point
        self.broker.start()
        self.goes_on()

    def check(self) -> None:
        """Every row is there once, nothing is cut off, and the log is plain."""
        for load in self.loads:
            check_exactly_once(self.lake, self.broker.address, load)
            check_with_polars(table_of(self.lake, load.topic), load)
        check_typed(table_of(self.lake, self.names[0]), self.loads[0])
        for file in self.lake.glob("*/p*/*.parquet"):
            ask("SELECT count(*) FROM read_parquet($file)", file=str(file))
        assert [*self.lake.parent.glob("headrace-spark-*")] == [], "Spark's own files"
        told = self.log.splitlines()
        assert [line for line in told if not STORY.fullmatch(line)] == []
        assert sum(line.startswith("foreign is not archived") for line in told) == 1


def fill(ballast: Path) -> None:
    """Takes all the room that a disk has left."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def check_with_polars(table: Path, load: SteadyLoad) -> None:
    """Counts and digests of each partition, by a reader that is not ours, over partition, offset and value."""
    found = pl.read_delta(str(table)).select("partition", "offset", "value")
    sent = pl.DataFrame(load.rows, schema=found.schema, orient="row")

    def by_partition(rows: pl.DataFrame) -> pl.DataFrame:
        digest = pl.struct("offset", "value").hash(seed=1).sum().alias("digest")
        return rows.group_by("partition").agg(pl.len(), pl.col("offset").n_unique().alias("offsets"), digest)

    assert by_partition(found).sort("partition").equals(by_partition(sent).sort("partition"))


def check_typed(table: Path, load: SteadyLoad) -> None:
    """Each record is a typed row or a reject, once."""
    typed = pl.read_delta(f"{table}_.typed").select("_partition", "_offset", "value")
    rejects = pl.read_delta(f"{table}_.rejects").select("partition", "offset", "value")
    sent = [(partition, offset, int(value or b"")) for partition, offset, value in load.rows]
    assert sorted(typed.rows()) == [row for row in sent if row[2] % 2 == 0]
    assert sorted(rejects.rows()) == [(*row[:2], b"%d" % row[2]) for row in sent if row[2] % 2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that can be filled, where this may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def endure(start_broker: StartBroker, tmp_path: Path) -> Callable[[Path, Sequence[str]], Enduring]:
    """An archive of these topics, and of one in whose place lies somebody else's table."""

    def start(lake: Path, names: Sequence[str]) -> Enduring:
        broker = start_broker()
        for name in (*names, FOREIGN):
            topic = Topic(broker, name, 2)
            topic.send([b"0"] if name == FOREIGN else [])
            if name == names[0]:
                assert topic.cluster.cluster_id is not None
                topic_id = topic.admin.describe_topic(name).topic_id
                set_definition(place_of(lake), Identity(topic.cluster.cluster_id, name, topic_id), TYPED)
            topic.cluster.close()
        open_or_create(place_of(lake), Identity("another", FOREIGN, bytes(16)), {})
        return Enduring(broker, lake, names, tmp_path / "archive.log")

    return start


Endure = Callable[[Path, Sequence[str]], Enduring]


@pytest.mark.usefixtures("java")
def test_it_outlives_its_workers_and_its_jvm(endure: Endure, tmp_path: Path) -> None:
    archive = endure(tmp_path / "lake", MANY[:1])
    with archive.running():
        archive.kill_a_worker()
        archive.kill_the_jvm()
    archive.check()


@pytest.mark.faults
@pytest.mark.usefixtures("java")
@pytest.mark.timeout(3600)
def test_it_outlives_whatever_happens_to_it(endure: Endure, small_disk: Path) -> None:
    """Six topics; ten kills of workers, three of the JVM, a full disk, a broker that is away for two minutes.

    The disk is Spark's too, as it is on a machine with one disk.
    """
    archive = endure(small_disk / "lake", MANY)
    with archive.running():
        for number in range(10):
            archive.kill_a_worker()
            if number in (2, 5, 8):
                archive.kill_the_jvm()
        archive.fill_the_disk()
        archive.take_the_broker_away(AWAY_S)
    archive.check()
    print(archive.log)

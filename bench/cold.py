"""Records that are only in the lake, against records in Redis: their throughput, and their effect on other clients.

A tiered topic is archived in this process and leaves Redis; a second topic has the same records and stays. Consumers
are librdkafka's, so what is compared is what a user gets. The lake is a folder in memory where there is one: what is
measured is the reader, not the disk.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from tests.tiered import TieredTopic

from bench import latency
from bench.rdkafka import Job, run_job
from bench.report import Figure, Report
from bench.systems import CpuMeter, Headrace, Null, System, start_python, take_turns, values_of
from bench.targets import ALONE, FROM_REDIS, LIMIT
from headrace.client import Admin, Cluster, Reader
from headrace.lake.archive.task import NothingSkipped, table_rows_of
from headrace.lake.fetching import OffsetRange, fetch_range
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import open_or_create
from headrace.lake.table.delta_log import Written
from headrace.lake.table.parquet_file import RangeWriter
from headrace.lake.table.snapshot import Identity
from headrace.store.options import StoreOptions
from headrace.wire.special_times import EARLIEST_LOCAL

FROM_LAKE, BESIDE_FOUR, BESIDE_LOOPS = "from the lake", "next to four cold consumers", "next to four busy loops"
BESIDE_FED = "next to four consumers that the null broker feeds"
FIRST_BYTE_MS = 300.0
_SHARED_MEMORY = Path("/dev/shm")
_FILES_A_COMMIT = 200


@dataclass(frozen=True)
class Source:
    """A topic to read, under the name of where its records are."""

    name: str
    topic: str


def run(report: Report, *, quick: bool) -> None:
    repeats = 1 if quick else 5
    in_memory = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=in_memory) as folder, _broker(folder) as system:
        lake = Path(folder, "lake")
        for size_bytes, records in [(100, 50_000)] if quick else [(100, 1_000_000), (1_000, 200_000)]:
            _throughput(report, system, lake, size_bytes, records, 1 if quick else 3)
        _first_byte(report, system, lake, 200 if quick else 10_000)
        _disturbance(report, system, repeats, 1 if quick else 4, 50_000 if quick else 1_000_000)


@contextlib.contextmanager
def _broker(folder: str) -> Iterator[Headrace]:
    lake = Path(folder, "lake")
    lake.mkdir()
    system = Headrace(Path(folder), lake=lake, retention_check_interval_ms=500)
    try:
        yield system
    finally:
        system.stop()


def _fill(system: System, topic: str, size_bytes: int, records: int, **config: int) -> None:
    run_job(Job("produce", system.address, topic, records, size_bytes, config=config))


def _fill_to_leave(system: Headrace, topic: str, size_bytes: int, records: int, **config: int) -> None:
    """Fills a tiered topic, so that these records can leave Redis however they were joined to entries.

    What is behind the last point of the index stays there: more than a step of it follows, and the entry that gets the
    point.
    """
    _fill(system, topic, size_bytes, records, **config)
    _fill(system, topic, size_bytes, 2 * StoreOptions().index_interval_bytes // size_bytes)
    _fill(system, topic, size_bytes, 1)


def _tiered(system: Headrace, lake: Path, name: str, size_bytes: int, records: int) -> TieredTopic:
    """A topic whose records are in the lake alone."""
    made = TieredTopic(system.process, lake, name)
    _fill_to_leave(system, name, size_bytes, records)
    made.archive()
    made.wait_until_local_from(records)
    return made


def _forget(system: Headrace) -> None:
    """Starts the broker anew: what it keeps of the newest records in memory would answer for the lake otherwise."""
    system.process.stop()
    system.process.start()


def _throughput(report: Report, system: Headrace, lake: Path, size_bytes: int, records: int, repeats: int) -> None:
    cold, hot = Source(FROM_LAKE, f"cold-{size_bytes}"), Source(FROM_REDIS, f"hot-{size_bytes}")
    _tiered(system, lake, cold.topic, size_bytes, records)
    with Cluster(system.address) as cluster:
        Admin(cluster).create_topic(hot.topic, 1)
    _fill(system, hot.topic, size_bytes, records)
    _forget(system)

    def consumed(source: Source) -> float:
        return run_job(Job("consume", system.address, source.topic, records, size_bytes)).rate

    consumed(cold)  # its process starts with the first question
    found = take_turns([cold, hot], repeats, consumed)
    workload = f"librdkafka consumes {size_bytes} B, 1 partition"
    report.add(Figure("cold", workload, "records/s", values_of(found, float, [FROM_LAKE, FROM_REDIS]), goal="cold"))


# -- The first byte ---------------------------------------------------------------------------------------------


def _first_byte(report: Report, system: Headrace, lake: Path, files: int) -> None:
    """The time of a Fetch at an offset that nobody has read, in a table of many small files."""
    topic = TieredTopic(system.process, lake, "many-files")
    each = 10
    records = each * files
    _fill_to_leave(system, topic.name, 100, records, **{"batch.num.messages": each})
    _archive_in_small_files(system, lake, topic, records, files)
    topic.wait_until_local_from(records)
    _forget(system)
    chance = random.Random(files)
    with Cluster(system.address) as cluster:
        reader = Reader(cluster, max_bytes=1 << 20)
        _first_records_ms(reader, "cold-100", 0)  # the reader's process starts with the first question
        offsets = [chance.randrange(records) for _ in range(20)]
        took_ms = [_first_records_ms(reader, topic.name, offset) for offset in offsets]
    values = {FROM_LAKE: took_ms, LIMIT: [FIRST_BYTE_MS] * len(took_ms)}
    report.add(Figure("cold", f"first records of a Fetch, {files:,} files", "ms", values, goal="first cold byte"))


def _first_records_ms(reader: Reader, topic: str, offset: int) -> float:
    """Until records have come, however many fetches that takes."""
    began = time.perf_counter()
    while not reader.fetch_raw(topic, 0, offset).batches:
        continue
    return (time.perf_counter() - began) * 1000


def _archive_in_small_files(system: Headrace, lake: Path, topic: TieredTopic, records: int, files: int) -> None:
    with Cluster(system.address) as cluster:
        cluster_id = Admin(cluster).describe_cluster().cluster_id
        assert cluster_id is not None
        table = open_or_create(place_of(lake), Identity(cluster_id, topic.name, topic.id), {0: 0})
        wanted = OffsetRange(topic.name, 0, 0, records)
        portions = fetch_range(cluster, wanted, NothingSkipped())
        rows = [part for portion in portions for part in table_rows_of(portion, wanted)]
    each, written = records // files, list[Written]()
    whole = pa.Table.from_batches(rows).combine_chunks()
    for start in range(0, records, each):
        writer = RangeWriter(table.place, 0, start)
        for batch in whole.slice(start, each).to_batches():
            writer.add(batch)
        written.append(writer.finish(start + each))
        if len(written) == _FILES_A_COMMIT or start + each == records:
            table.commit(written)
            written = []


# -- Others -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Company:
    """Who else is there meanwhile."""

    name: str
    consumers: int = 0
    is_fed_by_null: bool = False
    """Whether these consumers get as many bytes from the null broker: what they cost others by being there."""
    loops: int = 0
    """Processes that have nothing to do with the broker, and only want its cores."""


_COMPANIES = (
    Company(BESIDE_FOUR, consumers=4),
    Company(ALONE),
    Company(BESIDE_FED, consumers=4, is_fed_by_null=True),
    Company(BESIDE_LOOPS, loops=4),
)


class _Met(NamedTuple):
    p99_ms: float
    consumed_mb_per_s: float
    broker_ms_per_s: float
    """CPU of the broker process, from the first consumer's start on."""


def _disturbance(report: Report, system: Headrace, repeats: int, seconds: int, records: int) -> None:
    with Cluster(system.address) as cluster:
        cold_end = Admin(cluster).list_offsets({("cold-100", 0): EARLIEST_LOCAL})["cold-100", 0].offset
    null = Null()
    try:
        with Cluster(null.address) as cluster:
            Admin(cluster).create_topic("fed", 1)
        _fill(null, "fed", 100, records)
        rate = 0

        def measured(company: Company) -> _Met:
            nonlocal rate
            feeder, topic, end = (null, "fed", records) if company.is_fed_by_null else (system, "cold-100", cold_end)
            consumers = Consumers(feeder, topic, end, company.consumers, rate if company.is_fed_by_null else 0)
            began_s = time.monotonic()
            with _busy_loops(company.loops), CpuMeter({"broker": system.pids["broker"]}) as cpu, consumers:
                p99_ms = latency.end_to_end(system, seconds)["p99"]
            passed_s = time.monotonic() - began_s
            if company.name == BESIDE_FOUR:
                rate = int(consumers.bytes_per_second)
            return _Met(p99_ms, consumers.bytes_per_second / 1e6, cpu.used_s["broker"] * 1000 / passed_s)

        found = take_turns(_COMPANIES, repeats, measured)
    finally:
        null.stop()
    names = [company.name for company in _COMPANIES]
    hot = "hot records end to end, 5,000/s of 100 B"
    p99s = values_of(found, lambda met: met.p99_ms, names)
    report.add(Figure("cold", f"{hot}, p99", "ms", p99s, goal="beside cold"))
    broker = values_of(found, lambda met: met.broker_ms_per_s, names)
    report.add(Figure("cold", f"{hot}, meanwhile: broker CPU", "ms/s", broker))
    consumed = values_of(found, lambda met: met.consumed_mb_per_s, [BESIDE_FOUR, BESIDE_FED])
    report.add(Figure("cold", f"{hot}, meanwhile: the four consume", "MB/s", consumed))


@contextlib.contextmanager
def _busy_loops(count: int) -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in started:
            loop.kill()
            loop.wait()


class Consumers:
    """Consumers that read a topic over and over, each from another place, while a `with` block runs."""

    def __init__(self, system: System, topic: str, end: int, count: int, bytes_per_second: int) -> None:
        each = bytes_per_second // count if count else 0
        self._arguments = [(system.address, topic, str(end), str(number / count), str(each)) for number in range(count)]
        self._started: list[subprocess.Popen[str]] = []
        self.bytes_per_second = 0.0
        """What came, once the block is over."""

    def __enter__(self) -> None:
        for arguments in self._arguments:
            self._started.append(start_python("bench.cold_consumer", *arguments, stdout=subprocess.PIPE))
        try:
            for consumer in self._started:
                assert consumer.stdout is not None
                if consumer.stdout.readline().strip() != "ready":
                    raise RuntimeError("a consumer did not get ready")
        except BaseException:
            self._end()
            raise
        self._began_s = time.monotonic()

    def __exit__(self, *_: object) -> None:
        passed_s = time.monotonic() - self._began_s
        self.bytes_per_second = self._end() / passed_s

    def _end(self) -> int:
        for consumer in self._started:
            consumer.terminate()
        return sum(int(consumer.communicate()[0] or 0) for consumer in self._started)

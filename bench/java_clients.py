"""Load from Kafka's own ProducerPerformance and ConsumerPerformance, the programs behind kafka-*-perf-test.sh.

A Java program gets faster while it runs, so the first part of what it sends is a warm-up that its figure leaves out; so
does the figure of a consumer at the tail, which is as fast as its producer. From the start, a consumer's figure is its
fetching alone, without joining its group. CPU and requests are those of the whole program, its start included.
"""

from __future__ import annotations

import contextlib
import re
import resource
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from bench.kafka import tool_command
from bench.payloads import values

_TIMEOUT_S = 300
_WARM_UP = 1 / 4
_PROGRESS_MS = 100
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S:%f"
_STEADY = re.compile(r"^\d+ steady state records sent, ([\d.]+) records/sec", re.MULTILINE)
_PRODUCED = re.compile(r"^producer-metrics:request-total:\S+ *: ([\d.]+)", re.MULTILINE)
_FETCHED = re.compile(r"^consumer-fetch-manager-metrics:fetch-total:\{client-id=[^,}]+\} *: ([\d.]+)", re.MULTILINE)
_ROW = re.compile(r"^\d{4}-.*, .*$", re.MULTILINE)
_CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
_FETCH_RATE = -1
_RECORDS = 4


class Ran(NamedTuple):
    """Records a second; the CPU seconds of the program or programs, and their Produce and Fetch requests."""

    rate: float
    cpu_s: float
    requests: int


def payload_file(folder: Path, size_bytes: int) -> Path:
    """The values that librdkafka's load has too, a line each."""
    path = folder / f"values-{size_bytes}"
    path.write_bytes(b"\n".join(values(size_bytes)) + b"\n")
    return path


def produce(address: str, topic: str, records: int, payloads: Path, config: dict[str, str]) -> Ran:
    """The rate is that after the warm-up."""
    before_s = _used_s()
    output = _run(
        "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", address, "--topic", topic,
        "--num-records", str(records), "--warmup-records", str(int(records * _WARM_UP)), "--throughput", "-1",
        "--payload-file", str(payloads), "--print-metrics",
        "--command-property", *(f"{key}={value}" for key, value in config.items()),
    )  # fmt: skip
    found = _STEADY.search(output)
    if found is None:
        raise RuntimeError(f"ProducerPerformance gave no figure: {output[-1000:]}")
    return Ran(float(found[1]), _used_s() - before_s, _total(_PRODUCED, output))


def consume(address: str, topic: str, records: int) -> Ran:
    """From the topic's start."""
    before_s = _used_s()
    output = _run(_CONSUMER, *_consumer_arguments(address, topic, records))
    row = _rows(output)[-1]
    if int(row[_RECORDS]) < records:
        raise RuntimeError(f"ConsumerPerformance got {row[_RECORDS]} of {records} records")
    return Ran(float(row[_FETCH_RATE]), _used_s() - before_s, _total(_FETCHED, output))


def tail(address: str, topic: str, records: int, send: Callable[[], Ran]) -> Ran:
    """A consumer that waits while `send` produces so many; its rate after the warm-up, CPU and requests of both.

    A record has to be in the topic: that the consumer has read it shows that it waits for more.
    """
    before_s = _used_s()
    shown = ("--show-detailed-stats", "--reporting-interval", str(_PROGRESS_MS))
    command = tool_command(_CONSUMER, *_consumer_arguments(address, topic, records + 1), *shown)
    with _started(command) as consumer:
        assert consumer.stdout is not None
        if not consumer.stdout.readline():
            raise RuntimeError("ConsumerPerformance did not get ready")
        sent = send()
        output = consumer.communicate(timeout=_TIMEOUT_S)[0]
    rows = _rows(output)
    warm = [(_seconds(row[0]), int(row[_RECORDS])) for row in rows if int(row[_RECORDS]) >= records * _WARM_UP]
    if consumer.returncode or len(warm) < 2:
        raise RuntimeError(f"ConsumerPerformance ended with {consumer.returncode} after {len(rows)} steps")
    (began_s, first), (ended_s, last) = warm[0], warm[-1]
    rate = (last - first) / (ended_s - began_s)
    return Ran(rate, _used_s() - before_s, sent.requests + _total(_FETCHED, output))


def _used_s() -> float:
    """CPU seconds of the programs that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _rows(output: str) -> list[list[str]]:
    return [row.split(", ") for row in _ROW.findall(output)]


def _total(metric: re.Pattern[str], output: str) -> int:
    return round(sum(float(found) for found in metric.findall(output)))


def _consumer_arguments(address: str, topic: str, records: int) -> tuple[str, ...]:
    return (
        "--bootstrap-server", address, "--topic", topic, "--num-records", str(records), "--timeout", "60000",
        "--hide-header", "--print-metrics",
    )  # fmt: skip


def _seconds(time: str) -> float:
    return datetime.strptime(time, _TIME_FORMAT).astimezone().timestamp()


@contextlib.contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _run(class_name: str, *arguments: str) -> str:
    done = subprocess.run(
        tool_command(class_name, *arguments), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{class_name} ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
    return done.stdout

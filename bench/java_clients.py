"""Load from Kafka's own ProducerPerformance and ConsumerPerformance, the programs behind kafka-*-perf-test.sh.

A Java program gets faster while it runs, so the first part of what it sends is a warm-up that its figure leaves out; so
does the figure of a consumer at the tail, which is as fast as its producer. From the start, a consumer's figure is its
fetching alone, without joining its group.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from bench.kafka import tool_command
from bench.payloads import values

_TIMEOUT_S = 300
_WARM_UP = 1 / 4
_PROGRESS_MS = 100
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S:%f"
_STEADY = re.compile(r"^\d+ steady state records sent, ([\d.]+) records/sec", re.MULTILINE)
_CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
_FETCH_RATE = -1
_RECORDS = 4


def payload_file(folder: Path, size_bytes: int) -> Path:
    """The values that librdkafka's load has too, a line each."""
    path = folder / f"values-{size_bytes}"
    path.write_bytes(b"\n".join(values(size_bytes)) + b"\n")
    return path


def produce_rate(address: str, topic: str, records: int, payloads: Path, config: dict[str, str]) -> float:
    """Records a second, after the warm-up."""
    output = _run(
        "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", address, "--topic", topic,
        "--num-records", str(records), "--warmup-records", str(int(records * _WARM_UP)), "--throughput", "-1",
        "--payload-file", str(payloads), "--command-property", *(f"{key}={value}" for key, value in config.items()),
    )  # fmt: skip
    found = _STEADY.search(output)
    if found is None:
        raise RuntimeError(f"ProducerPerformance gave no figure: {output[-1000:]}")
    return float(found[1])


def consume_rate(address: str, topic: str, records: int) -> float:
    """Records a second from the topic's start."""
    row = _run(_CONSUMER, *_consumer_arguments(address, topic, records)).strip().splitlines()[-1].split(", ")
    if int(row[_RECORDS]) < records:
        raise RuntimeError(f"ConsumerPerformance got {row[_RECORDS]} of {records} records")
    return float(row[_FETCH_RATE])


def tail_rate(address: str, topic: str, records: int, produce: Callable[[], object]) -> float:
    """Records a second, after the warm-up, of a consumer that waits while `produce` sends so many.

    A record has to be in the topic: that the consumer has read it shows that it waits for more.
    """
    shown = ("--show-detailed-stats", "--reporting-interval", str(_PROGRESS_MS))
    command = tool_command(_CONSUMER, *_consumer_arguments(address, topic, records + 1), *shown)
    with _started(command) as consumer:
        assert consumer.stdout is not None
        if not consumer.stdout.readline():
            raise RuntimeError("ConsumerPerformance did not get ready")
        produce()
        rows = [row.split(", ") for row in consumer.communicate(timeout=_TIMEOUT_S)[0].splitlines()]
    warm = [(_seconds(row[0]), int(row[_RECORDS])) for row in rows if int(row[_RECORDS]) >= records * _WARM_UP]
    if consumer.returncode or len(warm) < 2:
        raise RuntimeError(f"ConsumerPerformance ended with {consumer.returncode} after {len(rows)} steps")
    (began_s, first), (ended_s, last) = warm[0], warm[-1]
    return (last - first) / (ended_s - began_s)


def _consumer_arguments(address: str, topic: str, records: int) -> tuple[str, ...]:
    return (
        "--bootstrap-server", address, "--topic", topic, "--num-records", str(records), "--timeout", "60000",
        "--hide-header",
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

"""Load from Kafka's own ProducerPerformance and ConsumerPerformance, the programs behind kafka-*-perf-test.sh.

A Java program gets faster while it runs, so the first part of a producer's records is a warm-up that it leaves out
of its figure; the consumer's figure is its fetching alone, without joining its group.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from bench.kafka import tool_command
from bench.payloads import values

_TIMEOUT_S = 300
_STEADY = re.compile(r"^\d+ steady state records sent, ([\d.]+) records/sec", re.MULTILINE)
_FETCH_RATE = -1
_RECORDS = 4


def payload_file(folder: Path, size_bytes: int) -> Path:
    """The values that librdkafka's load has too, a line each."""
    path = folder / f"values-{size_bytes}"
    path.write_bytes(b"\n".join(values(size_bytes)) + b"\n")
    return path


def produce_rate(address: str, topic: str, records: int, payloads: Path, config: dict[str, str]) -> float:
    """Records a second, after a warm-up of a quarter of them."""
    output = _run(
        "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", address, "--topic", topic,
        "--num-records", str(records), "--warmup-records", str(records // 4), "--throughput", "-1",
        "--payload-file", str(payloads), "--command-property", *(f"{key}={value}" for key, value in config.items()),
    )  # fmt: skip
    found = _STEADY.search(output)
    if found is None:
        raise RuntimeError(f"ProducerPerformance gave no figure: {output[-1000:]}")
    return float(found[1])


def consume_rate(address: str, topic: str, records: int) -> float:
    """Records a second from the topic's start."""
    output = _run(
        "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", address, "--topic", topic,
        "--num-records", str(records), "--timeout", "60000", "--hide-header",
    )  # fmt: skip
    row = output.strip().splitlines()[-1].split(", ")
    if int(row[_RECORDS]) < records:
        raise RuntimeError(f"ConsumerPerformance got {row[_RECORDS]} of {records} records")
    return float(row[_FETCH_RATE])


def _run(class_name: str, *arguments: str) -> str:
    done = subprocess.run(
        tool_command(class_name, *arguments), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{class_name} ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
    return done.stdout

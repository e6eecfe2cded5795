"""Clients that stay: a program that produces and one that consumes, librdkafka's or Kafka's own, for all systems.

A Java program gets faster while it runs, and its start takes as much CPU as sending 100 MB: of a program that runs for
two seconds a figure says little about the broker. So the programs are started once, take jobs as lines of JSON, and
make a client for each. Time and CPU are those of a job alone: when producing, from the first record to the last
acknowledgement; when consuming, from the assignment of partitions, or at the tail from the first records, to the last
record.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.kafka import tool_command
from bench.payloads import values
from bench.rdkafka import Done, Job
from bench.systems import start_python
from bench.workloads import Workload

_JAVA_SOURCE = Path(__file__).with_name("Clients.java")


class Program:
    """Does one job after the other. It gives up by itself if a broker does not answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, job: Job) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(job).decode() + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """The next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line or line.startswith('{"failed"'):
            raise RuntimeError(f"the client: {line.strip() or 'it ended'}")
        return line

    def done(self) -> Done:
        return msgspec.json.decode(self.answer(), type=Done)

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass(frozen=True)
class Clients:
    """The two programs."""

    producing: Program
    consuming: Program
    folder: Path
    """For the values, which Java reads from a file."""

    def produce(self, address: str, topic: str, workload: Workload) -> Done:
        self.producing.start(self._job("produce", address, topic, workload))
        return self.producing.done()

    def consume(self, address: str, topic: str, workload: Workload) -> Done:
        """From the topic's start."""
        self.consuming.start(self._job("consume", address, topic, workload))
        return self.consuming.done()

    def tail(self, address: str, topic: str, workload: Workload) -> Done:
        """A consumer that waits while they are produced: its rate, and the CPU and requests of both.

        Once it has read a record that was in the topic before, it waits for more.
        """
        first = msgspec.structs.replace(self._job("produce", address, topic, workload), records=1)
        self.producing.start(first)
        self.producing.done()
        self.consuming.start(self._job("tail", address, topic, workload))
        self.consuming.answer()
        sent = self.produce(address, topic, workload)
        read = self.consuming.done()
        read.cpu_s += sent.cpu_s
        read.requests += sent.requests
        return read

    def _job(self, kind: str, address: str, topic: str, workload: Workload) -> Job:
        job = Job(kind, address, topic, workload.records, workload.size_bytes, workload.partitions)
        if kind == "produce":
            job.config, job.payloads = dict(workload.config), str(self._payloads(workload.size_bytes))
        return job

    def _payloads(self, size_bytes: int) -> Path:
        """A value a line."""
        path = self.folder / f"values-{size_bytes}"
        if not path.exists():
            path.write_bytes(b"\n".join(values(size_bytes)) + b"\n")
        return path


@contextlib.contextmanager
def rdkafka_clients() -> Iterator[Clients]:
    """Librdkafka's."""
    with contextlib.ExitStack() as stack:
        pipe = subprocess.PIPE
        yield _clients(stack, *(start_python("bench.rdkafka", stdin=pipe, stdout=pipe) for _ in range(2)))


@contextlib.contextmanager
def java_clients() -> Iterator[Clients]:
    """Kafka's own, used as ProducerPerformance and ConsumerPerformance do (Clients.java)."""
    command, pipe = tool_command(str(_JAVA_SOURCE)), subprocess.PIPE
    with contextlib.ExitStack() as stack:
        started = (
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) for _ in range(2)
        )
        yield _clients(stack, *started)


def _clients(
    stack: contextlib.ExitStack, producing: subprocess.Popen[str], consuming: subprocess.Popen[str]
) -> Clients:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-"))
    programs = Program(producing), Program(consuming)
    for program in programs:
        stack.callback(program.stop)
    return Clients(*programs, Path(folder))

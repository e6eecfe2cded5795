"""The systems under test, each started the same way and reached at an address; how they alternate.

Headrace runs as a user starts it, with its embedded Valkey and its default durability (`everysec`), on the Python that
interpreter.py chose. The processes of a system are named, so that their CPU and memory can be read apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from tests.broker_process import BrokerProcess
from tests.redis_view import RedisView

from bench import interpreter, kafka
from bench.interpreter import ROOT
from bench.pace import PACE
from bench.processes import cpu_s
from bench.report import HEADRACE, KAFKA, NULL_BROKER, Report
from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.store.embedded.ports import free_ports

T = TypeVar("T")
S = TypeVar("S", bound="Named")
_MAXMEMORY_BYTES = 4 << 30
_SETTLE_TIMEOUT_S = 90.0
_STORE_WORK = (
    "lazyfree_pending_objects", "aof_rewrite_in_progress", "aof_rewrite_scheduled", "aof_pending_bio_fsync",
)  # fmt: skip
_DELETES_SOON = "log.segment.delete.delay.ms=100\nlog.initial.task.delay.ms=1000\n"
"""Kafka removes the files of a deleted topic a minute later: in the middle of some other system's turn."""


class Named(Protocol):
    """Whatever takes turns."""

    @property
    def name(self) -> str: ...


class System(ABC):
    """A broker under test."""

    name: str
    host = "127.0.0.1"
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT, as clients want it."""
        return f"{self.host}:{self.port}"

    @property
    def nodes(self) -> list[str]:
        """Those that each have to be told of a topic."""
        return [self.address]

    @property
    @abstractmethod
    def pids(self) -> dict[str, int]:
        """Its processes: what each is -> its id."""

    @abstractmethod
    def stop(self) -> None:
        """Ends it."""

    def is_idle(self, deleted: str) -> bool:
        """Whether a deleted topic is gone and no work is left: that would be the next turn's cost."""
        del deleted
        return True

    def settle(self, deleted: str) -> None:
        """Returns once it is idle."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while not self.is_idle(deleted):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} is still busy {_SETTLE_TIMEOUT_S:g} s after a turn")
            time.sleep(0.01)


class _AsUsersDo(BrokerProcess):
    """Started as a program of its own, also once a part has imported the tests' conftest, which has them forked."""

    is_forked: ClassVar = False


def broker_process(folder: Path, **settings: object) -> BrokerProcess:
    """A broker that is not started yet, on the servers' Python."""
    process = _AsUsersDo(folder, **settings)
    process.python = interpreter.for_servers().build.path
    process.environment["PYTHONPATH"] = interpreter.search_path()
    return process


class Headrace(System):
    """`headrace serve` with its embedded Valkey."""

    name = HEADRACE

    def __init__(self, folder: Path, **settings: object) -> None:
        settings = {"maxmemory_bytes": _MAXMEMORY_BYTES, "log_level": "warning"} | settings
        folder.mkdir(parents=True, exist_ok=True)
        self.process = broker_process(folder / "headrace", **settings).start()
        self.port = self.process.port

    @property
    def pids(self) -> dict[str, int]:
        return {"broker": self.process.pid, "store": self.process.valkey_pid}

    @property
    def store_socket(self) -> str:
        """Where the embedded server listens."""
        found: str = json.loads((self.process.data_dir / "valkey.json").read_text())["socket"]
        return found

    def is_idle(self, deleted: str) -> bool:
        """The store has freed what was deleted, and rewrites or syncs no file."""
        with RedisView.of(self.process) as redis:
            facts = redis.call("INFO", "memory", "persistence")
            return not any(int(facts[name]) for name in _STORE_WORK) and not redis.keys(f"*{{{deleted}:*")

    def settle(self, deleted: str) -> None:
        """The last second of a turn is not on disk yet: its sync would begin in the next system's turn."""
        for path in (self.process.data_dir / "valkey" / "appendonlydir").glob("*.incr.aof"):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:  # a rewrite has just replaced it
                os.fsync(file.fileno())
        super().settle(deleted)

    def stop(self) -> None:
        self.process.end()


class Kafka(System):
    """Apache Kafka with its default settings."""

    name = KAFKA

    def __init__(self, folder: Path, more_properties: str = "") -> None:
        self.node = kafka.KafkaNode(folder / "kafka", _DELETES_SOON + more_properties)
        self.port = self.node.port
        self.node.start()

    @property
    def pids(self) -> dict[str, int]:
        return {"broker": self.node.pid}

    def is_idle(self, deleted: str) -> bool:
        """The topic's files are gone."""
        return not any(self.node.logs.glob(f"{deleted}-*"))

    def stop(self) -> None:
        self.node.stop()


class Null(System):
    """The null broker, or several that share the partitions."""

    name = NULL_BROKER

    def __init__(self, nodes: int = 1) -> None:
        self._ports = free_ports(nodes)
        self.port = self._ports[0]
        self._processes = [self._node(number) for number in range(nodes)]
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.readline()

    def _node(self, number: int) -> subprocess.Popen[str]:
        ports = map(str, self._ports)
        return start_python("bench.null_broker", str(number), *ports, stdout=subprocess.PIPE, is_server=True)

    @property
    def nodes(self) -> list[str]:
        return [f"{self.host}:{port}" for port in self._ports]

    @property
    def pids(self) -> dict[str, int]:
        first, *others = self._processes
        return {"broker": first.pid} | {f"broker {number}": one.pid for number, one in enumerate(others, 2)}

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
            process.communicate()


@contextlib.contextmanager
def lineup(report: Report, *names: str, are_groups_quick: bool = False) -> Iterator[list[System]]:
    """Starts systems by name, Headrace first, and ends them; Kafka is left out where it cannot be had.

    Groups that are quick do not wait for more members: for parts that leave that wait out of their figures anyway.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        started: list[System] = []
        for wanted in names:
            if wanted == KAFKA and not has_kafka(report):
                continue
            system = start(wanted, Path(name), are_groups_quick=are_groups_quick)
            stack.callback(system.stop)
            started.append(system)
        yield started


def start(name: str, folder: Path, *, are_groups_quick: bool = False) -> System:
    """A system by its name, with a folder that it may have been in before."""
    if name == HEADRACE:
        return Headrace(folder, **({"group_initial_rebalance_delay_ms": 0} if are_groups_quick else {}))
    if name == KAFKA:
        return Kafka(folder, "group.initial.rebalance.delay.ms=0\n" if are_groups_quick else "")
    return Null()


def has_kafka(report: Report) -> bool:
    """Whether Kafka can be run here; if not the report says why."""
    if KAFKA not in report.left_out and (why := kafka.why_not()):
        report.leave_out(KAFKA, why)
    return KAFKA not in report.left_out


def take_turns(
    systems: Sequence[S],
    repeats: int,
    measure: Callable[[S], T],
    *,
    seldom: Collection[str] = (),
    seldom_repeats: int = 1,
) -> dict[str, list[T]]:
    """Measures each system `repeats` times, one after the other, each round beginning with another one.

    Those that are `seldom` measured take part in the first rounds only: what they are for needs no more. A part that is
    over its budget gets fewer rounds.
    """
    found: dict[str, list[T]] = {system.name: [] for system in systems}
    PACE.begin_set()
    for repeat in range(repeats):
        if not PACE.allows(repeat):
            break
        first = repeat % len(systems)
        for system in [*systems[first:], *systems[:first]]:
            if system.name not in seldom or repeat < seldom_repeats:
                found[system.name].append(measure(system))
    return found


@contextlib.contextmanager
def topic(
    system: System, name: str, partitions: int = 1, configs: dict[str, str | None] | None = None
) -> Iterator[str]:
    """A topic that is there for one measurement; after it the system is idle again."""
    with contextlib.ExitStack() as stack:
        admins = [Admin(stack.enter_context(Cluster(address))) for address in system.nodes]
        for admin in admins:
            admin.create_topic(name, partitions, configs, replication_factor=1)
        try:
            yield name
        finally:
            for admin in admins:
                admin.delete_topic(name)
    system.settle(name)


class CpuMeter:
    """Seconds of CPU that processes use while a `with` block runs."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self.used_s: dict[str, float] = {}

    def __enter__(self) -> CpuMeter:
        self._before = {what: cpu_s(pid) for what, pid in self._pids.items()}
        return self

    def __exit__(self, *_: object) -> None:
        self.used_s = {what: cpu_s(pid) - self._before[what] for what, pid in self._pids.items()}


def start_python(
    module: str, *arguments: str, stdin: int | None = None, stdout: int | None = None, is_server: bool = False
) -> subprocess.Popen[str]:
    """A module of ours as a process of its own; a server runs on the servers' Python."""
    if is_server:
        python, path = interpreter.for_servers().build.path, os.pathsep.join([str(ROOT), interpreter.search_path()])
    else:
        python, path = sys.executable, os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.Popen([python, "-m", module, *arguments], stdin=stdin, stdout=stdout, env=environment, text=True)


def run_python(module: str, *arguments: str, timeout_s: float = 300, is_server: bool = False) -> str:
    """What a module of ours prints; an error if it fails."""
    process = start_python(module, *arguments, stdout=subprocess.PIPE, is_server=is_server)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)} ended with {process.returncode}")
    return output


def values_of(found: dict[str, list[T]], pick: Callable[[T], float], order: Iterable[str]) -> dict[str, list[float]]:
    """One number of each measurement, by system, the subject first."""
    return {name: [pick(one) for one in found[name]] for name in order if name in found}

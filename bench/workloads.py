"""What is produced and consumed, what one run of it took, and its rows in the report: shared by all throughput parts.

Every row has the CPU of each process beside it (`Figure.costs`), measured in the same run, so that a miss can be read
as what it is: the client's, the broker's or the store's.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from bench.report import Figure, Report
from bench.systems import CpuMeter, System

CLIENT = "client"
SERVER_CPU, SERVER_CPU_REQUESTS = "server CPU", "server CPU per request"
MS_A_MB, US_A_REQUEST = "ms CPU/MB, all servers", "us CPU/request, all servers"
_MB = 1e6


@dataclass(frozen=True)
class Workload:
    """One way to produce."""

    size_bytes: int
    partitions: int
    acks: str
    codec: str
    records: int

    def __str__(self) -> str:
        size = "1 KB" if self.size_bytes == 1_000 else f"{self.size_bytes} B"
        partitions = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{size}, {partitions}, acks {self.acks}" + (f", {self.codec}" if self.codec != "none" else "")

    @property
    def config(self) -> dict[str, str]:
        return {"acks": self.acks, "compression.type": self.codec}

    @property
    def payload_mb(self) -> float:
        return self.records * self.size_bytes / _MB

    @property
    def is_read_too(self) -> bool:
        """What is stored does not depend on acks."""
        return self.acks == "all"


def workloads(total_bytes: Mapping[int, int]) -> Iterable[Workload]:
    """Every way, with records of those sizes and of so many bytes in all."""
    for size, partitions, acks, codec in product(total_bytes, (1, 6), ("1", "all"), ("none", "lz4")):
        yield Workload(size, partitions, acks, codec, total_bytes[size] // size)


class Acted(Protocol):
    """What a client's program says of itself."""

    @property
    def rate(self) -> float: ...

    @property
    def cpu_s(self) -> float: ...

    @property
    def requests(self) -> int: ...


@dataclass(frozen=True)
class Run:
    """One run: records a second, CPU in milliseconds a MB of values by process, and requests."""

    rate: float
    cpu_ms: dict[str, float]
    requests: int
    payload_mb: float

    @property
    def servers_ms(self) -> float:
        """All server processes together."""
        return sum(used for what, used in self.cpu_ms.items() if what != CLIENT)

    @property
    def request_us(self) -> float:
        return self.servers_ms * self.payload_mb * 1000 / self.requests if self.requests else 0.0


def run_of(acted: Acted, meter: CpuMeter, workload: Workload) -> Run:
    """What the client says of its run, and what the servers used meanwhile."""
    used_s = {CLIENT: acted.cpu_s} | meter.used_s
    per_mb = {what: used / workload.payload_mb * 1000 for what, used in used_s.items()}
    return Run(acted.rate, per_mb, acted.requests, workload.payload_mb)


@dataclass(frozen=True)
class Row:
    """Where the rows of a workload go."""

    part: str
    workload: str
    goal: str
    cpu_part: str = SERVER_CPU
    requests_part: str = SERVER_CPU_REQUESTS


def add_rows(report: Report, row: Row, systems: Sequence[System], found: Mapping[str, Sequence[Run]]) -> None:
    """The rate, the servers' CPU for a MB, and for a request."""
    runs = {system.name: found[system.name] for system in systems if found.get(system.name)}
    costs = {name: _median_costs(of_one) for name, of_one in runs.items()}
    rates = {name: [run.rate for run in of_one] for name, of_one in runs.items()}
    report.add(Figure(row.part, row.workload, "records/s", rates, goal=row.goal, costs=costs))
    servers = {name: [run.servers_ms for run in of_one] for name, of_one in runs.items()}
    report.add(Figure(row.cpu_part, row.workload, MS_A_MB, servers))
    requests = {name: [run.request_us for run in of_one] for name, of_one in runs.items()}
    report.add(Figure(row.requests_part, row.workload, US_A_REQUEST, requests))


def _median_costs(runs: Sequence[Run]) -> dict[str, float]:
    return {what: statistics.median(run.cpu_ms[what] for run in runs) for what in runs[0].cpu_ms}

"""A Redis Cluster of three primaries, and two nodes, beside one of each: rates, and CPU of all processes, in turns.

Each system is reached over TCP, so that only the number of nodes and servers differs. Two cores cannot show what more
nodes and servers are for, more throughput; they show what spreading the work costs. Two null brokers beside one show
how much of that no broker can avoid: the same load arrives over twice the connections, in smaller parts.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
from tests.broker_process import RedisProcess
from tests.nodes_process import node_pids, ports_in_a_row

from bench.rdkafka import Done, Job, run_job
from bench.report import NULL_BROKER, Figure, Report
from bench.systems import CpuMeter, Null, System, broker_process, run_python, take_turns, topic
from headrace.store.embedded.trial import TrialCluster

_PARTITIONS = 6
_SIZE_BYTES = 1_000
_ONE = "one of each"
_CLUSTER = "a Redis Cluster of three"
_TWO_NODES = "two nodes"
_TWO_NULLS = "two null brokers"
_SMALL_FETCH = {"fetch.message.max.bytes": 512 << 10}
"""Half of librdkafka's own: one node and two are then asked about as often."""
_ROUNDS = 8
"""A stream of 200 MB takes a second, and its CPU varies by half: nodes and servers may have given memory back since the
last one, and pay with up to 500 page faults for a MB. Few rounds show little else."""


class _Spread(System):
    """Nodes on servers of their own."""

    def __init__(self, name: str, folder: Path, url: str, servers: list[int], nodes: int) -> None:
        self.name = name
        self._servers = servers
        folder.mkdir()
        settings: dict[str, object] = {"redis": url, "log_level": "warning"}
        if nodes > 1:
            settings |= {"nodes": nodes, "port": ports_in_a_row(nodes)}
        self._process = broker_process(folder / "headrace", **settings).start()
        self.port = self._process.port

    @property
    def pids(self) -> dict[str, int]:
        all_of_them = [self._process.pid, *node_pids(self._process), *self._servers]
        return {str(pid): pid for pid in all_of_them}

    def stop(self) -> None:
        self._process.end()


_Figures = dict[tuple[str, str], float]
"""By workload and unit."""


def run(report: Report, *, quick: bool) -> None:
    records, rounds = (5_000, 10) if quick else (200_000, 200)
    with _systems() as systems:
        for measure in (partial(_stream, records), partial(_small, rounds)):
            if not quick:
                take_turns(systems, 1, measure)
            found = take_turns(systems, 1 if quick else _ROUNDS, measure)
            for workload, unit in found[_ONE][0]:
                values = {name: [turn[workload, unit] for turn in turns] for name, turns in found.items()}
                for name, beside in ((_CLUSTER, _ONE), (_TWO_NODES, _ONE), (_TWO_NULLS, NULL_BROKER)):
                    report.add(Figure("spread", workload, unit, {name: values[name], beside: values[beside]}))


@contextlib.contextmanager
def _systems() -> Iterator[list[System]]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)

        def system(label: str, url: str, servers: list[int], nodes: int = 1) -> _Spread:
            made = _Spread(label, folder / label, url, servers, nodes)
            stack.callback(made.stop)
            return made

        def server(label: str) -> RedisProcess:
            made = RedisProcess(folder / f"server of {label}", "everysec")
            stack.callback(made.end)
            return made.start()

        cluster = TrialCluster(folder / "servers", primaries=3, replicas=0)
        stack.callback(cluster.stop)
        cluster.start()
        one, other = server("one"), server(_TWO_NODES)
        null, nulls = Null(), Null(nodes=2)
        nulls.name = _TWO_NULLS
        stack.callback(null.stop)
        stack.callback(nulls.stop)
        yield [
            system(_TWO_NODES, other.url, [other.pid], nodes=2),
            system(_CLUSTER, cluster.url, [each.pid for each in cluster.servers]),
            system(_ONE, one.url, [one.pid]),
            nulls,
            null,
        ]


def _stream(records: int, system: System) -> _Figures:
    """In, and out from the start: with librdkafka's own settings, and with less of a partition in each answer."""
    job = Job("produce", system.address, "bench", records, _SIZE_BYTES, _PARTITIONS)
    out, half = (msgspec.structs.replace(job, kind="consume", config=config) for config in ({}, _SMALL_FETCH))
    jobs = {
        "produce, 1 KB": job,
        "consume from the start, 1 KB": out,
        "consume from the start, 1 KB, 512 KB a request and partition": half,
    }
    found: _Figures = {}
    with topic(system, "bench", _PARTITIONS):
        for workload, each in jobs.items():
            with CpuMeter(system.pids) as meter:
                done = run_job(each)
            found[workload, "records/s"] = done.rate
            found[workload, "requests"] = done.requests
            used_ms = sum(meter.used_s.values()) / (records * _SIZE_BYTES / 1e6) * 1000
            found[workload, "ms CPU/MB, all processes"] = used_ms
    return found


def _small(rounds: int, system: System) -> _Figures:
    with topic(system, "bench", _PARTITIONS), CpuMeter(system.pids) as meter:
        done = msgspec.json.decode(run_python("bench.small_producers", system.address, str(rounds)), type=Done)
    workload, used_us = "100 producers, linger.ms=0, 100 B", sum(meter.used_s.values()) / done.records * 1e6
    return {(workload, "records/s"): done.rate, (workload, "us CPU/record, all processes"): used_us}

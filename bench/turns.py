"""A turn of a system: a topic is filled and read from its start, or read at its tail while it is filled.

The same for librdkafka and for Kafka's own clients, whose programs stay (clients.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.redis_view import RedisView

from bench import raw_redis
from bench.clients import Clients
from bench.report import Report
from bench.systems import CpuMeter, Headrace, System, topic
from bench.workloads import Row, Run, Workload, add_rows, run_of

_TOPIC = "bench"


@dataclass(frozen=True)
class Turn:
    """What one turn found."""

    produced: Run
    consumed: Run | None
    limit: raw_redis.Limit | None


def turn(clients: Clients, workload: Workload, system: System, *, with_limit: bool = False) -> Turn:
    """Fills a topic and reads it from its start; what raw Redis does with its entries, if that is asked for."""
    consumed = None
    with topic(system, _TOPIC, workload.partitions):
        with CpuMeter(system.pids) as meter:
            done = clients.produce(system.address, _TOPIC, workload)
        produced = run_of(done, meter, workload)
        if workload.is_read_too:
            with CpuMeter(system.pids) as meter:
                done = clients.consume(system.address, _TOPIC, workload)
            consumed = run_of(done, meter, workload)
        limit = _raw(system) if with_limit and isinstance(system, Headrace) else None
    return Turn(produced, consumed, limit)


def _raw(system: Headrace) -> raw_redis.Limit:
    with RedisView.of(system.process) as redis:
        key = redis.log_key(_TOPIC)
    return raw_redis.run(system.store_socket, key)


def tail_run(clients: Clients, workload: Workload, system: System) -> Run:
    """A consumer waits at the end of a topic that a producer fills: its rate, and what both cost."""
    with topic(system, _TOPIC, workload.partitions), CpuMeter(system.pids) as meter:
        done = clients.tail(system.address, _TOPIC, workload)
    return run_of(done, meter, workload)


def add_turns(report: Report, rows: tuple[Row, Row], systems: list[System], found: dict[str, list[Turn]]) -> None:
    """The rows of producing, and of consuming where that was done."""
    producing, consuming = rows
    add_rows(report, producing, systems, {name: [one.produced for one in turns] for name, turns in found.items()})
    consumed = {name: [one.consumed for one in turns if one.consumed] for name, turns in found.items()}
    if any(consumed.values()):
        add_rows(report, consuming, systems, consumed)

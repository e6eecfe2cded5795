"""Many small producers: 100 connections with `linger.ms=0`, one record to each in turn.

All producers live in one process; it is one program's worth of threads for each system alike.
"""

from __future__ import annotations

import sys
import time

import msgspec
from confluent_kafka import Producer

from bench.payloads import values
from bench.rdkafka import Done
from bench.report import HEADRACE, KAFKA, NULL_BROKER, Figure, Report
from bench.systems import CpuMeter, System, lineup, run_python, take_turns, topic, values_of

_PRODUCERS = 100
_PARTITIONS = 6
_PATIENCE_S = 60.0


def run(report: Report, *, quick: bool) -> None:
    rounds, repeats = (20, 1) if quick else (400, 3)
    with lineup(report, HEADRACE, NULL_BROKER, *([] if quick else [KAFKA])) as systems:
        names = [system.name for system in systems]
        if not quick:
            take_turns(systems, 1, lambda system: turn(system, rounds))
        found = take_turns(systems, repeats, lambda system: turn(system, rounds))
        rates = values_of(found, lambda turn: turn[0].rate, names)
        workload = f"{_PRODUCERS} producers, linger.ms=0, 100 B"
        report.add(Figure("small producers", workload, "records/s", rates, goal="small producers"))
        cpu = values_of(found, lambda turn: turn[1], names)
        report.add(Figure("small producers", workload, "us CPU/record, broker process", cpu))


def turn(system: System, rounds: int) -> tuple[Done, float]:
    """What the producers did, and the broker's CPU a record in microseconds."""
    with topic(system, "bench", _PARTITIONS):
        with CpuMeter(system.pids) as meter:
            done = msgspec.json.decode(run_python("bench.small_producers", system.address, str(rounds)), type=Done)
    return done, meter.used_s["broker"] / done.records * 1e6


def _produce(address: str, rounds: int) -> Done:
    settings = {"bootstrap.servers": address, "linger.ms": 0}
    producers = [Producer(settings) for _ in range(_PRODUCERS)]
    value = values(100)[0]
    for number, producer in enumerate(producers):  # connected before the clock starts
        producer.produce("bench", value, partition=number % _PARTITIONS)
        producer.flush(_PATIENCE_S)
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        for number, producer in enumerate(producers):
            producer.produce("bench", value, partition=number % _PARTITIONS)
    left = sum(producer.flush(_PATIENCE_S) for producer in producers)
    done = Done(rounds * _PRODUCERS, time.perf_counter() - began, time.process_time() - cpu)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")
    return done


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(_produce(sys.argv[1], int(sys.argv[2]))).decode())

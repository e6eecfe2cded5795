"""Format `stream`: records in and out of one partition, against plain XADD and XRANGE of the same entries.

Each turn fills a topic through a Kafka client and reads it from its start; then one Python process with hiredis reads
the stream that came of it and writes it again, pipelined, on the same server: what Redis code of one's own would reach.
One entry per record costs the store about as much as the broker, so the CPU of both is told, by record.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from bench import raw_redis
from bench.rdkafka import Done, Job, run_job
from bench.report import HEADRACE, RAW_REDIS, Figure, Report
from bench.systems import CpuMeter, Headrace, System, lineup, take_turns, topic

_TOPIC = "bench"
_KEY = f"headrace:default:{{{_TOPIC}:0}}:stream"
_SIZE_BYTES = 100
_CONFIGS: dict[str, str | None] = {"headrace.format": "stream"}


@dataclass(frozen=True)
class Turn:
    """What one turn found; CPU by process, in seconds."""

    produced: Done
    produce_cpu_s: dict[str, float]
    consumed: Done
    consume_cpu_s: dict[str, float]
    raw: raw_redis.Limit


def run(report: Report, *, quick: bool) -> None:
    records = 20_000 if quick else 500_000
    with lineup(report, HEADRACE) as systems:
        if not quick:
            _turn(systems[0], 50_000)  # a first one is slower: Python makes its codecs
        turns = take_turns(systems, 1 if quick else 5, lambda system: _turn(system, records))[HEADRACE]
    _add_rates(report, "in", [turn.produced for turn in turns], [turn.raw.write_s for turn in turns])
    _add_rates(report, "out", [turn.consumed for turn in turns], [turn.raw.read_s for turn in turns])
    written = {
        "broker": [turn.raw.write_cpu_s for turn in turns],
        "store": [turn.raw.write_store_cpu_s for turn in turns],
    }
    _add_cpu(report, "in", [turn.produce_cpu_s for turn in turns], written, records)
    read = {"broker": [turn.raw.read_cpu_s for turn in turns]}
    _add_cpu(report, "out", [turn.consume_cpu_s for turn in turns], read, records)


def _turn(system: System, records: int) -> Turn:
    assert isinstance(system, Headrace)
    job = Job("produce", system.address, _TOPIC, records, _SIZE_BYTES)
    with topic(system, _TOPIC, configs=_CONFIGS):
        with CpuMeter(system.pids) as producing:
            produced = run_job(job)
        with CpuMeter(system.pids) as consuming:
            consumed = run_job(msgspec.structs.replace(job, kind="consume"))
        raw = raw_redis.run(system.store_socket, _KEY)
    return Turn(produced, producing.used_s, consumed, consuming.used_s, raw)


def _add_rates(report: Report, way: str, done: list[Done], raw_s: list[float]) -> None:
    values = {HEADRACE: [one.rate for one in done]}
    values[RAW_REDIS] = [one.records / seconds for one, seconds in zip(done, raw_s, strict=True)]
    command = "XADD" if way == "in" else "XRANGE"
    report.add(Figure("stream", f"librdkafka, {way}: 100 B; raw: {command}", "records/s", values, goal="stream"))


def _add_cpu(
    report: Report, way: str, used_s: list[dict[str, float]], raw_s: dict[str, list[float]], records: int
) -> None:
    """The broker beside the one process, and the store beside itself while it serves that one, where it is known."""
    for process in ("broker", "store"):
        values = {HEADRACE: [one[process] * 1e6 / records for one in used_s]}
        if process in raw_s:
            values[RAW_REDIS] = [seconds * 1e6 / records for seconds in raw_s[process]]
        report.add(Figure("stream", f"librdkafka, {way}: 100 B", f"us CPU/record, {process} process", values))

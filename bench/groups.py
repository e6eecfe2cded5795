"""How long a consumer group takes to form, and to rebalance when a member leaves; commits and offset fetches.

Members are scripted: each has a connection, joins at once when it is told to, and does nothing else. Both systems wait
for group.initial.rebalance.delay.ms, 3 s by default, before a new group forms: Headrace from the last join on, Kafka
from the first one, and once more if members came meanwhile. Those waits are configured, so whole ones are taken off the
time; what a member waits in all is a figure of its own.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from tests.broker.members import MEMBER_ID_REQUIRED, NONE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, Member
from tests.broker_process import wait_until

from bench.crowd import Crowd
from bench.report import HEADRACE, KAFKA, Figure, Report
from bench.systems import CpuMeter, System, lineup, take_turns, topic, values_of
from headrace.client.cluster import Cluster
from headrace.client.connection import BrokerConnection
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_DELAY_S = 3.0
_SIZES = (2, 20, 200)
_TARGET_SIZE = 200
_BY_NAME = 9
_PIPELINED = 50


def run(report: Report, *, quick: bool) -> None:
    repeats = 1 if quick else 3
    with lineup(report, HEADRACE, *([] if quick else [KAFKA])) as systems:
        if not quick:
            take_turns(systems, 1, partial(form_turn, 20))  # a first one is slower: Java compiles
        for size in (20,) if quick else _SIZES:
            _form(report, systems, size, repeats)
        _offsets(report, systems, 500 if quick else 5_000, repeats)


def _wait_for_coordinator(system: System, group: str) -> None:
    """Kafka makes its topic of offsets when the first group asks, and loads each partition of it before it answers."""
    with Cluster(system.address) as cluster, Member(system, group) as stranger:
        cluster.retrying(lambda: cluster.coordinator(group))
        wait_until(lambda: stranger.heartbeat() == UNKNOWN_MEMBER_ID, f"{system.name} has no coordinator for {group}")


# -- forming ----------------------------------------------------------------------------------------------------


def _form(report: Report, systems: list[System], size: int, repeats: int) -> None:
    found = take_turns(systems, repeats, partial(form_turn, size))
    names = [system.name for system in systems]
    goal = "group" if size == _TARGET_SIZE else None
    formed = values_of(found, lambda turn: turn.beyond_delay_ms, names)
    report.add(Figure("groups", f"form a group of {size}", "ms without the delay", formed, goal=goal))
    whole = values_of(found, lambda turn: turn.in_all_ms, names)
    report.add(Figure("groups", f"form a group of {size}, in total", "ms", whole))
    again = values_of(found, lambda turn: turn.again_ms, names)
    report.add(Figure("groups", f"form a group of {size} again after a leave", "ms", again, goal=goal))
    cpu = values_of(found, lambda turn: turn.broker_cpu_ms, names)
    report.add(Figure("groups", f"a group of {size}, formed twice", "ms CPU, broker process", cpu))


class Formed(NamedTuple):
    """How long a group took to form, and again after a leave, and what both cost."""

    beyond_delay_ms: float
    in_all_ms: float
    again_ms: float
    broker_cpu_ms: float


def form_turn(size: int, system: System) -> Formed:
    """Forms a group of so many members twice."""
    group = f"group-{time.time_ns()}"
    _wait_for_coordinator(system, group)
    with Crowd(system, group, size) as members, CpuMeter(system.pids) as meter:
        began = time.perf_counter()
        members.get_ids(MEMBER_ID_REQUIRED)
        members.join_and_sync()
        took = time.perf_counter() - began
        began = time.perf_counter()
        members.leave(size // 2)
        members.heartbeat(REBALANCE_IN_PROGRESS)  # it tells each that it has to join again
        members.join_and_sync()
        again = time.perf_counter() - began
    return Formed(took % _DELAY_S * 1000, took * 1000, again * 1000, meter.used_s["broker"] * 1000)


# -- offsets ----------------------------------------------------------------------------------------------------


def _offsets(report: Report, systems: list[System], count: int, repeats: int) -> None:
    found = take_turns(systems, repeats, partial(_offsets_turn, count))
    names = [system.name for system in systems]
    pipelined = f"{_PIPELINED} in flight, 1 partition"
    report.add(Figure("groups", f"commits, {pipelined}", "/s", values_of(found, lambda turn: turn[0], names)))
    report.add(Figure("groups", f"offset fetches, {pipelined}", "/s", values_of(found, lambda turn: turn[1], names)))


def _offsets_turn(count: int, system: System) -> tuple[float, float]:
    """Commits and offset fetches a second."""
    _wait_for_coordinator(system, "offsets")
    with topic(system, "bench"), Cluster(system.address) as cluster:
        connection = cluster.retrying(lambda: cluster.coordinator("offsets"))
        began = time.perf_counter()
        for first in range(0, count, _PIPELINED):
            _commit(connection, range(first, first + _PIPELINED))
        committed_s = time.perf_counter() - began
        request = OffsetFetchRequest(
            [OffsetFetchRequestGroup("offsets", topics=[OffsetFetchRequestTopics(name="bench", partition_indexes=[0])])]
        )
        began = time.perf_counter()
        for _ in range(0, count, _PIPELINED):
            for answer in connection.send_pipelined([request] * _PIPELINED, _BY_NAME):
                assert isinstance(answer, OffsetFetchResponse)
                assert answer.groups[0].topics[0].partitions[0].committed_offset >= count - _PIPELINED
        return count / committed_s, count / (time.perf_counter() - began)


def _commit(connection: BrokerConnection, offsets: range) -> None:
    requests = [
        OffsetCommitRequest(
            "offsets", topics=[OffsetCommitRequestTopic(name="bench", partitions=[OffsetCommitRequestPartition(0, at)])]
        )
        for at in offsets
    ]
    for answer in connection.send_pipelined(requests, _BY_NAME):
        assert isinstance(answer, OffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == NONE

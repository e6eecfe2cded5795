"""How long partitions pause when their node goes: stopped in order, or killed, while clients produce.

Three nodes on one store. Each round one of them goes, under a steady load, and comes back before the next round. The
figure of librdkafka is the longest time between two acknowledgements of a partition that the node led; that of the Java
client is the longest time that a record waited for its own.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from tests.broker_process import BrokerProcess, RedisProcess
from tests.faults.several_nodes import PLACES, TOPICS, Nodes
from tests.faults.witnesses import Sender

from bench.kafka import tool_command, why_not
from bench.report import Figure, Report

_PAUSE_S = 0.005
_JAVA_RATE = 500
_JAVA_REPORT_MS = 500
_JAVA_LINE = re.compile(r"([\d.]+) ms max latency")

GOES: dict[str, Callable[[BrokerProcess], object]] = {
    "stopped in order": BrokerProcess.stop,
    "killed": BrokerProcess.kill,
}


def run(report: Report, *, quick: bool) -> None:
    rounds = 2 if quick else 10
    if missing := why_not():
        report.leave_out("the Java client's pauses", missing)
    with _nodes() as nodes:
        for how, go in GOES.items():
            found = {"librdkafka": _librdkafka(nodes, go, rounds)}
            if not missing:
                found["Java"] = _java(nodes, go, rounds)
            for client, pauses_s in found.items():
                values = {"median": [median(pauses_s)], "longest": [max(pauses_s)]}
                report.add(Figure("takeover", f"pause of a partition whose node is {how}, {client}", "s", values))


@contextlib.contextmanager
def _nodes() -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        store = RedisProcess(Path(name) / "store", "everysec")
        stack.callback(store.end)
        store.start()

        def start(**settings: object) -> BrokerProcess:
            broker = BrokerProcess(Path(name) / f"node{settings['node_id']}", **settings)
            stack.callback(broker.end)
            return broker.start()

        yield Nodes(start, store)


def _rounds(nodes: Nodes, rounds: int) -> Iterator[tuple[int, BrokerProcess]]:
    """Each node in its turn; it is back, and its partitions with it, before the next one goes."""
    for number in range(rounds):
        place = number % len(nodes.all)
        yield place, nodes.all[place]
        nodes.all[place].start()
        nodes.know_each_other()


def _librdkafka(nodes: Nodes, go: Callable[[BrokerProcess], object], rounds: int) -> list[float]:
    pauses_s: list[float] = []
    sender = Sender("sender", nodes.addresses, PLACES, _PAUSE_S)
    try:
        for place, broker in _rounds(nodes, rounds):
            sender.goes_on()
            led = nodes.led_by(place)
            sender.watch_pauses()
            go(broker)
            sender.goes_on()
            pauses_s.append(median(sender.longest_pause_s[one] for one in led))
    finally:
        sender.stop()
    return pauses_s


def _java(nodes: Nodes, go: Callable[[BrokerProcess], object], rounds: int) -> list[float]:
    """Its longest waits, one for each round."""
    pauses_s: list[float] = []
    command = tool_command(
        "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", nodes.addresses,
        "--topic", next(iter(TOPICS)), "--num-records", "10000000", "--throughput", str(_JAVA_RATE),
        "--record-size", "100", "--reporting-interval", str(_JAVA_REPORT_MS),
        "--command-property", "linger.ms=0", "batch.size=1",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as producer:
        try:
            assert producer.stdout is not None
            _longest_ms(producer, 6)  # its start
            for _, broker in _rounds(nodes, rounds):
                _longest_ms(producer, 4)  # back to normal after the last round
                go(broker)
                pauses_s.append(_longest_ms(producer, 8) / 1000)
        finally:
            producer.kill()
    return pauses_s


def _longest_ms(producer: subprocess.Popen[str], lines: int) -> float:
    """Of the next reports, which come twice a second while records are acknowledged."""
    assert producer.stdout is not None
    found = (_JAVA_LINE.search(producer.stdout.readline()) for _ in range(lines))
    return max(float(one[1]) if one else 0.0 for one in found)

"""How long partitions pause when their node goes: stopped in order, or killed, while clients produce.

Three nodes on one store. Each round one of them goes, under a steady load, and comes back before the next round. The
figure of a round is the longest time between two acknowledgements of a partition that the node led, the median of its
partitions.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Protocol

from tests.broker_process import BrokerProcess, RedisProcess
from tests.faults.several_nodes import PARTITIONS, PLACES, TOPICS, Nodes
from tests.faults.witnesses import Place, Sender

from bench.kafka import tool_command, why_not
from bench.report import Figure, Report
from bench.systems import broker_process

_PAUSE_S = 0.005
_MORE = 20
_APART_S = 4.0
"""Longer than a lease, as docs/scale.md asks for: a client that looked at the metadata a moment ago does not look again
at once."""
_JAVA_SOURCE = Path(__file__).with_name("Pauses.java")


class _Watched(Protocol):
    """A producer that notes the pauses of partitions."""

    @property
    def longest_pause_s(self) -> Mapping[Place, float]: ...

    def goes_on(self) -> None: ...

    def watch_pauses(self) -> None: ...

    def stop(self) -> None: ...


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
            found = {"librdkafka": _pauses_s(Sender("sender", nodes.addresses, PLACES, _PAUSE_S), nodes, go, rounds)}
            if not missing:
                found["Java"] = _pauses_s(_JavaSender(nodes.addresses), nodes, go, rounds)
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
            broker = broker_process(Path(name) / f"node{settings['node_id']}", **settings)
            stack.callback(broker.end)
            return broker.start()

        yield Nodes(start, store)


def _rounds(nodes: Nodes, rounds: int) -> Iterator[tuple[int, BrokerProcess]]:
    """Each node that leads something, in its turn; it is back, and its partitions with it, before the next one goes."""
    turns = cycle(range(len(nodes.all)))
    for _ in range(rounds):
        place = next(turn for turn in turns if nodes.led_by(turn))
        yield place, nodes.all[place]
        nodes.all[place].start()
        nodes.know_each_other()
        time.sleep(_APART_S)


def _pauses_s(sender: _Watched, nodes: Nodes, go: Callable[[BrokerProcess], object], rounds: int) -> list[float]:
    """Of each round: the median over the partitions that the node led."""
    found: list[float] = []
    try:
        sender.goes_on()
        for place, broker in _rounds(nodes, rounds):
            sender.goes_on()
            led = nodes.led_by(place)
            sender.watch_pauses()
            go(broker)
            sender.goes_on()
            found.append(median(sender.longest_pause_s[one] for one in led))
    finally:
        sender.stop()
        del sender
        gc.collect()  # librdkafka's threads end with their producer; alive, they would slow what is measured next
    return found


class _JavaSender:
    """Apache Kafka's producer with its own settings (Pauses.java), in a process of its own."""

    def __init__(self, addresses: str) -> None:
        topics = [f"{topic}={PARTITIONS}" for topic in TOPICS]
        command = tool_command(str(_JAVA_SOURCE), addresses, str(round(_PAUSE_S * 1000)), *topics)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def _ask(self, question: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer or answer.startswith("failed"):
            raise RuntimeError(f"the Java producer: {answer or 'it ended'}")
        return answer

    def goes_on(self) -> None:
        self._ask(f"on {_MORE}")

    def watch_pauses(self) -> None:
        self._ask("watch")

    @property
    def longest_pause_s(self) -> dict[Place, float]:
        rows = [row.split(" ") for row in self._ask("pauses").split(",")]
        return {(topic, int(number)): int(took_ms) / 1000 for topic, number, took_ms in rows}

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

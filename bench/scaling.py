"""Does an operation cost more when there is more of everything: a longer log, more topics, groups and connections?

Brokers of three sizes, each ten times the one before, take turns with the same operation. A figure is the time of one
round trip; the ratio of the largest to the others is what should stay near 1.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from tests.broker.members import NONE, commit, fetch_offsets
from tests.broker.peers import PRODUCE_BY_NAME, batch_of, create_topic, fetch, metadata, produce, produce_request

from bench.report import Figure, Report
from bench.systems import Headrace, take_turns, values_of
from bench.targets import SMALLEST
from headrace.client.connection import BrokerConnection
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_TOPIC = "bench"
_OPERATIONS = 50
_PIPELINED = 500
_LONG_AGO = 1_700_000_000_000
_NUMBERS = count()

Operation = Callable[["_Sized"], object]


class _Sized(Headrace):
    """A broker that holds `factor` times as much as the smallest."""

    def __init__(self, folder: Path, factor: int) -> None:
        # An entry for each batch: the log is as long as it can get.
        super().__init__(folder, append_entry_bytes=1)
        self.name = SMALLEST if factor == 1 else f"{factor} times"
        self.factor = factor
        self.log_end = 0
        self.connection = BrokerConnection(self.host, self.port)
        self._others = contextlib.ExitStack()
        create_topic(self.connection, _TOPIC)

    def grow_log(self, entries: int) -> None:
        while self.log_end < entries * self.factor:
            stop = min(self.log_end + _PIPELINED, entries * self.factor)
            times = (_LONG_AGO + number for number in range(self.log_end, stop))
            requests = [produce_request(_TOPIC, {0: batch_of(b"x" * 100, timestamp=time)}) for time in times]
            self.connection.send_pipelined(requests, PRODUCE_BY_NAME)
            self.log_end = stop

    def grow_topics(self, topics: int) -> None:
        for number in range(topics * self.factor):
            create_topic(self.connection, f"topic-{number}")

    def grow_groups(self, groups: int) -> None:
        for number in range(groups * self.factor):
            assert commit(self.connection, f"group-{number}", _TOPIC, {0: 1}) == {0: NONE}

    def grow_connections(self, connections: int) -> None:
        for _ in range(connections * self.factor):
            assert self._others.enter_context(BrokerConnection(self.host, self.port)).versions

    def stop(self) -> None:
        self._others.close()
        self.connection.close()
        super().stop()


def run(report: Report, *, quick: bool) -> None:
    with _brokers() as brokers:
        compare = partial(_compare, report, brokers, repeats=1 if quick else 5)
        for broker in brokers:
            broker.grow_log(10 if quick else 500)
        compare("the log grows", {"produce": _produce, "fetch of an old record": _fetch, "lookup by time": _find_time})
        for broker in brokers:
            broker.grow_topics(1 if quick else 10)
        compare("topics grow", {"produce": _produce, "metadata of one topic": _metadata})
        for broker in brokers:
            broker.grow_groups(1 if quick else 10)
        compare("groups grow", {"commit": _commit, "offset fetch": _fetch_offsets})
        for broker in brokers:
            broker.grow_connections(1 if quick else 5)
        compare("connections grow", {"produce": _produce, "metadata of one topic": _metadata})


@contextlib.contextmanager
def _brokers() -> Iterator[list[_Sized]]:
    """The largest first: it is the subject of the ratios."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        brokers = []
        for factor in (100, 10, 1):
            brokers.append(_Sized(Path(name) / str(factor), factor))
            stack.callback(brokers[-1].stop)
        yield brokers


def _compare(report: Report, brokers: list[_Sized], what: str, operations: dict[str, Operation], repeats: int) -> None:
    for name, operation in operations.items():
        found = take_turns(brokers, repeats, partial(_median_us, operation))
        values = values_of(found, float, [broker.name for broker in brokers])
        goal = "look-up" if operation is _find_time else None
        report.add(Figure("scaling", f"{name}, as {what}", "us", values, goal=goal))


def _median_us(operation: Operation, broker: _Sized) -> float:
    took_us = []
    for _ in range(_OPERATIONS):
        began = time.perf_counter()
        operation(broker)
        took_us.append((time.perf_counter() - began) * 1e6)
    return statistics.median(took_us)


def _produce(broker: _Sized) -> None:
    assert produce(broker.connection, _TOPIC, {0: batch_of(b"x" * 100)})[0].error_code == NONE


def _fetch(broker: _Sized) -> None:
    offset = random.randrange(broker.log_end)
    assert fetch(broker.connection, _TOPIC, {0: offset}, partition_max_bytes=1)[0].error_code == NONE


def _find_time(broker: _Sized) -> None:
    moment = _LONG_AGO + random.randrange(broker.log_end)
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(_TOPIC, [ListOffsetsPartition(0, -1, moment)])])
    assert broker.connection.send_for(request, ListOffsetsResponse, 7).topics[0].partitions[0].error_code == NONE


def _metadata(broker: _Sized) -> None:
    assert metadata(broker.connection, _TOPIC).topics[0].error_code == NONE


def _commit(broker: _Sized) -> None:
    assert commit(broker.connection, "group-0", _TOPIC, {0: next(_NUMBERS)}) == {0: NONE}


def _fetch_offsets(broker: _Sized) -> None:
    assert fetch_offsets(broker.connection, "group-0", {_TOPIC: [0]})[0] == NONE

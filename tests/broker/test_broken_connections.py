"""Clients that break off, stop reading or read slowly in the middle of requests without a task (decision 31)."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
from collections import defaultdict
from collections.abc import Iterator

import pytest

from headrace.wire.frame import request_frame
from headrace.wire.messages.heartbeat import HeartbeatRequest
from headrace.wire.schema import Payload
from tests.broker.peers import (
    Bystander,
    batch_of,
    connect,
    create_topic,
    fetch,
    fetch_request,
    memory_grows_less_than,
    produce,
    produce_request,
    raw,
    records_of,
)
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker

MIB = 1 << 20
LONG_MS = 60_000
LINKS_MOST = 5
"""More links to the store are opened when they are needed."""
FORMATS = pytest.mark.parametrize("format", ["log", "stream"])


@pytest.fixture
def broker(start_broker: StartBroker, topic: str) -> Iterator[BrokerProcess]:
    """A broker that a good client uses all the time; nothing may go wrong in it, and no connection be left."""
    process = start_broker()
    with Bystander(process, f"{topic}-bystander"):
        before = open_files(process)
        yield process
        wait_until(lambda: open_files(process) <= before + LINKS_MOST, "connections are left")
    assert "Traceback" not in process.log


def open_files(process: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def framed(request: Payload, version: int = 9) -> bytes:
    return request_frame(request, version, 1, "hostile")


def reset(line: socket.socket) -> None:
    """Closes it in the hard way: what the peer sent last may not even be read."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def all_values(process: BrokerProcess, topic: str, partition: int) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    with connect(process) as connection:
        while True:
            data = fetch(connection, topic, {partition: offset}, partition_max_bytes=16 * MIB)[partition]
            if not (records := records_of(data)):
                return found
            found += [record.value or b"" for record in records]
            offset = records[-1].offset + 1


@FORMATS
def test_produces_of_connections_that_were_reset_are_in_order_and_there_once(
    broker: BrokerProcess, topic: str, format: str
) -> None:
    chance = random.Random(31)
    with connect(broker) as connection:
        create_topic(connection, topic, 2, {"headrace.format": format})
    for number in range(150):
        line = raw(broker)
        for at in range(chance.choice([1, 3, 40])):
            value = b"%d %d " % (number, at) + bytes(chance.choice([10, 10, 20_000]))
            request = produce_request(topic, {0: batch_of(value), 1: batch_of(value)}, acks=chance.choice([0, 1, -1]))
            line.sendall(framed(request))
        half = framed(produce_request(topic, {0: batch_of(bytes(100_000))}))
        line.sendall(half[: chance.choice([0, 3, 20, 90_000])])
        reset(line)
    with connect(broker) as connection:  # all that arrived before is in the queues by now
        produce(connection, topic, {0: batch_of(b"end 0"), 1: batch_of(b"end 0")})
    for partition in range(2):
        by_connection: dict[bytes, list[int]] = defaultdict(list)
        for value in all_values(broker, topic, partition):
            who, sequence = value.split(b" ")[:2]
            by_connection[who].append(int(sequence))
        for who, numbers in by_connection.items():
            assert numbers == list(range(len(numbers))), (who, numbers)


@FORMATS
def test_long_polls_of_connections_that_were_reset_leave_nothing(
    broker: BrokerProcess, topic: str, format: str
) -> None:
    with connect(broker) as connection, memory_grows_less_than(broker, 48 * MIB):
        create_topic(connection, topic, 1, {"headrace.format": format})
        base = produce(connection, topic, {0: batch_of(bytes(1_000))})[0].base_offset
        for _ in range(5):
            lines = [raw(broker) for _ in range(100)]
            for line in lines:
                line.sendall(framed(fetch_request(topic, {0: base + 1}, max_wait_ms=LONG_MS, min_bytes=1), 12) * 3)
            for line in lines[:50]:
                reset(line)
            base = produce(connection, topic, {0: batch_of(bytes(100_000))})[0].base_offset  # wakes the others
            for line in lines[50:]:
                reset(line)


def test_requests_that_pile_up_without_being_read_are_bounded(broker: BrokerProcess, topic: str) -> None:
    """Thousands of small ones on each connection; all that was begun is done in the end."""
    with connect(broker) as connection:
        create_topic(connection, topic)
        produce(connection, topic, {0: batch_of(bytes(100_000))})
    small = framed(produce_request(topic, {0: batch_of(b"small")}, acks=1))
    kinds = [
        small,
        framed(fetch_request(topic, {0: 0}), 12),
        framed(HeartbeatRequest(topic, 1, "nobody"), 4),
        small + framed(fetch_request(topic, {0: 0}), 12) + framed(HeartbeatRequest(topic, 1, "nobody"), 4),
    ]
    with memory_grows_less_than(broker, 96 * MIB), contextlib.ExitStack() as stack:
        for number in range(20):
            line = stack.enter_context(raw(broker))
            line.setblocking(False)
            data = memoryview(kinds[number % len(kinds)] * 5_000)
            with contextlib.suppress(BlockingIOError):
                while data:
                    data = data[line.send(data) :]
        with Bystander(broker, f"{topic}-other"):
            pass


@FORMATS
def test_slow_readers_of_large_answers_get_all_of_them(broker: BrokerProcess, topic: str, format: str) -> None:
    with connect(broker) as connection:
        create_topic(connection, topic, 1, {"headrace.format": format})
        for number in range(8):
            answer = produce(connection, topic, {0: batch_of(b"%d" % number + bytes(500_000))})[0]
            assert answer.error_code == 0
    expected = [value[:1] for value in all_values(broker, topic, 0)]
    assert expected == [b"%d" % number for number in range(8)]
    request = framed(fetch_request(topic, {0: 0}, partition_max_bytes=16 * MIB), 12)
    with memory_grows_less_than(broker, 128 * MIB), contextlib.ExitStack() as stack:
        lines = [stack.enter_context(raw(broker)) for _ in range(6)]
        for line in lines:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            line.sendall(request * 2)
        sizes = {read_slowly(line) for line in lines for _ in range(2)}
        assert len(sizes) == 1
        assert sizes.pop() > 8 * 500_000


def read_slowly(line: socket.socket) -> int:
    """The size of an answer that is taken in small bites."""
    (size,) = struct.unpack(">i", line.recv(4, socket.MSG_WAITALL))
    left: int = size
    while left:
        left -= len(line.recv(min(left, 50_000)))
    return int(size)

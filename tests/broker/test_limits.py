"""The limits of connections and requests: what a greedy, slow or deaf peer cannot do to the broker or to others."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

from headrace.client.errors import BrokerUnreachable
from headrace.wire.frame import request_frame
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.metadata import MetadataRequest
from tests.broker.peers import (
    Bystander,
    batch_of,
    connect,
    fetch_request,
    is_closed_by_peer,
    memory_grows_less_than,
    metadata,
    produce,
    produce_request,
    raw,
    values_of,
)
from tests.broker.peers import fetch as fetch_from
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker

MIB = 1 << 20
IDLE_MS = 1_000


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Closes the connections that a test leaves open."""
    with contextlib.ExitStack() as found:
        yield found


def half_a_frame(broker: BrokerProcess, size_bytes: int) -> socket.socket:
    """A connection that announces a request and sends half of it, as far as the broker takes it."""
    line = raw(broker)
    line.setblocking(False)
    data = memoryview(struct.pack(">ihhih", size_bytes, 0, 9, 1, -1) + bytes(size_bytes // 2))
    with contextlib.suppress(BlockingIOError):
        while data:
            data = data[line.send(data) :]
    return line


# -- requests -----------------------------------------------------------------------------------------------------


def test_half_sent_frames_hold_no_more_than_the_budget_and_nobody_up(
    start_broker: StartBroker, stack: contextlib.ExitStack, topic: str
) -> None:
    broker = start_broker(frame_limit_bytes=32 * MIB, request_budget_bytes=32 * MIB)
    with Bystander(broker, topic) as bystander, memory_grows_less_than(broker, 64 * MIB):
        lines = [stack.enter_context(half_a_frame(broker, 30 * MIB)) for _ in range(20)]
        bystander.goes_on()
        for line in lines:  # what had no room at first
            with contextlib.suppress(OSError):
                line.send(bytes(MIB))
        bystander.goes_on()


def test_a_large_request_gets_through_although_half_sent_ones_hold_the_budget(
    start_broker: StartBroker, stack: contextlib.ExitStack, topic: str
) -> None:
    broker = start_broker(frame_limit_bytes=16 * MIB, request_budget_bytes=16 * MIB, message_max_bytes=16 * MIB)
    for _ in range(4):
        stack.enter_context(half_a_frame(broker, 12 * MIB))
    with connect(broker) as connection:
        metadata(connection, topic)
        assert produce(connection, topic, {0: batch_of(bytes(8 * MIB))})[0].error_code == 0


def test_requests_larger_than_the_budget_are_served_side_by_side(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(frame_limit_bytes=4 * MIB, request_budget_bytes=4 * MIB, message_max_bytes=4 * MIB)
    with contextlib.ExitStack() as stack, Bystander(broker, topic + "-b"):
        connections = [stack.enter_context(connect(broker)) for _ in range(4)]
        metadata(connections[0], topic)
        request = produce_request(topic, {0: batch_of(bytes(3 * MIB))})
        for connection in connections:
            connection.ask(request, 12)
        for connection in connections:
            connection.receive()
        assert fetch_from(connections[0], topic, {0: 4})[0].high_watermark == 4


def test_requests_of_connections_that_broke_give_their_budget_back(start_broker: StartBroker, topic: str) -> None:
    """Each takes a part of the budget and is cut off at once; a leak would spend all of it."""
    broker = start_broker(frame_limit_bytes=2 * MIB, request_budget_bytes=2 * MIB)
    with connect(broker) as connection:
        metadata(connection, topic)
    frame = request_frame(produce_request(topic, {0: batch_of(bytes(200_000))}), 12, 1, "client")
    for cut in (len(frame), len(frame) - 1, 70_000) * 40:
        with raw(broker) as line:
            line.sendall(frame[:cut])
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with connect(broker, timeout_s=5) as connection:
        for _ in range(3):
            assert produce(connection, topic, {0: batch_of(bytes(900_000))})[0].error_code == 0


# -- answers ------------------------------------------------------------------------------------------------------


def test_a_client_that_never_reads_costs_bounded_memory(
    start_broker: StartBroker, stack: contextlib.ExitStack, topic: str
) -> None:
    broker = start_broker(tail_cache_bytes=MIB)
    with connect(broker) as connection:
        metadata(connection, topic)
        for _ in range(40):
            produce(connection, topic, {0: batch_of(bytes(900_000))})
    ask = request_frame(fetch_request(topic, {0: 0}, partition_max_bytes=4 * MIB), 12, 1, "deaf")
    with Bystander(broker, topic + "-b") as bystander, memory_grows_less_than(broker, 100 * MIB):
        for _ in range(10):
            line = stack.enter_context(raw(broker))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(2_000):
                    line.send(ask)
        for _ in range(5):
            bystander.goes_on()


def test_answers_that_nobody_reads_are_bounded_over_all_connections(
    start_broker: StartBroker, stack: contextlib.ExitStack, topic: str
) -> None:
    """Each asks once for as much as it may get: together far more than the broker should hold."""
    broker = start_broker(tail_cache_bytes=MIB, frame_limit_bytes=2 * MIB, request_budget_bytes=64 * MIB)
    with connect(broker) as connection:
        metadata(connection, topic)
        for _ in range(40):
            produce(connection, topic, {0: batch_of(bytes(900_000))})
    ask = request_frame(fetch_request(topic, {0: 0}, partition_max_bytes=50 * MIB), 12, 1, "deaf")
    with Bystander(broker, topic + "-b") as bystander, memory_grows_less_than(broker, 200 * MIB):
        for _ in range(30):
            line = stack.enter_context(raw(broker))
            line.sendall(ask)
        for _ in range(5):
            bystander.goes_on()


def test_a_client_that_reads_late_gets_every_answer(broker: BrokerProcess, topic: str) -> None:
    with connect(broker) as connection:
        metadata(connection, topic)
        produce(connection, topic, {0: batch_of(bytes(500_000))})
        for _ in range(100):
            connection.ask(fetch_request(topic, {0: 0}), 12)
        for _ in range(100):
            connection.receive()


# -- connections --------------------------------------------------------------------------------------------------


def test_a_connection_beyond_the_limit_is_closed_and_there_is_room_again_after(
    start_broker: StartBroker, stack: contextlib.ExitStack
) -> None:
    broker = start_broker(connections_max=5)
    held = [stack.enter_context(connect(broker)) for _ in range(5)]
    for connection in held:
        connection.send(ApiVersionsRequest("client", "1"), 3)
    with raw(broker) as line:
        assert is_closed_by_peer(line)
    held[0].close()

    def there_is_room() -> bool:
        with contextlib.suppress(BrokerUnreachable), connect(broker) as connection:
            connection.send(ApiVersionsRequest("client", "1"), 3)
            return True
        return False

    wait_until(there_is_room, "no room after a connection was closed")
    for connection in held[1:]:
        connection.send(ApiVersionsRequest("client", "1"), 3)


@pytest.mark.parametrize("sent", [b"", b"\0", struct.pack(">i", 100), struct.pack(">ih", 1000, 3) + bytes(500)])
def test_an_idle_connection_is_closed_whatever_it_has_begun_to_send(start_broker: StartBroker, sent: bytes) -> None:
    broker = start_broker(connections_idle_ms=IDLE_MS)
    with raw(broker) as line:
        line.sendall(sent)
        assert is_closed_by_peer(line)


def test_a_connection_in_a_long_poll_is_not_idle(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(connections_idle_ms=IDLE_MS)
    with connect(broker) as connection:
        metadata(connection, topic)
        found = fetch_from(connection, topic, {0: 0}, max_wait_ms=3 * IDLE_MS, min_bytes=1)
        assert values_of(found[0]) == []


def test_a_client_that_stopped_reading_is_closed_as_idle(
    start_broker: StartBroker, stack: contextlib.ExitStack, topic: str
) -> None:
    broker = start_broker(connections_idle_ms=IDLE_MS, connections_max=1)
    with connect(broker) as connection:
        metadata(connection, topic)
        for _ in range(5):
            produce(connection, topic, {0: batch_of(bytes(900_000))})
    deaf = stack.enter_context(until_admitted(broker))
    ask = request_frame(fetch_request(topic, {0: 0}, partition_max_bytes=4 * MIB), 12, 1, "deaf")
    deaf.sendall(ask * 20)
    with until_admitted(broker) as line:
        line.sendall(request_frame(MetadataRequest([]), 12, 1, "next"))
        assert len(line.recv(4)) == 4


def until_admitted(broker: BrokerProcess) -> socket.socket:
    """A connection, as soon as there is room for one."""
    found: list[socket.socket] = []

    def is_admitted() -> bool:
        line = raw(broker)
        line.sendall(request_frame(ApiVersionsRequest("client", "1"), 3, 1, "client"))
        with contextlib.suppress(ConnectionError):
            if head := line.recv(4):
                line.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
                found.append(line)
                return True
        line.close()
        return False

    wait_until(is_admitted, "no connection is admitted")
    return found[0]


def test_produces_without_acks_are_kept_although_the_client_leaves_at_once(broker: BrokerProcess, topic: str) -> None:
    with connect(broker) as connection:
        metadata(connection, topic)
    for number in range(50):
        with connect(broker) as leaving:
            for part in range(4):
                leaving.tell(produce_request(topic, {0: batch_of(b"%d.%d" % (number, part))}, acks=0), 12)
    with connect(broker) as connection:
        wait_until(
            lambda: fetch_from(connection, topic, {0: 0})[0].high_watermark == 200, "records are missing", timeout_s=5
        )

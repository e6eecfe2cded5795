"""One connection: versions are negotiated, answers match their requests, and what breaks says so in one sentence."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from headrace.client import BrokerConnection, BrokerUnreachable, UnsupportedApi
from headrace.client.cluster import parse_broker_address
from headrace.wire import frame
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.messages.create_topics import CreateTopicsRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse


@pytest.fixture
def connection(librdkafka_cluster: str) -> Iterator[BrokerConnection]:
    host, port = parse_broker_address(librdkafka_cluster.split(",")[0])
    with BrokerConnection(host, port, timeout_s=10) as found:
        yield found


Serve = Callable[[Callable[[socket.socket], None]], tuple[str, int]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that treats each connection as it is told."""
    listener = socket.create_server(("127.0.0.1", 0))

    def start(treat: Callable[[socket.socket], None]) -> tuple[str, int]:
        def accept() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with peer:
                        treat(peer)

        threading.Thread(target=accept, daemon=True).start()
        host, port = listener.getsockname()
        return host, port

    yield start
    listener.close()


def test_the_newest_version_that_both_know_is_used(connection: BrokerConnection) -> None:
    oldest, newest = connection.versions[3]
    assert oldest == 0
    assert connection.newest(3) == newest == 13
    assert connection.newest(3, at_most=5) == 5
    answer = connection.send_for(MetadataRequest([]), MetadataResponse)
    assert len(answer.brokers) == 3


@pytest.mark.parametrize("version", range(14))
def test_any_version_can_be_asked_for(connection: BrokerConnection, version: int) -> None:
    answer = connection.send_for(MetadataRequest([]), MetadataResponse, version)
    assert sorted(broker.node_id for broker in answer.brokers) == [1, 2, 3]


def test_pipelined_requests_are_answered_in_their_order(connection: BrokerConnection) -> None:
    answers = connection.send_pipelined([ApiVersionsRequest(), MetadataRequest([]), ApiVersionsRequest()], 1)
    assert [type(answer) for answer in answers] == [ApiVersionsResponse, MetadataResponse, ApiVersionsResponse]
    assert connection.is_idle


def test_an_api_that_the_broker_does_not_offer_is_named(connection: BrokerConnection) -> None:
    with pytest.raises(UnsupportedApi, match="does not offer CreateTopics"):
        connection.send(CreateTopicsRequest())


def test_a_version_that_the_broker_no_longer_offers_is_named(connection: BrokerConnection) -> None:
    connection.versions[3] = (14, 20)
    with pytest.raises(UnsupportedApi, match="offers Metadata v14 to v20, this client v0 to v13"):
        connection.send(MetadataRequest())


def test_frames_can_be_sent_and_read_as_they_are(connection: BrokerConnection) -> None:
    connection.send_frame(frame.request_frame(ApiVersionsRequest(), 0, 77, "raw")[4:])
    assert frame.response_correlation_id(connection.read_frame()) == 77


def test_nobody_at_the_address_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BrokerUnreachable, match=rf"^No broker answers at 127\.0\.0\.1:{port}: Connection refused\.$"):
        BrokerConnection("127.0.0.1", port)


def test_a_broker_that_hangs_up_is_one_sentence(serve: Serve) -> None:
    connection = BrokerConnection(*serve(lambda peer: None), timeout_s=5)
    with pytest.raises(
        BrokerUnreachable, match=r"closed the connection|broke the connection|did not take a request"
    ) as raised:
        connection.send(MetadataRequest())
    assert raised.value.request_sent
    assert not connection.is_open


def test_a_broker_that_is_silent_times_out(serve: Serve) -> None:
    released = threading.Event()

    def treat(peer: socket.socket) -> None:
        released.wait(10)

    connection = BrokerConnection(*serve(treat), timeout_s=0.1)
    with pytest.raises(BrokerUnreachable, match=r"did not answer within 0\.1 s"):
        connection.send(MetadataRequest())
    released.set()


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol: a frame of 1213486160 bytes"),
        (struct.pack(">i", -1), "does not speak Kafka's protocol: a frame of -1 bytes"),
        (struct.pack(">i", 3) + b"abc", "does not speak Kafka's protocol"),
        (struct.pack(">ii", 9, 1) + b"\0\0\xff\xff\xff", "does not speak Kafka's protocol"),
    ],
)
def test_what_is_no_kafka_broker_is_one_sentence(serve: Serve, reply: bytes, complaint: str) -> None:
    def treat(peer: socket.socket) -> None:
        peer.recv(65536)
        peer.sendall(reply)

    connection = BrokerConnection(*serve(treat), timeout_s=5)
    with pytest.raises(BrokerUnreachable, match=complaint):
        connection.send(MetadataRequest())


def test_an_answer_to_another_request_is_not_taken(serve: Serve) -> None:
    def treat(peer: socket.socket) -> None:
        peer.recv(65536)
        peer.sendall(b"".join(frame.response_frame(3, MetadataResponse(), 1, 999)))

    connection = BrokerConnection(*serve(treat), timeout_s=5)
    with pytest.raises(BrokerUnreachable, match="it answers another request"):
        connection.send(MetadataRequest(), 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("h:1", ("h", 1)), ("h", ("h", 9092)), (" h:1 ", ("h", 1)), ("[::1]:5", ("::1", 5)), ("[::1]", ("::1", 9092))],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_broker_address(text) == expected


@pytest.mark.parametrize("text", ["h:", ":1", "h:x", "h:0", "h:65536"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a broker address: use host:port"):
        parse_broker_address(text)

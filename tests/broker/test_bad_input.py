"""Bytes that no client sends: the broker answers with a clean error or closes that one connection, and that is all."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable

import pytest

from headrace.broker.dispatch import LISTED_ONLY
from headrace.client.connection import BrokerConnection
from headrace.client.errors import BrokerUnreachable
from headrace.wire import codec
from headrace.wire.apis import API_VERSIONS, APIS
from headrace.wire.frame import request_frame
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.schema import Payload
from tests.broker.peers import (
    Bystander,
    batch_of,
    connect,
    create_topic,
    fetch_request,
    is_closed_by_peer,
    memory_grows_less_than,
    metadata,
    produce_request,
    raw,
)
from tests.broker_process import BrokerProcess, wait_until

pytestmark = pytest.mark.usefixtures("bystander")

MIB = 1 << 20
NOWHERE = "no-such-topic"


def requests_of_clients(topic: str = NOWHERE) -> list[tuple[Payload, int]]:
    """Real requests in an old and a flexible version each."""
    offsets = ListOffsetsRequest(
        topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    )
    asked = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    produced = produce_request(topic, {0: batch_of(b"value"), 1: batch_of(b"a", b"b")})
    wanted = fetch_request(topic, {0: 0, 1: 5})
    return [
        (ApiVersionsRequest("librdkafka", "2.0"), 0),
        (ApiVersionsRequest("librdkafka", "2.0"), 4),
        (asked, 4),
        (asked, 12),
        (produced, 3),
        (produced, 9),
        (wanted, 4),
        (wanted, 12),
        (offsets, 5),
        (offsets, 7),
    ]


def name_of(request: tuple[Payload, int]) -> str:
    return f"{request[0].api.name} v{request[1]}"


# -- lengths ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, -1, -(1 << 31), (100 << 20) + 1, (1 << 31) - 1])
def test_a_length_outside_the_limits_closes_the_connection(broker: BrokerProcess, length: int) -> None:
    with raw(broker) as line:
        line.sendall(struct.pack(">i", length))
        assert is_closed_by_peer(line)


def test_a_huge_length_alone_costs_no_memory(broker: BrokerProcess) -> None:
    with contextlib.ExitStack() as stack, memory_grows_less_than(broker, 16 * MIB):
        for _ in range(50):
            stack.enter_context(raw(broker)).sendall(struct.pack(">i", 100 << 20))


@pytest.mark.parametrize("length", range(1, 10))
def test_a_frame_too_short_for_a_header_closes_the_connection(broker: BrokerProcess, length: int) -> None:
    with raw(broker) as line:
        line.sendall(struct.pack(">i", length) + bytes(length))
        assert is_closed_by_peer(line)


@pytest.mark.parametrize("request_", requests_of_clients(), ids=name_of)
def test_a_length_that_is_one_too_small_closes_the_connection(
    broker: BrokerProcess, request_: tuple[Payload, int]
) -> None:
    frame = request_frame(*request_, 1, "client")
    with raw(broker) as line:
        # A second request behind it: the stray byte must not be taken for the start of its length.
        line.sendall(struct.pack(">i", len(frame) - 5) + frame[4:] + frame)
        assert is_closed_by_peer(line)


@pytest.mark.parametrize("request_", requests_of_clients(), ids=name_of)
def test_a_request_cut_off_at_any_byte_closes_the_connection(
    broker: BrokerProcess, bystander: Bystander, request_: tuple[Payload, int]
) -> None:
    """Each prefix as a frame whose length is right: the message ends too early."""
    body = request_frame(*request_, 1, "client")[4:]
    for end in range(1, len(body)):
        with raw(broker) as line:
            line.sendall(struct.pack(">i", end) + body[:end])
            assert is_closed_by_peer(line), f"answered after {end} of {len(body)} bytes"
    bystander.goes_on()


def test_a_connection_cut_off_at_any_byte_is_forgotten(broker: BrokerProcess) -> None:
    body = request_frame(produce_request(NOWHERE, {0: batch_of(b"value")}), 9, 1, "client")
    with memory_grows_less_than(broker, 16 * MIB):
        for end in range(len(body)):
            with raw(broker) as line:
                line.sendall(body[:end])


# -- counts and versions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [-2, 2, 1_000, 1 << 20, (1 << 31) - 1])
@pytest.mark.parametrize(("api_key", "version", "before"), [(3, 4, b""), (1, 4, bytes(4 * 4 + 1)), (2, 1, bytes(4))])
def test_a_count_beyond_the_frame_closes_the_connection(
    broker: BrokerProcess, count: int, api_key: int, version: int, before: bytes
) -> None:
    body = struct.pack(">hhih", api_key, version, 1, -1) + before + struct.pack(">i", count)
    with raw(broker) as line, memory_grows_less_than(broker, 16 * MIB):
        line.sendall(struct.pack(">i", len(body)) + body)
        assert is_closed_by_peer(line)


def test_a_count_in_a_flexible_version_beyond_the_frame_closes_the_connection(broker: BrokerProcess) -> None:
    for count in (b"\x05", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\x7f", b"\x80" * 20):
        body = struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + count
        with raw(broker) as line, memory_grows_less_than(broker, 16 * MIB):
            line.sendall(struct.pack(">i", len(body)) + body)
            assert is_closed_by_peer(line)


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest_form(broker: BrokerProcess, version: int) -> None:
    body = struct.pack(">hhih", API_VERSIONS, version, 77, -1) + b"whatever follows"
    with connect(broker) as connection:
        connection.send_frame(body)
        answer = connection.read_frame()
        assert struct.unpack_from(">i", answer)[0] == 77
        found, end = codec.decode(ApiVersionsResponse, 0, answer, 4)
        assert end == len(answer)
        assert found.error_code == 35
        offered = {api.api_key: (api.min_version, api.max_version) for api in found.api_keys}
        assert offered[API_VERSIONS] == (0, 5)
        assert set(offered) == set(APIS) | {api.api_key for api in LISTED_ONLY}
        # And the connection goes on.
        connection.send(ApiVersionsRequest("client", "1"), 3)


@pytest.mark.parametrize(
    ("api_key", "version", "says"),
    [
        (9999, 0, "API 9999 is not known"),
        (-1, 0, "API -1 is not known"),
        (57, 2, "UpdateFeatures (API 57) is not supported"),
        (84, 0, "ReadShareGroupState (API 84) is not supported"),
        (3, 14, "Metadata version 14 is outside 0 to 13"),
        (0, 2, "Produce version 2 is outside 3 to 13"),
        (1, -1, "Fetch version -1 is outside 4 to 18"),
    ],
)
def test_an_unknown_api_or_version_closes_the_connection_with_one_log_line(
    broker: BrokerProcess, api_key: int, version: int, says: str
) -> None:
    body = struct.pack(">hhih", api_key, version, 1, 8) + b"somebody" + bytes(64)
    seen = len(broker.log)  # an earlier connection may have had the same port
    with raw(broker) as line:
        peer = line.getsockname()
        line.sendall(struct.pack(">i", len(body)) + body)
        assert is_closed_by_peer(line)
    lines = [written for written in broker.log[seen:].splitlines() if f"{peer[0]}:{peer[1]}" in written]
    assert len(lines) == 1
    assert says in lines[0]
    assert "'somebody'" in lines[0]


# -- other protocols ----------------------------------------------------------------------------------------------

TLS_HELLO = bytes.fromhex("16030100f4010000f00303") + bytes(0xF4 - 6)


@pytest.mark.parametrize(
    ("hello", "says"),
    [
        (TLS_HELLO, "client uses TLS"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "client uses HTTP"),
        (b"POST /topics HTTP/1.1\r\n\r\n", "client uses HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "outside 1 to"),
        (b"*1\r\n$4\r\nPING\r\n", "outside 1 to"),
    ],
)
def test_a_peer_of_another_protocol_is_closed_and_named(broker: BrokerProcess, hello: bytes, says: str) -> None:
    seen = len(broker.log)
    with raw(broker) as line:
        peer = line.getsockname()
        line.sendall(hello)
        assert is_closed_by_peer(line)
    lines = [written for written in broker.log[seen:].splitlines() if f"{peer[0]}:{peer[1]}" in written]
    assert len(lines) == 1
    assert says in lines[0]


# -- pipelines ----------------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(broker: BrokerProcess, topic: str) -> None:
    """Slow and fast ones mixed, more of them than the pipeline holds: the correlation ids come back in order."""
    with connect(broker) as connection:
        metadata(connection, topic)
        for number in range(300):
            match number % 4:
                case 0:
                    connection.ask(produce_request(topic, {0: batch_of(b"%d" % number)}), 12)
                case 1:
                    connection.ask(fetch_request(topic, {0: 0}, max_wait_ms=1, min_bytes=1 << 20), 12)
                case 2:
                    connection.ask(ApiVersionsRequest("client", "1"), 3)
                case _:
                    connection.ask(MetadataRequest([MetadataRequestTopic(name=topic)]), 12)
        for _ in range(300):
            connection.receive()


def test_requests_sent_one_byte_at_a_time_are_answered(broker: BrokerProcess) -> None:
    with connect(broker) as connection:
        frame = request_frame(ApiVersionsRequest("client", "1"), 3, 5, "slow")
        for byte in frame + frame:
            connection.send_bytes(bytes([byte]))
        for _ in range(2):
            assert struct.unpack_from(">i", connection.read_frame())[0] == 5


def test_frames_split_at_any_byte_are_put_together(broker: BrokerProcess) -> None:
    with connect(broker) as connection:
        first = request_frame(ApiVersionsRequest("client", "1"), 3, 1, "a")
        second = request_frame(MetadataRequest([]), 12, 2, "b")
        for cut in range(1, len(first + second)):
            connection.send_bytes((first + second)[:cut])
            connection.send_bytes((first + second)[cut:])
            assert struct.unpack_from(">i", connection.read_frame())[0] == 1
            assert struct.unpack_from(">i", connection.read_frame())[0] == 2


# -- chance -------------------------------------------------------------------------------------------------------


def garbage(chance: random.Random, topic: str) -> bytes:
    """Frames of random bytes under a header that often is a good one."""
    size = chance.choice([10, 20, 100, 5_000])
    body = bytearray(chance.randbytes(size))
    if chance.random() < 0.8:
        api = chance.choice(list(APIS.values()))
        struct.pack_into(">hhih", body, 0, api.key, chance.randint(api.oldest, api.newest), 1, -1)
    return struct.pack(">i", size) + bytes(body)


def mutated(chance: random.Random, topic: str) -> bytes:
    """A real request, often for a topic that exists, with a few bytes changed, cut out or put in."""
    frame = bytearray(request_frame(*chance.choice(requests_of_clients(topic)), 1, "client"))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(4, len(frame))
        match chance.randrange(4):
            case 0:
                frame[at] = chance.randrange(256)
            case 1:
                del frame[at : at + chance.randint(1, 8)]
            case 2:
                frame[at:at] = chance.randbytes(chance.randint(1, 8))
            case _:
                frame[at : at + 4] = struct.pack(">i", chance.choice([-1, 0, 1, 1 << 20, (1 << 31) - 1]))
        if len(frame) < 15:
            break
    struct.pack_into(">i", frame, 0, len(frame) - 4)
    return bytes(frame)


@pytest.mark.parametrize("make", [garbage, mutated])
@pytest.mark.parametrize("seed", range(4))
def test_random_frames_never_disturb_anybody(
    broker: BrokerProcess,
    bystander: Bystander,
    topic: str,
    make: Callable[[random.Random, str], bytes],
    seed: int,
) -> None:
    chance = random.Random(seed)
    with connect(broker) as connection:
        create_topic(connection, topic, partitions=2)
    seen = len(broker.log)
    with memory_grows_less_than(broker, 32 * MIB):
        for _ in range(400):
            with connect(broker, timeout_s=0.3) as connection, contextlib.suppress(BrokerUnreachable):
                frames = [make(chance, topic) for _ in range(chance.randint(1, 3))]
                connection.send_bytes(b"".join(frames))
                for _ in frames:
                    connection.read_frame()  # until it closes the connection, or has nothing to say
    bystander.goes_on()
    faults = [written for written in broker.log[seen:].splitlines() if '"level": "error"' in written]
    assert faults == []


def test_thousands_of_connections_that_come_and_go_leave_nothing(broker: BrokerProcess) -> None:
    def come_and_go(number: int) -> None:
        for _ in range(number):
            with BrokerConnection(broker.host, broker.port) as connection:
                connection.send(ApiVersionsRequest("client", "1"), 3)

    come_and_go(200)
    with memory_grows_less_than(broker, 8 * MIB):
        come_and_go(2_000)
    wait_until(lambda: broker.is_running, "the broker is gone")

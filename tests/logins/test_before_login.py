"""Before a login: three APIs are answered, everything else closes the connection with nothing served or parsed."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from headrace.client import Admin, BrokerUnreachable, Cluster
from headrace.wire import codec
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode
from tests.broker.peers import is_closed_by_peer
from tests.broker_process import wait_until
from tests.logins.secured import ADMIN, ADMIN_PASSWORD, SecuredBroker

HANDSHAKE, VERSIONS, AUTHENTICATE, METADATA = 17, 18, 36, 3
REQUESTS = 10_000
FRAME_MAX_BYTES = 512 << 10


def frame(api_key: int, version: int, body: bytes = b"") -> bytes:
    content = struct.pack(">hhih", api_key, version, 7, -1) + body
    return struct.pack(">i", len(content)) + content


def shake(mechanism: str, version: int = 1) -> bytes:
    return frame(HANDSHAKE, version, struct.pack(">h", len(mechanism)) + mechanism.encode())


def token(content: bytes) -> bytes:
    return frame(AUTHENTICATE, 1, struct.pack(">i", len(content)) + content)


def answer(line: socket.socket) -> bytes:
    """The body of the next answer, behind its correlation id."""
    (size,) = struct.unpack(">i", exactly(line, 4))
    return exactly(line, size)[4:]


def exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = line.recv(size - len(data))
        assert part, f"closed after {len(data)} of {size} bytes"
        data += part
    return data


@contextlib.contextmanager
def connected(secured: SecuredBroker, listener: str = "sasl-plain") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", secured.ports[listener]), timeout=20) as line:
        yield line


@pytest.mark.parametrize("api_key", [*sorted(set(APIS) - {HANDSHAKE, VERSIONS, AUTHENTICATE}), 4, 999, -1])
def test_any_other_api_closes_the_connection_before_its_body_has_arrived(secured: SecuredBroker, api_key: int) -> None:
    with connected(secured) as line:
        # The body never comes: whoever waited for it, or parsed it, would not close.
        line.sendall(struct.pack(">ihhi", 400_000, api_key, 0, 7))
        assert is_closed_by_peer(line)


def test_of_ten_thousand_requests_none_is_served(secured: SecuredBroker) -> None:
    """All at once on each connection: what follows the first is not looked at either."""
    failures = secured.process.log.count("a login failed")
    metadata = frame(METADATA, 1, struct.pack(">i", -1))
    for _ in range(REQUESTS // 100):
        with connected(secured) as line:
            with contextlib.suppress(ConnectionError):
                line.sendall(metadata * 100)
            assert is_closed_by_peer(line)
    assert secured.process.log.count("a login failed") == failures


def test_versions_are_told_to_everybody(secured: SecuredBroker) -> None:
    with connected(secured) as line:
        for version in (0, 99):
            line.sendall(frame(VERSIONS, version))
            (code,) = struct.unpack_from(">h", answer(line))
            assert code == (ErrorCode.NONE if version == 0 else ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("size", [0, 7, FRAME_MAX_BYTES + 1, -1, 0x16030100])
def test_a_frame_that_cannot_be_one_closes_the_connection(secured: SecuredBroker, size: int) -> None:
    with connected(secured) as line:
        line.sendall(struct.pack(">i", size))
        assert is_closed_by_peer(line)


@pytest.mark.parametrize("place", ["header", "body"])
def test_a_frame_full_of_tagged_fields_closes_the_connection(secured: SecuredBroker, place: str) -> None:
    """Reading a quarter of a million of them would hold up everybody, and nobody has logged in."""
    tags = codec.unsigned_varint(250_000) + b"\x07\0" * 250_000
    body = tags if place == "header" else b"\0\x02a\x02b" + tags
    with connected(secured) as line:
        line.sendall(frame(VERSIONS, 3, body))
        assert is_closed_by_peer(line)


def test_an_unknown_mechanism_is_answered_with_the_list(secured: SecuredBroker) -> None:
    with connected(secured) as line:
        line.sendall(shake("GSSAPI"))
        body = answer(line)
        assert struct.unpack_from(">h", body) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM,)
        assert b"PLAIN" in body
        assert b"SCRAM-SHA-256" in body
        assert b"SCRAM-SHA-512" not in body
        assert is_closed_by_peer(line)


def test_a_token_before_a_handshake_closes_the_connection(secured: SecuredBroker) -> None:
    with connected(secured) as line:
        line.sendall(token(b"\0a\0b"))
        assert is_closed_by_peer(line)


def test_a_second_handshake_in_an_exchange_is_refused(secured: SecuredBroker) -> None:
    with connected(secured) as line:
        line.sendall(shake("PLAIN"))
        answer(line)
        line.sendall(shake("PLAIN"))
        assert struct.unpack_from(">h", answer(line)) == (ErrorCode.ILLEGAL_SASL_STATE,)
        assert is_closed_by_peer(line)


def test_after_the_login_both_are_refused_and_the_connection_stays(secured: SecuredBroker) -> None:
    with connected(secured) as line:
        log_in(line)
        for request in (token(b"x"), shake("PLAIN")):  # a handshake so soon is no new login
            line.sendall(request)
            assert struct.unpack_from(">h", answer(line)) == (ErrorCode.ILLEGAL_SASL_STATE,)
        line.sendall(frame(METADATA, 1, struct.pack(">i", 0)))
        assert answer(line)


def log_in(line: socket.socket, password: str = ADMIN_PASSWORD) -> bytes:
    line.sendall(shake("PLAIN"))
    answer(line)
    line.sendall(token(f"\0{ADMIN}\0{password}".encode()))
    return answer(line)


def test_a_wrong_password_is_answered_after_a_while_and_no_more_is_served(secured: SecuredBroker) -> None:
    with connected(secured) as line:
        began = time.monotonic()
        body = log_in(line, "wrong")
        assert time.monotonic() - began >= 0.1
        assert struct.unpack_from(">h", body) == (ErrorCode.SASL_AUTHENTICATION_FAILED,)
        assert b"Authentication failed: Invalid username or password" in body
        line.sendall(frame(METADATA, 1, struct.pack(">i", -1)))
        assert is_closed_by_peer(line)


def test_requests_that_follow_a_login_at_once_are_served(secured: SecuredBroker) -> None:
    with connected(secured) as line:
        plain = token(f"\0{ADMIN}\0{ADMIN_PASSWORD}".encode())
        line.sendall(shake("PLAIN") + plain + frame(METADATA, 1, struct.pack(">i", 0)))
        for _ in range(3):
            assert answer(line)


def test_a_handshake_of_version_0_is_followed_by_bare_tokens(secured: SecuredBroker) -> None:
    plain = f"\0{ADMIN}\0{ADMIN_PASSWORD}".encode()
    with connected(secured) as line:
        line.sendall(shake("PLAIN", 0))
        assert struct.unpack_from(">h", answer(line)) == (ErrorCode.NONE,)
        line.sendall(struct.pack(">i", len(plain)) + plain)
        assert exactly(line, 4) == bytes(4)
        line.sendall(frame(METADATA, 1, struct.pack(">i", 0)))
        assert answer(line)
    with connected(secured) as line:
        line.sendall(shake("PLAIN", 0))
        answer(line)
        line.sendall(struct.pack(">i", 4) + b"\0a\0b")
        assert is_closed_by_peer(line)


def test_a_login_that_takes_too_long_is_cut(secured: SecuredBroker) -> None:
    """Nothing is sent meanwhile, or only half of something."""
    lines = [socket.create_connection(("127.0.0.1", secured.ports[name]), 20) for name in ("sasl-plain", "sasl")]
    lines[0].sendall(shake("PLAIN")[:-1])
    for line in lines:
        assert is_closed_by_peer(line)
        line.close()


def test_who_says_nothing_makes_room_for_others(secured: SecuredBroker) -> None:
    """A thousand that never begin or end their TLS handshake, from the address that a good client has, too."""
    idle = []
    try:
        for number in range(1_000):
            with contextlib.suppress(OSError):
                idle.append(socket.create_connection(("127.0.0.1", secured.ports["sasl"]), timeout=5))
                idle[-1].sendall(b"\x16\x03\x01\x02\x00\x01" if number % 2 else b"")
        with secured.cluster() as cluster:
            wait_until(lambda: is_served(cluster), "a good client was kept out", timeout_s=10)
    finally:
        for line in idle:
            line.close()


def is_served(cluster: Cluster) -> bool:
    try:
        return bool(Admin(cluster).describe_cluster().nodes)
    except BrokerUnreachable:
        return False

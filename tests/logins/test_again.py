"""Logging in again on a live connection (KIP-368), and what happens to those who do not."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from headrace.client import Admin
from headrace.wire.errors import ErrorCode
from tests.broker.peers import is_closed_by_peer
from tests.broker_process import wait_until
from tests.logins.secured import ADMIN, ADMIN_PASSWORD, SecuredBroker
from tests.logins.test_before_login import METADATA, answer, connected, frame, log_in, shake, token

LIFETIME_MS = 3_000
ROOT = f"\0{ADMIN}\0{ADMIN_PASSWORD}".encode()


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker whose logins hold for three seconds."""
    secured = SecuredBroker(tmp_path_factory.mktemp("short"), connections_max_reauth_ms=LIFETIME_MS)
    try:
        yield secured.start()
    finally:
        secured.process.end()


def lifetime_ms(body: bytes) -> int:
    """The last field of SaslAuthenticate's answer."""
    found: int = struct.unpack(">q", body[-8:])[0]
    return found


def asks(line: socket.socket) -> None:
    line.sendall(frame(METADATA, 1, struct.pack(">i", 0)))


def again(line: socket.socket, plain: bytes, mechanism: str = "PLAIN") -> bytes:
    """A new login, as soon as one is allowed."""
    while True:
        line.sendall(shake(mechanism))
        (code,) = struct.unpack_from(">h", answer(line))
        if code != ErrorCode.ILLEGAL_SASL_STATE:
            break
        time.sleep(0.05)
    assert code == ErrorCode.NONE
    line.sendall(token(plain))
    return answer(line)


def test_the_answer_says_how_long_a_login_holds_and_a_new_one_renews_it(short: SecuredBroker) -> None:
    with connected(short) as line:
        assert lifetime_ms(log_in(line)) == LIFETIME_MS
        ends = time.monotonic() + 1.5 * LIFETIME_MS / 1000
        while time.monotonic() < ends:
            assert lifetime_ms(again(line, ROOT)) == LIFETIME_MS
            asks(line)
            assert answer(line)


def test_past_its_time_a_connection_is_closed_at_its_next_request(short: SecuredBroker) -> None:
    with connected(short) as line:
        log_in(line)
        time.sleep(LIFETIME_MS / 1000 + 0.1)  # the time itself is what is tested
        asks(line)
        assert is_closed_by_peer(line)
    wait_until(lambda: "the login has expired" in short.process.log, "it was not said")


def test_nobody_becomes_somebody_else(short: SecuredBroker) -> None:
    short.create_user("other", "other-password")
    cases = [
        (b"\0other\0other-password", "PLAIN", b"Cannot change principals"),
        (b"n,,n=root,r=abc", "SCRAM-SHA-256", b"is not supported for re-authentication"),
        (b"\0root\0wrong", "PLAIN", b"Invalid username or password"),
    ]
    for plain, mechanism, said in cases:
        with connected(short) as line:
            log_in(line)
            body = again(line, plain, mechanism)
            assert struct.unpack_from(">h", body) == (ErrorCode.SASL_AUTHENTICATION_FAILED,)
            assert said in body
            asks(line)
            assert is_closed_by_peer(line)


def test_in_the_middle_of_a_new_login_nothing_else_is_served(short: SecuredBroker) -> None:
    with connected(short) as line:
        log_in(line)
        time.sleep(1.1)  # within a second of the last login there is no new one
        line.sendall(shake("PLAIN"))
        assert struct.unpack_from(">h", answer(line)) == (ErrorCode.NONE,)
        asks(line)
        assert is_closed_by_peer(line)


def test_a_client_that_goes_on_for_longer_notices_nothing(short: SecuredBroker) -> None:
    errors: list[object] = []
    producer = Producer({**short.confluent("SCRAM-SHA-256"), "error_cb": errors.append})
    delivered = 0

    def count(error: object, _: object) -> None:
        nonlocal delivered
        assert error is None
        delivered += 1

    ends = time.monotonic() + 2 * LIFETIME_MS / 1000
    sent = 0
    while time.monotonic() < ends:
        producer.produce("again", b"x", callback=count)
        sent += 1
        producer.poll(0.1)
    assert producer.flush(20) == 0
    assert (delivered, errors) == (sent, [])
    assert "login again" in short.process.log


def test_our_own_client_makes_a_new_connection_in_time(short: SecuredBroker) -> None:
    with short.cluster() as cluster:
        ends = time.monotonic() + 1.5 * LIFETIME_MS / 1000
        told = short.process.log.count("the login has expired")
        while time.monotonic() < ends:
            assert Admin(cluster).describe_cluster().nodes
            time.sleep(0.05)
        assert short.process.log.count("the login has expired") == told

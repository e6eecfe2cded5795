"""The PROXY protocol on a listener: required there, taken from listed networks alone, and it says who the client is."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest

from headrace.broker.network.proxy_header import SIGNATURE, ProxyError, body_bytes, peer_of
from tests.broker.peers import is_closed_by_peer
from tests.broker_process import free_port, wait_until
from tests.logins.secured import SecuredBroker
from tests.logins.test_before_login import VERSIONS, answer, frame, log_in

LOCAL, PROXY = 0x20, 0x21


def header(source: str = "203.0.113.9", command: int = PROXY, more: bytes = b"") -> bytes:
    address = ipaddress.ip_address(source)
    family = 0x11 if address.version == 4 else 0x21
    body = address.packed + address.packed + struct.pack(">HH", 51_000, 9_093) + more
    return SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    secured = SecuredBroker(tmp_path_factory.mktemp("proxied"), admin_user="root")
    secured.ports = {name: free_port() for name in ("tls", "plain", "others")}
    secured.process.settings["listen"] = [
        f"tls=SASL_SSL://127.0.0.1:{secured.ports['tls']},proxy-from=10.0.0.0/8,127.0.0.0/8",
        f"plain=PLAINTEXT://127.0.0.1:{secured.ports['plain']},proxy-from=127.0.0.1",
        f"others=PLAINTEXT://127.0.0.1:{secured.ports['others']},proxy-from=10.0.0.0/8",
    ]
    try:
        yield secured.start()
    finally:
        secured.process.end()


def connected(proxied: SecuredBroker, listener: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxied.ports[listener]), timeout=20)


@pytest.mark.parametrize("source", ["203.0.113.9", "2001:db8::1", "::ffff:203.0.113.10"])
def test_the_client_behind_the_proxy_is_who_logs_in(proxied: SecuredBroker, source: str) -> None:
    context = ssl.create_default_context(cafile=str(proxied.authority.ca_file))
    with connected(proxied, "tls") as plain:
        plain.sendall(header(source, more=b"\x04\x00\x03abc"))
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as line:
            log_in(line)
    shown = source.removeprefix("::ffff:")
    wait_until(lambda: f'"host": "{shown}"' in proxied.process.log, "it was not told")


def test_header_and_request_may_come_in_one_segment_or_byte_by_byte(proxied: SecuredBroker) -> None:
    request = header() + frame(VERSIONS, 0)
    for parts in ([request], [request[at : at + 1] for at in range(len(request))]):
        with connected(proxied, "plain") as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in parts:
                line.sendall(part)
            assert answer(line)


def test_a_proxy_may_speak_for_itself(proxied: SecuredBroker) -> None:
    with connected(proxied, "plain") as line:
        line.sendall(header(command=LOCAL) + frame(VERSIONS, 0))
        assert answer(line)


def test_without_a_header_or_from_elsewhere_nobody_is_served(proxied: SecuredBroker) -> None:
    with connected(proxied, "plain") as line:
        line.sendall(frame(VERSIONS, 0) + bytes(16))
        assert is_closed_by_peer(line)
    with connected(proxied, "others") as line:
        line.sendall(header() + frame(VERSIONS, 0))
        assert is_closed_by_peer(line)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"PROXY TCP4 1.2.3", b""),
        (SIGNATURE + b"\x11\x11\x00\x0c", bytes(12)),
        (SIGNATURE + b"\x21\x11\xff\xff", b""),
        (SIGNATURE + b"\x21\x11\x00\x04", bytes(4)),
        (SIGNATURE + b"\x21\x31\x00\x0c", bytes(12)),
        (SIGNATURE + b"\x25\x11\x00\x0c", bytes(12)),
    ],
)
def test_a_header_that_cannot_be_read_is_refused(head: bytes, body: bytes) -> None:
    with pytest.raises(ProxyError):
        peer_of(head, body[: body_bytes(head)])

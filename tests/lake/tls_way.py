"""A way to a broker through TLS: it ends the encryption and passes the bytes on, as a proxy in front of one does."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

SERVER_PEM = Path(__file__).parent / "tls" / "server.pem"
"""Key and certificate for 127.0.0.1, made for these tests; it is its own authority."""


class TlsWay(socketserver.ThreadingTCPServer):
    """Listens at once; where it leads is said later, once the broker that must know this address runs."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.broker = ("", 0)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(SERVER_PEM)
        super().__init__(("127.0.0.1", 0), _Connection)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def encrypted(self, plain: socket.socket) -> ssl.SSLSocket:
        return self._context.wrap_socket(plain, server_side=True)


class _Connection(socketserver.BaseRequestHandler):
    server: TlsWay

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            client = self.server.encrypted(self.request)
            with client, socket.create_connection(self.server.broker) as broker:
                threading.Thread(target=_pass_on, args=(broker, client), daemon=True).start()
                _pass_on(client, broker)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(1 << 16):
            target.sendall(content)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def tls_way() -> Iterator[TlsWay]:
    """A way that is open for the block."""
    with TlsWay() as way:
        thread = threading.Thread(target=way.serve_forever, daemon=True)
        thread.start()
        try:
            yield way
        finally:
            way.shutdown()
            thread.join()

"""Accepting on one listener: PROXY header, TLS, login, in this order, then the serving connection."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Any, cast

from headrace.broker.access import Access
from headrace.broker.network.connection import Connection
from headrace.broker.network.login_connection import LoginConnection
from headrace.broker.network.newcomer import Newcomer
from headrace.broker.network.proxy_header import HEAD_BYTES, ProxyError, body_bytes, peer_of
from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.caller import ANONYMOUS, Caller, Principal
from headrace.security.listeners import Listener

if TYPE_CHECKING:
    from headrace.broker.network.gate import Gate
    from headrace.broker.network.server import Server
    from headrace.broker.network.tls import Certificates

log = logging.getLogger(__name__)

_FAREWELL_S = 5.0
"""How long TLS waits for the other side to agree that a connection ends."""
_MINUTE_S = 60.0
_TOLD_A_MINUTE = 100


class Entrance:
    """One listener's."""

    def __init__(self, server: Server, gate: Gate, listener: Listener, certificates: Certificates | None) -> None:
        self.listener = listener
        self.server = server
        self.logins = server.logins
        self._gate = gate
        self._certificates = certificates
        self._networks = listener.networks
        self._anonymous = Access(server.broker, Caller(ANONYMOUS, DEFAULT_ORGANISATION, listener.name))
        self._timeout_s = server.logins.options.login_timeout_ms / 1000
        self._tasks: set[asyncio.Task[None]] = set()
        self._told, self._told_since_s = 0, -_MINUTE_S

    def came(self, line: socket.socket, address: Any) -> None:
        """A socket was accepted."""
        loop = self.server.loop
        newcomer = Newcomer(self._gate, plain_host(address[0]), address[1], loop.time())
        if not self._gate.places.take(newcomer):
            line.close()
            return
        task = loop.create_task(self._let_in(newcomer, line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        newcomer.begin(task, loop.call_later(self._timeout_s, newcomer.turn_away))

    async def _let_in(self, newcomer: Newcomer, line: socket.socket) -> None:
        try:
            if self._networks:
                await self._read_proxy_header(newcomer, line)
            quotas = self.server.broker.quotas
            if quotas.is_any and (pause_ms := quotas.connection_pause_ms(newcomer.host)):
                await asyncio.sleep(pause_ms / 1000)
                raise ProxyError("it exceeded its connection quota")
            if self._certificates is None:
                connection = self._connection(newcomer)
                await self.server.loop.connect_accepted_socket(lambda: connection, line)
            else:
                await _readable(self.server.loop, line)
                await self._gate.handshake_turn(newcomer)
                await self._encrypt(newcomer, line, self._certificates.context(self.listener.client_auth))
        except asyncio.CancelledError:
            line.close()
            raise
        except (OSError, ssl.SSLError, EOFError, ProxyError) as error:
            newcomer.is_in()
            line.close()
            self.say("a client failed to connect", f"{newcomer.host}:{newcomer.port}", _why(error))
        except Exception:
            newcomer.is_in()
            line.close()
            log.exception("accepting a client failed")

    async def _encrypt(self, newcomer: Newcomer, line: socket.socket, context: ssl.SSLContext) -> None:
        connection = self._connection(newcomer)
        await self._gate.handshakes.make(
            line,
            context,
            lambda stand_in: self.server.loop.connect_accepted_socket(
                lambda: connection,
                line,
                ssl=stand_in,
                ssl_handshake_timeout=self._timeout_s,
                ssl_shutdown_timeout=_FAREWELL_S,
            ),
        )

    def say(self, what: str, peer: str, why: str) -> None:
        """Tells of a stranger in the log, but not of each of thousands."""
        now_s = self.server.loop.time()
        if now_s - self._told_since_s >= _MINUTE_S:
            if self._told > _TOLD_A_MINUTE:
                log.info("rejected clients were not logged", extra={"number": self._told - _TOLD_A_MINUTE})
            self._told, self._told_since_s = 0, now_s
        self._told += 1
        if self._told <= _TOLD_A_MINUTE:
            log.info(what, extra={"listener": self.listener.name, "peer": peer, "why": why})

    def _connection(self, newcomer: Newcomer) -> asyncio.BaseProtocol:
        if self.listener.is_sasl:
            return LoginConnection(self, newcomer)
        return EnteringConnection(self, newcomer)

    def access(self, host: str) -> Access:
        """The access of an anonymous client."""
        return self._anonymous.from_host(host)

    def access_by_certificate(self, transport: asyncio.BaseTransport, host: str) -> Access | None:
        """The access of a client certificate's owner, None if no rule matches; anonymous without a certificate."""
        found = transport.get_extra_info("ssl_object") if self.listener.asks_for_certificates else None
        content = None if found is None else found.getpeercert(binary_form=True)
        if content is None:
            return self.access(host)
        from cryptography import x509  # only certificates need it

        name = x509.load_der_x509_certificate(content).subject.rfc4514_string()
        user = self.logins.certificate_names.user_of(name)
        if user is None or not self.logins.is_organisation(user.organisation):
            why = "no rule names its user" if user is None else "no such organisation"
            self.logins.audit.refused(name, self.listener.name, host, "certificate", why)
            return None
        caller = Caller(Principal("User", user.user), user.organisation, self.listener.name, host)
        self.logins.audit.let_in("login", caller, "certificate")
        return Access(self.server.broker, caller)

    async def _read_proxy_header(self, newcomer: Newcomer, line: socket.socket) -> None:
        """Exactly the header: the following bytes belong to TLS or the client."""
        if not any(ipaddress.ip_address(newcomer.host) in network for network in self._networks):
            raise ProxyError(f"{newcomer.host} is not a trusted proxy of this listener")
        head = await self._exactly(line, HEAD_BYTES)
        found = peer_of(head, await self._exactly(line, body_bytes(head)))
        if found is None:
            return
        self._gate.places.leave(newcomer)
        newcomer.host, newcomer.port = plain_host(found[0]), found[1]
        if not self._gate.places.take(newcomer):
            raise ProxyError("too many unauthenticated connections from this address")

    async def _exactly(self, line: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = await self.server.loop.sock_recv(line, size - len(data))
            if not part:
                raise EOFError("it closed the connection before its PROXY header was complete")
            data += part
        return data


class EnteringConnection(Connection):
    """A connection that needs no login: it is served as soon as TLS and the proxy are done."""

    def __init__(self, entrance: Entrance, newcomer: Newcomer) -> None:
        super().__init__(entrance.server, entrance.access(newcomer.host))
        self.peer_host, self.peer = newcomer.host, f"{newcomer.host}:{newcomer.port}"
        self._entrance, self._newcomer = entrance, newcomer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._newcomer.is_in()
        access = self._entrance.access_by_certificate(transport, self.peer_host)
        if access is None:
            cast("asyncio.Transport", transport).abort()
            return
        self.access = access
        super().connection_made(transport)


async def _readable(loop: asyncio.AbstractEventLoop, line: socket.socket) -> None:
    """Returns when the client said something."""
    there = asyncio.Event()
    loop.add_reader(line, there.set)
    try:
        await there.wait()
    finally:
        if line.fileno() >= 0:
            loop.remove_reader(line)


def plain_host(host: str) -> str:
    """An address as rules about hosts name it: without a zone, and IPv4 as itself."""
    found = ipaddress.ip_address(host.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or 'the handshake failed'}"
    return str(error)

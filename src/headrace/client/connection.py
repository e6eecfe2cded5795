"""One connection to one broker: requests out, responses in, in order.

Versions are negotiated once, by the first request that does not name its own. Any failure becomes BrokerUnreachable
with one sentence, and the connection is closed: after half a response it cannot continue.
"""

from __future__ import annotations

import math
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, TypeVar

import msgspec

from headrace.client.errors import BrokerUnreachable, PropertyError, UnsupportedApi, kafka_error
from headrace.client.sasl import Sasl, authenticate
from headrace.wire import codec, frame
from headrace.wire.apis import APIS, response_class
from headrace.wire.codec import DecodeError
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.schema import Payload

R = TypeVar("R", bound=Payload)

FRAME_MAX_BYTES = 256 * 1024 * 1024
ELEMENTS_MAX = 5_000_000
"""Generous: the broker is trusted, and metadata of a large cluster has many elements."""
NEGOTIATING_VERSION = 3
"""First version of ApiVersions to try: brokers since Kafka 2.4 answer it, older ones then get version 0 (KIP-511)."""

_LOGIN_USED = 0.85
"""Share of a login's lifetime after which a new connection is opened."""


class ClientSecurity(msgspec.Struct, frozen=True):
    """TLS and login of a client."""

    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    check_hostname: bool = True
    sasl: Sasl | None = None

    def __repr__(self) -> str:
        return f"ClientSecurity(tls={self.tls}, sasl={self.sasl})"

    def ssl_context(self) -> ssl.SSLContext | None:
        """None without TLS; PropertyError if a file is unusable."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise PropertyError("ssl.ca.location", f"names an unusable file: {_tls_reason(error)}") from None
        context.check_hostname = self.check_hostname
        if self.certificate_file is not None:
            try:
                context.load_cert_chain(self.certificate_file, self.key_file, password=self.key_password or "")
            except (OSError, ssl.SSLError) as error:
                trouble = f"names an invalid certificate or key: {_tls_reason(error)}"
                raise PropertyError("ssl.keystore.location", trouble) from None
        return context


class InFlight(NamedTuple):
    """A request in flight."""

    api_key: int
    version: int
    correlation_id: int


class BrokerConnection:
    """A blocking connection. `timeout_s` limits connecting, and the silence while waiting for a response."""

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float = 30.0,
        client_id: str = "headrace",
        ssl_context: ssl.SSLContext | None = None,
        sasl: Sasl | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self.timeout_s = timeout_s
        self.client_id = client_id
        self._versions: dict[int, tuple[int, int]] | None = None
        self._asked: deque[InFlight] = deque()
        self._last_correlation_id = 0
        self._socket = self._open(host, port, ssl_context)
        self._stream = self._socket.makefile("rb")
        self.is_open = True
        self._renew_at_s = math.inf
        if sasl is not None:
            try:
                self._renew_at_s = time.monotonic() + _LOGIN_USED * authenticate(self._exchange, sasl)
            except BaseException:
                self.close()
                raise

    def _exchange(self, api_key: int, version: int, body: bytes) -> bytes:
        """The body of a response, for the SASL exchange, which precedes version negotiation."""
        self._last_correlation_id += 1
        client_id = self.client_id.encode()
        head = struct.pack(">hhih", api_key, version, self._last_correlation_id, len(client_id))
        self.send_frame(head + client_id + body)
        return self.read_frame()[4:]

    def _open(self, host: str, port: int, ssl_context: ssl.SSLContext | None) -> socket.socket:
        try:
            plain = socket.create_connection((host, port), self.timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if ssl_context is None:
                return plain
            with plain:  # wrapping takes the descriptor over; where it fails, this closes it
                return ssl_context.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            raise BrokerUnreachable(f"No broker answers at {self.address}: {_reason(error)}.") from error

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; outstanding responses are lost."""
        if self.is_open:
            self.is_open = False
            self._stream.close()
            self._socket.close()

    @property
    def is_idle(self) -> bool:
        """Open, nothing in flight, and the login is not about to expire."""
        return self.is_open and not self._asked and time.monotonic() < self._renew_at_s

    # Requests and responses

    def send(self, request: Payload, version: int | None = None, extra_wait_s: float = 0.0) -> Payload:
        """The response to a request, in the newest version that both sides support unless one is given.

        `extra_wait_s` is how long the request asks the broker to wait, on top of the connection's own patience.
        """
        self.ask(request, version)
        return self.receive(extra_wait_s)

    def send_for(self, request: Payload, response: type[R], version: int | None = None, extra_wait_s: float = 0.0) -> R:
        """Like `send`, typed with the class of the response."""
        answer = self.send(request, version, extra_wait_s)
        assert isinstance(answer, response)
        return answer

    def send_pipelined(self, requests: Iterable[Payload], version: int | None = None) -> list[Payload]:
        """The responses to several requests, which are all sent before the first response is read."""
        count = 0
        for request in requests:
            self.ask(request, version)
            count += 1
        return [self.receive() for _ in range(count)]

    def ask(self, request: Payload, version: int | None = None) -> None:
        """Sends a request; `receive` returns the responses in the order of the requests."""
        if version is None:
            version = self.newest(request.api.key)
        self._last_correlation_id += 1
        asked = InFlight(request.api.key, version, self._last_correlation_id)
        self.send_bytes(frame.request_frame(request, version, asked.correlation_id, self.client_id))
        self._asked.append(asked)

    def tell(self, request: Payload, version: int | None = None) -> None:
        """Sends a request without a response: a produce with acks=0."""
        self.ask(request, version)
        self._asked.pop()

    def receive(self, extra_wait_s: float = 0.0) -> Payload:
        """The response to the oldest request in flight."""
        asked = self._asked.popleft()
        data = self.read_frame(extra_wait_s)
        try:
            if frame.response_correlation_id(data) != asked.correlation_id:
                raise DecodeError("it answers another request")
            body = frame.response_body(asked.api_key, asked.version, data)
            cls = response_class(asked.api_key)
            return codec.decode(cls, asked.version, data, body, ELEMENTS_MAX)[0]
        except DecodeError as error:
            raise self._broken(f"sent a response that cannot be read: {error}") from error

    # Versions

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The broker's APIs: key -> oldest and newest version."""
        if self._versions is None:
            self._versions = self._negotiate()
        return self._versions

    def newest(self, api_key: int, at_most: int = 32767) -> int:
        """The newest version of an API that the broker, we and the caller support."""
        ours, theirs = APIS[api_key], self.versions.get(api_key)
        if theirs is None:
            raise UnsupportedApi(f"The broker at {self.address} does not offer {ours.name}.")
        version = min(ours.newest, theirs[1], at_most)
        if version < max(ours.oldest, theirs[0]):
            raise UnsupportedApi(
                f"The broker at {self.address} offers {ours.name} v{theirs[0]} to v{theirs[1]},"
                f" this client v{ours.oldest} to v{min(ours.newest, at_most)}."
            )
        return version

    def _negotiate(self) -> dict[int, tuple[int, int]]:
        if self._asked:
            raise RuntimeError("Versions cannot be negotiated while responses are pending: give the version.")
        for version in (NEGOTIATING_VERSION, 0):
            self._last_correlation_id += 1
            request = ApiVersionsRequest("headrace", "1")
            self.send_bytes(frame.request_frame(request, version, self._last_correlation_id, self.client_id))
            data = self.read_frame()
            # The error code comes first in every version; with UNSUPPORTED_VERSION the rest may have any format.
            error_code = struct.unpack_from(">h", data, 4)[0] if len(data) >= 6 else 0
            if error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        check(error_code)
        try:
            answer, _ = codec.decode(ApiVersionsResponse, version, data, 4)
        except DecodeError as error:
            raise self._broken(f"does not speak Kafka's protocol: {error}") from error
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    # Bytes, for tests that speak below the level of messages

    def send_frame(self, data: bytes) -> None:
        """Sends a frame, prefixed with its length."""
        self.send_bytes(struct.pack(">i", len(data)) + data)

    def send_bytes(self, data: bytes) -> None:
        """Sends raw bytes."""
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(data)
        except (OSError, ValueError) as error:
            raise self._broken(f"did not accept a request: {_reason(error)}") from error

    def read_frame(self, extra_wait_s: float = 0.0) -> bytes:
        """The next frame without its length."""
        try:
            self._socket.settimeout(self.timeout_s + extra_wait_s)
            head = self._stream.read(4)
            if len(head) < 4:
                raise self._broken("closed the connection")
            (size,) = struct.unpack(">i", head)
            if not 0 <= size <= FRAME_MAX_BYTES:
                raise self._broken(f"does not speak Kafka's protocol: a frame of {size} bytes")
            data = self._stream.read(size)
            if len(data) < size:
                raise self._broken("closed the connection in the middle of a response")
            return data
        except BrokerUnreachable:
            raise
        except TimeoutError as error:
            raise self._broken(f"did not answer within {self.timeout_s + extra_wait_s:g} s") from error
        except (OSError, ValueError) as error:
            raise self._broken(f"broke the connection: {_reason(error)}") from error

    def _broken(self, what: str) -> BrokerUnreachable:
        self.close()
        return BrokerUnreachable(f"The broker at {self.address} {what}.", request_sent=True)


def check(code: int, message: str | None = None) -> None:
    """Raises the error of a response, if it has one."""
    if code != ErrorCode.NONE:
        raise kafka_error(code, message)


def _reason(error: Exception) -> str:
    """The operating system's error text, without the number."""
    if isinstance(error, TimeoutError):
        return "it timed out"
    return getattr(error, "strerror", None) or str(error)


def _tls_reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not in PEM form"
    return getattr(error, "strerror", None) or str(error)

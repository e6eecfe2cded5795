"""A connection before its login. It answers three APIs and reads nothing else.

Anything but ApiVersions, SaslHandshake and SaslAuthenticate closes the connection as soon as its header has arrived.
Frames are small, answered one at a time, and exactly their bytes are read: what follows the last one is left to the
connection that takes over.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, cast

from headrace.broker.access import Access
from headrace.broker.handlers.api_versions import versions
from headrace.broker.logins.login import LINGER_S, REFUSAL_DELAY_S, Login, Verdict, answer
from headrace.broker.logins.workers import TooManyLogins
from headrace.broker.network.sasl_connection import SaslConnection
from headrace.wire import codec
from headrace.wire.apis import API_VERSIONS, APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from headrace.wire.codec import DecodeError, Pieces
from headrace.wire.frame import RequestHeader, read_request_header, response_frame
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from headrace.broker.network.entrance import Entrance
    from headrace.broker.network.newcomer import Newcomer

log = logging.getLogger(__name__)

_ANSWERED = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
_LENGTH = struct.Struct(">i")
_HEAD_BYTES = 8
"""API, version and correlation id."""
_FRAME_MAX_BYTES = 512 << 10
_FIRST_ALLOCATION_BYTES = 4 << 10
_REQUESTS_MAX = 32
"""The longest exchange takes five."""
_ELEMENTS_MAX = 100
"""Of a request: none has an array, and tagged fields that we do not know are few."""


class LoginConnection(asyncio.BufferedProtocol):
    """The protocol of one client until it is let in."""

    def __init__(self, entrance: Entrance, newcomer: Newcomer) -> None:
        self._entrance = entrance
        self._newcomer = newcomer
        self._login = Login(entrance.logins, entrance.listener, newcomer.host)
        self._transport: asyncio.Transport | None = None
        self._head = bytearray(_LENGTH.size)
        self._frame: bytearray | None = None
        self._frame_bytes = 0
        self._filled = 0
        self._requests = 0
        self._is_raw = False
        """After a handshake of version 0 the client's messages come without headers."""
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        """The client was refused, and only has to go."""

    # -- the transport's calls ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._newcomer.speaks(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._newcomer.is_in()
        if self._task is not None:
            self._task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        """A buffer for exactly the missing bytes."""
        if self._is_over:
            return memoryview(bytearray(_FIRST_ALLOCATION_BYTES))
        return memoryview(self._head if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_over:
            return
        self._filled += nbytes
        if self._frame is None:
            if self._filled == _LENGTH.size:
                self._begin(_LENGTH.unpack(self._head)[0])
        elif self._filled == len(self._frame):
            self._grow_or_finish(self._frame)

    def eof_received(self) -> bool:
        return False

    # -- frames -------------------------------------------------------------------------------------------------

    def _begin(self, size: int) -> None:
        least = 0 if self._is_raw else _HEAD_BYTES
        if not least <= size <= _FRAME_MAX_BYTES:
            self._close(f"a request of {size} bytes before the login is outside {least} to {_FRAME_MAX_BYTES}")
            return
        self._frame_bytes, self._filled = size, 0
        self._frame = bytearray(min(size, _FIRST_ALLOCATION_BYTES) if self._is_raw else _HEAD_BYTES)
        if not size:
            self._grow_or_finish(self._frame)

    def _grow_or_finish(self, frame: bytearray) -> None:
        if self._filled == _HEAD_BYTES and not self._is_raw:
            (api_key,) = struct.unpack_from(">h", frame)
            if api_key not in _ANSWERED:
                name = APIS[api_key].name if api_key in APIS else f"API {api_key}"
                self._close(f"{name} was requested before the login")
                return
        if self._filled < self._frame_bytes:
            # A new buffer: the transport still holds the old one.
            size = max(_FIRST_ALLOCATION_BYTES, 2 * len(frame))
            self._frame = frame + bytes(min(self._frame_bytes, size) - len(frame))
            return
        self._frame, self._filled = None, 0
        self._requests += 1
        if self._transport is None or self._transport.is_closing():
            return
        if self._requests > _REQUESTS_MAX:
            self._close("it sent too many requests without logging in")
            return
        self._transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._serve(frame))

    async def _serve(self, frame: bytearray) -> None:
        try:
            goes_on = await (self._raw(bytes(frame)) if self._is_raw else self._answer(frame))
        except DecodeError as error:
            self._close(f"a request before the login cannot be read: {error}")
            return
        except TooManyLogins:
            await asyncio.sleep(REFUSAL_DELAY_S)  # a crowd that comes back at once would be the first again
            self._close("too many logins at once")
            return
        except Exception:
            self._entrance.server.count_failure()
            # Without the traceback's values nothing of what the client sent can be in this line.
            log.exception("a login failed; its connection is closed", extra={"peer": self._peer})
            self._close("")
            return
        if not goes_on:
            self._linger()
        elif self._transport is not None and self._login.caller is None:
            self._transport.resume_reading()

    # -- requests -----------------------------------------------------------------------------------------------

    async def _answer(self, frame: bytearray) -> bool:
        """Answers a request; whether the connection goes on."""
        header = read_request_header(frame)
        api = APIS[header.api_key]
        if header.api_key == API_VERSIONS:
            self._answer_versions(header, frame)
            return True
        if not api.oldest <= header.api_version <= api.newest:
            self._close(f"{api.name} version {header.api_version} is outside {api.oldest} to {api.newest}")
            return False
        if header.api_key == SASL_HANDSHAKE:
            shake, _ = codec.decode(SaslHandshakeRequest, header.api_version, frame, header.body, _ELEMENTS_MAX)
            response, goes_on = self._login.handshake(shake.mechanism)
            self._is_raw = goes_on and header.api_version == 0
            self._write(response_frame(SASL_HANDSHAKE, response, header.api_version, header.correlation_id))
            return goes_on
        if not self._login.is_exchanging:
            self._close("SaslAuthenticate came before a handshake")
            return False
        request, _ = codec.decode(SaslAuthenticateRequest, header.api_version, frame, header.body, _ELEMENTS_MAX)
        verdict = await self._verdict(bytes(request.auth_bytes))
        self._write(response_frame(SASL_AUTHENTICATE, answer(verdict), header.api_version, header.correlation_id))
        return self._after(verdict)

    async def _raw(self, message: bytes) -> bool:
        """A message without a header; a refusal is told by closing, as there is no other way."""
        verdict = await self._verdict(message)
        if verdict.trouble:
            return False
        self._write([_LENGTH.pack(len(verdict.message)) + verdict.message])
        return self._after(verdict)

    async def _verdict(self, message: bytes) -> Verdict:
        verdict = await self._login.authenticate(message)
        if verdict.trouble:
            await asyncio.sleep(REFUSAL_DELAY_S)
        return verdict

    def _answer_versions(self, header: RequestHeader, frame: bytearray) -> None:
        api = APIS[API_VERSIONS]
        request = None
        if api.oldest <= header.api_version <= api.newest:
            request, _ = codec.decode(ApiVersionsRequest, header.api_version, frame, header.body, _ELEMENTS_MAX)
        version = header.api_version if request is not None else 0
        response = versions(self._entrance.server.broker, version, request)
        self._write(response_frame(API_VERSIONS, response, version, header.correlation_id))

    def _after(self, verdict: Verdict) -> bool:
        if verdict.is_done:
            self._hand_over()
        return not verdict.trouble

    def _hand_over(self) -> None:
        """From here on the client is served."""
        transport, caller = self._transport, self._login.caller
        if transport is None or transport.is_closing():
            return
        assert caller is not None
        self._newcomer.is_in()
        access = Access(self._entrance.server.broker, caller)
        connection = SaslConnection(self._entrance.server, access, self._login, self._peer)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if not transport.is_closing():
            transport.resume_reading()

    # -- writing and closing ------------------------------------------------------------------------------------

    @property
    def _peer(self) -> str:
        return f"{self._newcomer.host}:{self._newcomer.port}"

    def _write(self, pieces: Pieces) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(pieces)

    def _linger(self) -> None:
        """Closes after the client had time to read the reason, or has gone; its input is ignored."""
        self._is_over = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            asyncio.get_running_loop().call_later(LINGER_S, self._close, "")

    def _close(self, reason: str) -> None:
        if reason:
            self._entrance.say("connection closed before its login", self._peer, reason)
        if self._transport is not None:
            self._transport.close()

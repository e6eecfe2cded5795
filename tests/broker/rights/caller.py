"""A broker in this process that asks for rights, and callers that it answers: whole frames, without a socket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from headrace.broker.access import Access
from headrace.broker.broker import Broker
from headrace.broker.network.connection import Connection
from headrace.broker.network.frame_buffers import FrameBuffers
from headrace.broker.network.requests import RequestSlot
from headrace.broker.network.server import Server
from headrace.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from headrace.security.caller import Caller, Principal, system_caller
from headrace.store.cluster.nodes.endpoints import DEFAULT_LISTENER
from headrace.wire import codec
from headrace.wire.apis import SPOKEN, response_class
from headrace.wire.frame import read_request_header, request_frame, response_body
from headrace.wire.schema import Message, Payload
from tests.store.produced import until

R = TypeVar("R", bound=Payload)
HOST = "10.0.0.1"


class Client:
    """Somebody who asks a broker."""

    def __init__(
        self, broker: Broker, name: str, organisation: str = "default", host: str = HOST, client_id: str = "tests"
    ) -> None:
        self.broker = broker
        self._client_id = client_id
        self.went_straight = False
        """Whether the last request was answered without a task."""
        self.caller = Caller(Principal("User", name), organisation, DEFAULT_LISTENER, host)
        self._asked: list[RequestSlot] = []
        self._server = Server(broker)
        self._connection = Connection(self._server, Access(broker, self.caller))
        self._connection.peer_host = host

    @property
    def access(self) -> Access:
        return self._connection.access

    @property
    def frame_buffers(self) -> FrameBuffers:
        return self._server.frame_buffers

    def hang_up(self) -> None:
        """Closes the connection in the middle of what it asked for."""
        for slot in self._asked:
            slot.cancel()

    @property
    def is_muted(self) -> bool:
        return "quota" in self._connection._pauses

    async def ask(self, request: Payload, version: int | None = None) -> Any:
        """The response, through the codecs both ways."""
        key = request.api.key
        version = SPOKEN[key].newest if version is None else version
        sent = request_frame(request, version, 7, self._client_id)[4:]
        frame = self.frame_buffers.take(len(sent)) or bytearray(len(sent))
        frame[:] = sent
        slot = RequestSlot(read_request_header(frame), frame, len(frame), time.perf_counter())
        self._asked.append(slot)
        self.went_straight = self._server.dispatch.go_straight(slot, self._connection)
        if self.went_straight:
            await until(lambda: slot.done)
            pieces = slot.pieces
        else:
            pieces = await self._server.dispatch.answer(slot, self._connection)
        assert pieces is not None
        answer = b"".join(bytes(piece) for piece in pieces)[4:]
        response, _ = codec.decode(response_class(key), version, answer, response_body(key, version, answer))
        return response

    async def codes(self, request: Payload, version: int | None = None) -> set[int]:
        """All error codes of the response."""
        return set(codes_in(await self.ask(request, version)))


def codes_in(message: object) -> Iterator[int]:
    """The error codes of a message and of everything in it."""
    if isinstance(message, Message):
        for name in message.__struct_fields__:
            value = getattr(message, name)
            if name in ("error_code", "partition_error_code"):
                yield value
            elif isinstance(value, Message | list):
                yield from codes_in(value)
    elif isinstance(message, list):
        for item in message:
            yield from codes_in(item)


async def grant(broker: Broker, principal: str, organisation: str = "default", **what: object) -> Acl:
    """Stores a rule, by default one that allows."""
    fields: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "name": "*",
        "pattern": PatternType.LITERAL,
        "host": "*",
        "operation": Operation.ALL,
        "permission": Permission.ALLOW,
        **what,
    }
    if fields["resource_type"] is ResourceType.CLUSTER:
        fields["name"] = CLUSTER_NAME
    rule = Acl(principal=principal, **fields)
    await broker.authorizer.add(system_caller(organisation), rule)
    return rule


async def stored(broker: Broker) -> dict[str, Any]:
    """Everything in the store that a request may change; leases and the like move by themselves."""
    link = broker.store.link
    names = sorted(await link.call("KEYS", f"{broker.store.keys.prefix}:*"))
    moving = f"{broker.store.keys.prefix}:nodes".encode()
    return {
        name.decode(): await link.call("DUMP", name)
        for name in names
        if not name.startswith(moving) and not name.endswith(b":producers")
    }


def as_text(message: Payload) -> str:
    return msgspec.json.encode(message).decode()

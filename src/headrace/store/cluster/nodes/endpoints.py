"""A broker's endpoints, one per listener, and their record in Redis.

Clients are told the addresses of the listener they are connected to. The record also has the first endpoint as `host`
and `port`, the form written before listeners existed, which is still read.
"""

from __future__ import annotations

from typing import Literal

import msgspec

DEFAULT_LISTENER = "default"

State = Literal["starting", "serving", "gone"]
"""`starting`: has its id, and does not answer clients yet. `gone`: a neighbour found that it is dead."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where clients of one listener connect."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Node(msgspec.Struct, frozen=True):
    """A broker."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str = ""

    def at(self, listener: str) -> Endpoint | None:
        """Where clients of a listener reach it; None if it does not have that listener."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)

    def shares_address(self, other: Node) -> bool:
        """Whether both say that they listen at the same place."""
        ours = {(endpoint.host, endpoint.port) for endpoint in self.endpoints}
        return any((endpoint.host, endpoint.port) in ours for endpoint in other.endpoints)


def node_at(node_id: int, host: str, port: int, rack: str = "") -> Node:
    """A broker with one listener."""
    return Node(node_id, (Endpoint(DEFAULT_LISTENER, host, port),), rack)


class Registration(msgspec.Struct, frozen=True):
    """A node's registration, as written by its process."""

    node: Node
    token: str = ""
    """The process: the lease has the same token while it is this process's."""
    machine: str = ""
    state: State = "serving"
    is_back: bool = False
    """It was away until a moment ago: its lease had run out, so it led nothing that others did not."""
    restored_on: str = ""
    """The servers of the store, in their runs, since whose start it has looked at all that it has in memory."""

    def says_the_same(self, other: Registration) -> bool:
        """Whether both are of one process in the same state."""
        return (self.token, self.state, self.is_back) == (other.token, other.state, other.is_back)

    def makes_way_for(self, other: Registration) -> bool:
        """Whether the process must be gone because the other one has its port."""
        is_one_machine = bool(self.machine) and self.machine == other.machine
        return is_one_machine and self.node.shares_address(other.node)


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    id: int
    host: str
    port: int
    endpoints: tuple[Endpoint, ...] = ()
    rack: str = ""
    token: str = ""
    machine: str = ""
    state: State = "serving"
    is_back: bool = False
    restored_on: str = ""


def pack_registration(one: Registration) -> bytes:
    node, first = one.node, one.node.endpoints[0]
    process = one.token, one.machine, one.state, one.is_back, one.restored_on
    return msgspec.json.encode(_Record(node.id, first.host, first.port, node.endpoints, node.rack, *process))


def unpack_registration(row: bytes) -> Registration:
    record = msgspec.json.decode(row, type=_Record)
    if record.endpoints:
        node = Node(record.id, record.endpoints, record.rack)
    else:
        node = node_at(record.id, record.host, record.port, record.rack)
    return Registration(node, record.token, record.machine, record.state, record.is_back, record.restored_on)

"""The members of one group, all in one process, at as little CPU of their own as possible.

What is measured is the coordinator, and members share the machine with it. So a frame is packed once and sent by
everybody with its own member id put in, and of an answer only its error is looked at; one of each round is decoded.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import TypeVar

from tests.broker.members import NONE, REBALANCE_MS, SESSION_MS, subscription

from bench.systems import System
from headrace.wire import codec
from headrace.wire.frame import request_frame, response_body
from headrace.wire.messages.heartbeat import HeartbeatRequest
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.schema import Payload

M = TypeVar("M", bound=Payload)

_CLIENT = "member"
_ANY_ID = f"{_CLIENT}-00000000-0000-0000-0000-000000000000"
"""In the place of a member's id. Both systems make one of the client's id and a UUID."""
_JOIN, _SYNC, _HEARTBEAT, _LEAVE = 9, 5, 4, 5
_HEAD_BYTES = 4
_ERROR = struct.Struct(">13xh")
"""The error of an answer, in each of these versions: length, correlation id, no tags, throttle time, error."""
_RECEIVE_BYTES = 64 << 10
_TIMEOUT_S = 30


class Crowd:
    """Members that join, sync and leave as one; each has a connection of its own."""

    def __init__(self, system: System, group: str, size: int) -> None:
        self._group = group
        self._lines = [_connected(system) for _ in range(size)]
        self._ids = [b""] * size
        self._join = _frame(self._join_request(_ANY_ID), _JOIN)
        self._heartbeat = b""

    def __enter__(self) -> Crowd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines:
            line.close()

    def get_ids(self, expected: int) -> None:
        """Everybody asks to join, and is given a member id with this error."""
        self._ask([_frame(self._join_request(""), _JOIN)] * len(self._lines))
        answers = self._answers(expected)
        mark, size = f"{_CLIENT}-".encode(), len(_ANY_ID)
        self._ids = [answer[at : at + size] for answer in answers for at in (answer.index(mark),)]

    def join_and_sync(self) -> None:
        """Everybody joins, and once all are in, syncs; the leader assigns something to each."""
        self._ask(self._for_each(self._join))
        answers = self._answers(NONE)
        first = _decoded(JoinGroupResponse, _JOIN, answers[0])
        leader = self._ids.index(first.leader.encode())
        led = _decoded(JoinGroupResponse, _JOIN, answers[leader])
        assert len(led.members) == len(self._lines)
        self._sync(leader, led)
        self._answers(NONE)
        self._heartbeat = _frame(HeartbeatRequest(self._group, led.generation_id, _ANY_ID), _HEARTBEAT)

    def _sync(self, leader: int, led: JoinGroupResponse) -> None:
        request = SyncGroupRequest(
            self._group, led.generation_id, _ANY_ID, protocol_type="consumer", protocol_name="range"
        )
        frames = self._for_each(_frame(request, _SYNC))
        request.member_id = led.leader
        request.assignments = [SyncGroupRequestAssignment(one.member_id, b"part") for one in led.members]
        frames[leader] = _frame(request, _SYNC)
        self._ask(frames)

    def leave(self, which: int) -> None:
        """One of them leaves, and is told so."""
        line, member_id = self._lines.pop(which), self._ids.pop(which).decode()
        with line:
            line.sendall(_frame(LeaveGroupRequest(self._group, [MemberIdentity(member_id)]), _LEAVE))
            (row,) = _decoded(LeaveGroupResponse, _LEAVE, _received(line)).members
        assert row.error_code == NONE

    def heartbeat(self, expected: int) -> None:
        """Everybody is told this error."""
        self._ask(self._for_each(self._heartbeat))
        self._answers(expected)

    def _join_request(self, member_id: str) -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol("range", subscription("orders"))]
        return JoinGroupRequest(self._group, SESSION_MS, REBALANCE_MS, member_id, None, "consumer", protocols)

    def _for_each(self, frame: bytes) -> list[bytes]:
        before, after = frame.split(_ANY_ID.encode())
        return [before + member_id + after for member_id in self._ids]

    def _ask(self, frames: Iterable[bytes]) -> None:
        for line, frame in zip(self._lines, frames, strict=True):
            line.sendall(frame)

    def _answers(self, expected: int) -> list[bytes]:
        answers = [_received(line) for line in self._lines]
        assert {_ERROR.unpack_from(answer)[0] for answer in answers} == {expected}
        return answers


def _connected(system: System) -> socket.socket:
    line = socket.create_connection((system.host, system.port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel's time limit: Python's own takes a system call more for each answer.
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _TIMEOUT_S, 0))
    return line


def _frame(request: Payload, version: int) -> bytes:
    return request_frame(request, version, 1, _CLIENT)


def _received(line: socket.socket) -> bytes:
    data = line.recv(_RECEIVE_BYTES)
    while len(data) < _HEAD_BYTES or len(data) < _HEAD_BYTES + int.from_bytes(data[:_HEAD_BYTES], "big"):
        more = line.recv(_RECEIVE_BYTES)
        assert more, "the connection was closed"
        data += more
    return data


def _decoded(cls: type[M], version: int, answer: bytes) -> M:
    body = response_body(cls.api.key, version, answer[_HEAD_BYTES:])
    return codec.decode(cls, version, answer, _HEAD_BYTES + body)[0]

"""The members of a program's groups: each has a connection, and they rebalance in an order that is always the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.schema import Payload
from tests.broker_process import wait_until
from tests.fuzz import program as p
from tests.fuzz.line import Answer, Line
from tests.fuzz.normalised import Names

_LONG_MS = 600_000
_REFUSED_AT_ONCE = frozenset({"generation", "member", "group", "forbidden"})
Who = tuple[int, int]
"""Group and member."""


class Members:
    """Who is in which group, as the broker told it."""

    def __init__(self, prefix: str, names: Names, connect: Callable[[], Line]) -> None:
        self._prefix, self._names, self._connect = prefix, names, connect
        self._lines: dict[int, Line] = {}
        self._in: dict[Who, tuple[str, int]] = {}
        """Id and generation of those that joined."""
        self._unsynced: dict[int, set[int]] = {}
        """By group, the members that have to bring or get an assignment."""
        self._leaders: dict[int, int] = {}

    def close(self) -> None:
        for group, member in [*self._in]:
            self.perform(p.Member(p.LEAVE, 4, group, member, ""))
        for line in self._lines.values():
            line.close()

    def group_id(self, step: p.Member) -> str:
        if step.twist == "group":
            return ""
        return f"{self._prefix}-{'forbidden' if step.twist == 'forbidden' else f'group{step.group}'}"

    def _line(self, member: int) -> Line:
        line = self._lines.get(member)
        if line is None or not line.is_open:
            line = self._lines[member] = self._connect()
        return line

    def perform(self, step: p.Member) -> Any:
        if step.api == p.JOIN:
            return self._join(step)
        if step.api == p.SYNC:
            return self._sync(step)
        answer = self._ask(step)
        if step.api == p.LEAVE and not step.twist:
            self._in.pop((step.group, step.member), None)
        return self._names.normalised(answer)

    def _ask(self, step: p.Member) -> Answer:
        line = self._line(step.member)
        line.ask(self.request(step), step.version)
        return line.next_answer()

    # -- a rebalance --------------------------------------------------------------------------------------------

    def _join(self, step: p.Member) -> Any:
        """All that are in the group join again, once it is known that they have to."""
        others = [member for group, member in self._in if group == step.group and member != step.member]
        line = self._line(step.member)
        line.ask(self.request(step), step.version)
        if others:

            def is_decided() -> bool:
                beat = p.Member(p.HEARTBEAT, 4, step.group, others[0], "")
                answer = self._ask(beat)
                assert isinstance(answer, HeartbeatResponse)
                return line.has_answer or answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS

            wait_until(is_decided, "a rebalance does not begin")
        joining = [p.Member(p.JOIN, 4, step.group, other, "") for other in others] if not line.has_answer else []
        for again in joining:
            self._line(again.member).ask(self.request(again), again.version)
        found = [(step, line.next_answer()), *((one, self._line(one.member).next_answer()) for one in joining)]
        for one, answer in found:
            self._joined(one, answer)
        told = [self._names.normalised(answer) for _, answer in found]
        (_, first), *_ = found
        if isinstance(first, JoinGroupResponse) and first.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._in[step.group, step.member] = first.member_id, -1
            told += self._join(step)
        return told

    def _joined(self, step: p.Member, answer: Answer) -> None:
        assert isinstance(answer, JoinGroupResponse), answer
        who = step.group, step.member
        if answer.member_id:
            self._names.give(answer.member_id, f"member {who}")
        if answer.error_code:
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED and not step.twist:
                self._in.pop(who, None)
            return
        if step.twist not in ("group", "forbidden"):
            self._in[who] = answer.member_id, answer.generation_id
            if answer.leader == answer.member_id:
                self._leaders[step.group] = step.member

    def _sync(self, step: p.Member) -> Any:
        """The leader comes first: the others would wait for it."""
        if step.twist not in _REFUSED_AT_ONCE and (leader := self._leaders.get(step.group, step.member)) != step.member:
            first = self._ask(p.Member(p.SYNC, 4, step.group, leader, ""))
            return [self._names.normalised(first), self._names.normalised(self._ask(step))]
        return [self._names.normalised(self._ask(step))]

    # -- requests -----------------------------------------------------------------------------------------------

    def request(self, step: p.Member) -> Payload:
        member_id, generation = self._in.get((step.group, step.member), ("", -1))
        if step.twist == "member":
            member_id = "nobody"
        if step.twist == "generation":
            generation += 5
        group_id, instance = self.group_id(step), "instance" if step.twist == "static" else None
        if step.api == p.HEARTBEAT:
            return HeartbeatRequest(group_id, generation, member_id, instance)
        if step.api == p.LEAVE:
            return LeaveGroupRequest(group_id, [MemberIdentity(member_id, instance)], member_id)
        if step.api == p.SYNC:
            kind = "other" if step.twist == "protocol" else "consumer"
            mine = [(id, number) for (group, number), (id, _) in self._in.items() if group == step.group]
            given = [SyncGroupRequestAssignment(id, b"for %d" % number) for id, number in mine]
            return SyncGroupRequest(group_id, generation, member_id, instance, kind, "range", given)
        protocols = [JoinGroupRequestProtocol("other" if step.twist == "protocol" else "range", b"topics")]
        timeout_ms = 1 if step.twist == "session" else _LONG_MS
        return JoinGroupRequest(group_id, timeout_ms, _LONG_MS, member_id, instance, "consumer", protocols)

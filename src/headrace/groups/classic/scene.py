"""The frame of one decision: a handler's inputs and outputs.

`Scene` is the outside world as data: now, the settings, a source of ids. `Turn` collects what one event does to one
group: the changed fork, answers, timer changes, and whether it has to be stored first.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from headrace.groups.classic import snapshot
from headrace.groups.classic.answers import Answer, JoinAnswer, SyncAnswer, join_answer_for
from headrace.groups.classic.snapshot import StoredGroup
from headrace.groups.classic.state import Group, Parked
from headrace.groups.classic.table import Trigger, next_state
from headrace.groups.classic.timers import TimerChanges, TimerKey, session_timer
from headrace.groups.settings import GroupSettings


class Ids(Protocol):
    """Where names come from. The machine draws no random number of its own."""

    def unique(self) -> str:
        """A string that never comes again (a UUID): the tail of a member id."""

    def ulid(self) -> str: ...


class Scene(msgspec.Struct, frozen=True, gc=False):
    now_ms: int
    settings: GroupSettings
    ids: Ids
    org: str
    """The organisation, first part of a group's resource locator."""
    taken_slugs: Collection[str] = ()
    """Slugs of other groups, as far as it was tried to claim them."""


Reply = tuple[Hashable, Answer]
"""A token and its answer."""


class ClassicDecision(msgspec.Struct, frozen=True, gc=False):
    """In this order: claim the slug, store (or delete), adopt state and timers, send the replies.

    If storing fails the decision is dropped: the old group stands, its parked requests stay parked, and
    the request that was being decided gets `answers.refusal`.
    """

    state: Group | None
    store: StoredGroup | None = None
    tombstone: bool = False
    """Delete what is stored of the group, its offsets included."""
    replies: Sequence[Reply] = ()
    timers: TimerChanges = {}
    rows: Mapping[tuple[str, int], Any] = {}
    """Offsets to store together with the group; None deletes one."""
    claim: str | None = None
    """The slug of an identity that is new with this decision: no other group may have it."""

    @property
    def is_durable(self) -> bool:
        return self.store is not None or self.tombstone or bool(self.rows)

    @property
    def fields(self) -> Mapping[str, Any] | None:
        """The stored form of the group, field by field."""
        return None if self.store is None else snapshot.fields(self.store)


def answered(group: Group | None, token: Hashable, answer: Answer) -> ClassicDecision:
    """An answer that changes nothing."""
    return ClassicDecision(group, replies=((token, answer),))


class Turn(msgspec.Struct, eq=False, gc=False):
    group: Group
    """The fork that this event changes."""
    scene: Scene
    _replies: list[Reply] = []
    _timers: dict[TimerKey, int | None] = {}
    _rows: dict[tuple[str, int], Any] = {}
    _claim: str | None = None
    _stored: bool = False
    _tombstone: bool = False

    def move(self, trigger: Trigger) -> None:
        self.group.state = next_state(self.group.state, trigger)

    def store(self) -> None:
        """The group as it is at the end of the turn has to be stored before any answer leaves."""
        self._stored = self.group.is_stored = True

    def store_rows(self, rows: Mapping[tuple[str, int], Any]) -> None:
        """Offsets that change with this turn; None deletes one."""
        self._rows.update(rows)

    def claim(self, slug: str) -> None:
        self._claim = slug

    def bury(self) -> None:
        self._tombstone = True

    def set_timer(self, key: TimerKey, after_ms: int) -> None:
        self._timers[key] = self.scene.now_ms + after_ms

    def cancel_timer(self, key: TimerKey) -> None:
        self._timers[key] = None

    def has_changed_timer(self, key: TimerKey) -> bool:
        """Whether this turn has set or cancelled it."""
        return key in self._timers

    def renew_session(self, member_id: str) -> None:
        timeout_ms = self.group.members[member_id].session_timeout_ms
        self._timers[session_timer(member_id)] = self.scene.now_ms + timeout_ms

    def reply(self, token: Hashable, answer: Answer) -> None:
        self._replies.append((token, answer))

    def reply_join(self, parked: Parked, answer: JoinAnswer) -> None:
        self._replies.append((parked.token, join_answer_for(parked.version, answer)))

    def release_join(self, member_id: str, answer: JoinAnswer) -> bool:
        parked = self.group.joins.pop(member_id, None)
        if parked is not None:
            self.reply_join(parked, answer)
        return parked is not None

    def release_sync(self, member_id: str, answer: SyncAnswer) -> bool:
        parked = self.group.syncs.pop(member_id, None)
        if parked is not None:
            self.reply(parked.token, answer)
        return parked is not None

    def decision(self) -> ClassicDecision:
        return ClassicDecision(
            state=None if self.group.is_nothing() else self.group,
            store=snapshot.take(self.group) if self._stored and not self._tombstone else None,
            tombstone=self._tombstone,
            replies=self._replies,
            timers=self._timers,
            rows=self._rows,
            claim=self._claim,
        )

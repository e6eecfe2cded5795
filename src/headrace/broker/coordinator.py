"""The coordinator: looks after the groups that belong to this node.

`groups/` decides, this module does: one event of a group at a time, stored first, answered then. A group is loaded at
its first use, or at the start if it is stored, and is taken over with a token that fences the node that had it before.
Timers run on a clock that never goes back and goes on across restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, cast

from headrace.groups import (
    BadSnapshot,
    Decision,
    Group,
    GroupSettings,
    Machine,
    State,
    StoredGroup,
    Timers,
    dump,
    parse,
)
from headrace.groups.answers import Answer, CommitAnswer, refusal
from headrace.groups.errors import ErrorCode as GroupError
from headrace.groups.events import (
    CommitCheck,
    Event,
    Join,
    Load,
    OffsetDeleteCheck,
    Request,
    RetentionCheck,
    TimerFired,
    Unload,
)
from headrace.groups.identity import slug_candidates, slug_of
from headrace.groups.offsets import expired_topics
from headrace.groups.snapshot import take
from headrace.store.errors import StoreError
from headrace.store.groups import Committed, GroupStore, OwnershipLost, Place
from headrace.store.identity import new_id, ulid
from headrace.store.mirror import Mirror
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_LOOK_AFTER_EVERY_S = 1.0


class _Ids:
    """Names for the machine; a group's slug was reserved before its join is decided."""

    def __init__(self) -> None:
        self.reserved_slug = ""

    def unique(self) -> str:
        return str(uuid.uuid4())

    def ulid(self) -> str:
        return ulid(new_id())

    def slug_taken(self, slug: str) -> bool:
        return slug != self.reserved_slug


class LiveGroup:
    """A group that this node looks after: its state, timers and offsets, one event at a time."""

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.group: Group | None = None
        self.offsets: dict[Place, Committed] = {}
        self.timers = Timers()
        self.token: str | None = None
        """Ours once we took the group; None while nothing of it is stored."""
        self.lock = asyncio.Lock()
        self.alarm: asyncio.TimerHandle | None = None
        self.alarm_ms = 0
        self.timeline = 0

    @property
    def exists(self) -> bool:
        return self.group is not None and self.group.state is not State.DEAD


class Coordinator:
    """The groups of this node."""

    def __init__(self, store: Store, settings: GroupSettings, retention_check_ms: int) -> None:
        self.mirror = Mirror(store)
        self._store = store
        self._groups: GroupStore = store.groups
        self._settings = settings
        self._ids = _Ids()
        self._machine = Machine(settings, self._ids)
        self._retention_check_ms = retention_check_ms
        self._live: dict[str, LiveGroup] = {}
        self._wall_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Loads the stored groups and looks after them, in the background."""
        self._spawn(self._look_after())
        self._spawn(self._retention())

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for live in self._live.values():
            if live.alarm is not None:
                live.alarm.cancel()

    def now_ms(self) -> int:
        """The wall clock as it was at the start, advanced by the monotonic one."""
        return self._wall_ms + time.monotonic_ns() // 1_000_000

    def check_owner(self, group_id: str) -> None:
        """NOT_COORDINATOR unless the group is ours and our lease is beyond doubt."""
        nodes = self._store.nodes
        if nodes.owner(group_id.encode()).id != nodes.me.id or not nodes.lease_is_valid:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")

    # -- requests -----------------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Answer:
        """Decides a request and waits for its answer, which may be held back until others have come."""
        future = cast("asyncio.Future[Answer]", request.token)
        try:
            async with self._locked(request.group_id) as live:
                if isinstance(request, Join):
                    await self._reserve_slug(live)
                await self._decide(live, cast("Event", request))
        except StoreError as error:
            return refusal(request, _as_group_error(error))
        except KafkaError as error:
            return refusal(request, GroupError(error.code))
        return await future

    async def commit(self, check: CommitCheck, offsets: dict[Place, Committed]) -> GroupError:
        """Stores offsets if the group lets this member commit."""
        try:
            async with self._locked(check.group_id) as live:
                future = cast("asyncio.Future[CommitAnswer]", check.token)
                await self._decide(live, check)
                error = (await future).error
                if error or not offsets:
                    return error
                await self._groups.commit(live.id, await self._own(live), offsets)
                live.offsets.update(offsets)
        except StoreError as error:
            return _as_group_error(error)
        except KafkaError as error:
            return GroupError(error.code)
        for (topic, partition), committed in offsets.items():
            self.mirror.committed(check.group_id, topic, partition, committed.offset)
        return GroupError.NONE

    async def delete_offsets(self, check: OffsetDeleteCheck, places: list[Place]) -> tuple[GroupError, frozenset[str]]:
        """Forgets offsets of topics that nobody in the group reads; returns the topics that are read."""
        answer: Any = await self.ask(check)
        if answer.error:
            return answer.error, frozenset()
        async with self._locked(check.group_id) as live:
            doomed = [place for place in places if place[0] not in answer.subscribed and place in live.offsets]
            if doomed:
                await self._groups.delete_offsets(live.id, await self._own(live), doomed)
                for place in doomed:
                    live.offsets.pop(place, None)
        return GroupError.NONE, answer.subscribed

    async def find(self, group_id: str) -> LiveGroup:
        """A group for looking at; the caller checks `exists`."""
        self.check_owner(group_id)
        return await self._loaded(group_id)

    async def all(self) -> list[LiveGroup]:
        """The groups of this node, those that were not touched yet included."""
        mine = [name for name in await self._groups.names() if self._is_mine(name)]
        return [live for name in mine if (live := await self._loaded(name)).exists]

    def valid_offset(self, live: LiveGroup, place: Place) -> Committed | None:
        """A committed offset of the topic as it is now, not of one that was deleted."""
        committed = live.offsets.get(place)
        topic = self._store.catalogue.by_name.get(place[0])
        return committed if committed is not None and topic is not None and topic.id == committed.topic_id else None

    @contextlib.asynccontextmanager
    async def _locked(self, group_id: str) -> AsyncIterator[LiveGroup]:
        """The group, with nobody else at it. It may have been dropped while we waited: then it is looked up again."""
        while True:
            self.check_owner(group_id)
            live = await self._loaded(group_id)
            async with live.lock:
                if self._live.get(group_id) is live:
                    yield live
                    return

    # -- loading and storing ------------------------------------------------------------------------------------

    def _is_mine(self, group_id: str) -> bool:
        nodes = self._store.nodes
        return nodes.owner(group_id.encode()).id == nodes.me.id

    async def _loaded(self, group_id: str) -> LiveGroup:
        live = self._live.get(group_id)
        if live is None:
            live = self._live[group_id] = LiveGroup(group_id)
            live.timeline = self._store.link.timeline
            async with live.lock:
                try:
                    if await self._groups.exists(group_id):
                        await self._take(live)
                except BaseException:
                    self._live.pop(group_id, None)
                    raise
        elif live.token is None and live.lock.locked():
            async with live.lock:
                pass
        if live.timeline != self._store.link.timeline:
            await self._restore(live)
        return live

    async def _take(self, live: LiveGroup) -> None:
        stored = await self._groups.take(live.id)
        live.token, live.offsets = stored.token, stored.offsets
        if stored.state is None:
            return
        try:
            await self._decide(live, Load(parse(stored.state)))
        except BadSnapshot as error:
            log.error("a stored group cannot be read; its offsets stay", extra={"group": live.id, "why": str(error)})

    async def _own(self, live: LiveGroup) -> str:
        """Our token, taken at the first write of a group that was not stored before."""
        if live.token is None:
            live.token = (await self._groups.take(live.id)).token
        return live.token

    async def _restore(self, live: LiveGroup) -> None:
        """The store may have gone back in time: what was acknowledged is written again."""
        async with live.lock:
            timeline = self._store.link.timeline
            if live.timeline == timeline:
                return
            if live.token is not None and live.group is not None:
                stored = await self._groups.take(live.id)
                live.token = stored.token
                lost = {place: known for place, known in live.offsets.items() if stored.offsets.get(place) != known}
                if lost:
                    await self._groups.commit(live.id, live.token, lost)
                await self._groups.save(live.id, live.token, dump(take(live.group)))
            live.timeline = timeline

    async def _reserve_slug(self, live: LiveGroup) -> None:
        """Before a join mints the group's identity, its slug is made its own."""
        if live.group is not None and live.group.identity is not None:
            self._ids.reserved_slug = slug_of(live.id)
            return
        self._ids.reserved_slug = await self._groups.reserve_slug(live.id, slug_candidates(live.id))

    # -- deciding -----------------------------------------------------------------------------------------------

    async def _decide(self, live: LiveGroup, event: Event) -> None:
        """One event: decide, store, adopt, answer. The caller holds the lock."""
        decision = self._machine.decide(live.group, event, self.now_ms())
        if decision.store is not None:
            await self._save(live, decision.store)
        elif decision.tombstone:
            await self._bury(live)
        self._adopt(live, decision)

    async def _save(self, live: LiveGroup, stored: StoredGroup) -> None:
        try:
            await self._groups.save(live.id, await self._own(live), dump(stored))
        except OwnershipLost:
            self._let_go(live)
            raise

    async def _bury(self, live: LiveGroup) -> None:
        identity = live.group.identity if live.group else None
        await self._groups.delete(live.id, await self._own(live), identity.slug if identity else None)
        await self.mirror.destroy(live.id, list(live.offsets))
        live.offsets = {}
        live.token = None

    def _adopt(self, live: LiveGroup, decision: Decision) -> None:
        live.group = decision.group
        live.timers.adopt(decision.timers)
        for token, answer in decision.replies:
            future = cast("asyncio.Future[Answer]", token)
            if not future.done():
                future.set_result(answer)
        self._set_alarm(live)
        if not live.exists and live.token is None:
            live.group = None
            self._live.pop(live.id, None)

    def _let_go(self, live: LiveGroup) -> None:
        """The group is another node's now: whoever waits is told so."""
        self._adopt(live, self._machine.decide(live.group, Unload(), self.now_ms()))
        if live.alarm is not None:
            live.alarm.cancel()
        self._live.pop(live.id, None)

    # -- timers -------------------------------------------------------------------------------------------------

    def _set_alarm(self, live: LiveGroup) -> None:
        wake_ms = live.timers.wake_ms()
        if live.alarm is not None:
            if wake_ms is not None and live.alarm_ms <= wake_ms:
                return
            live.alarm.cancel()
            live.alarm = None
        if wake_ms is not None:
            delay_s = max(wake_ms - self.now_ms(), 0) / 1000
            live.alarm = asyncio.get_running_loop().call_later(delay_s, self._alarm, live)
            live.alarm_ms = wake_ms

    def _alarm(self, live: LiveGroup) -> None:
        live.alarm = None
        self._spawn(self._fire_timers(live))

    async def _fire_timers(self, live: LiveGroup) -> None:
        async with live.lock:
            if self._live.get(live.id) is not live:
                return
            if not self._is_mine(live.id):
                self._let_go(live)
                return
            try:
                for key in live.timers.due(self.now_ms()):
                    await self._decide(live, TimerFired(key))
            except StoreError as error:
                log.warning("a group's timer has to wait", extra={"group": live.id, "why": str(error)})
                loop = asyncio.get_running_loop()
                live.alarm = loop.call_later(1.0, self._alarm, live)
                return
            self._set_alarm(live)

    # -- background ---------------------------------------------------------------------------------------------

    async def _look_after(self) -> None:
        """Loads what is stored, so that the sessions of members that do not come back end; then, once a second, lets
        go of groups that went to another node and restores those that a store that went back in time lost."""
        await self.all()
        while True:
            await asyncio.sleep(_LOOK_AFTER_EVERY_S)
            for live in list(self._live.values()):
                if not self._is_mine(live.id):
                    async with live.lock:
                        self._let_go(live)
                elif live.timeline != self._store.link.timeline and self._store.link.is_up:
                    await self._restore(live)

    async def _retention(self) -> None:
        while True:
            await asyncio.sleep(self._retention_check_ms / 1000)
            try:
                for live in await self.all():
                    await self._expire(live)
            except StoreError as error:
                log.info("retention of offsets has to wait", extra={"why": str(error)})

    async def _expire(self, live: LiveGroup) -> None:
        async with live.lock:
            if live.group is None:
                return
            commits: dict[str, int] = {}
            for (topic, _), committed in live.offsets.items():
                commits[topic] = max(commits.get(topic, 0), committed.commit_ms)
            old = expired_topics(live.group, commits, self.now_ms(), self._settings)
            doomed = [place for place in live.offsets if place[0] in old]
            if doomed:
                await self._groups.delete_offsets(live.id, await self._own(live), doomed)
                for place in doomed:
                    del live.offsets[place]
            last = max((c.commit_ms for c in live.offsets.values()), default=None)
            await self._decide(live, RetentionCheck(last))

    def _spawn(self, work: Any) -> None:
        async def guarded() -> None:
            try:
                await work
            except StoreError as error:
                log.warning("work on groups was cut short", extra={"why": str(error)})
            except Exception:
                log.exception("work on groups failed")

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def new_token() -> asyncio.Future[Any]:
    """The name of an answer that is owed."""
    return asyncio.get_running_loop().create_future()


def _as_group_error(error: StoreError) -> GroupError:
    """A store that is away is a coordinator that is: clients look for it again and retry."""
    if error.code == ErrorCode.NOT_COORDINATOR:
        return GroupError.NOT_COORDINATOR
    return GroupError.COORDINATOR_NOT_AVAILABLE


def places_of(topics: Iterable[tuple[str, Iterable[int]]]) -> list[Place]:
    """Topics with their partitions as places."""
    return [(topic, partition) for topic, partitions in topics for partition in partitions]

"""One group that this node looks after: what it knows of it, and the order in which things happen to it.

One event at a time: decided by `groups/`, stored, adopted, answered. Most need not be stored and are decided as they
come; what comes while somebody is alone with the group waits, and is decided afterwards in its order.

What is known here is only as good as the last sign of trouble. After a reconnect, or when our lease was in doubt, the
group is taken again before anything is answered: if another node had it meanwhile, what we know is dropped; if the
store went back in time, it gets back what was acknowledged; writes of ours that are still under way from before change
nothing any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from headrace.broker.alarm import Alarm
from headrace.groups import BadSnapshot, Decision, Group, Machine, State, StoredGroup, Timers, dump, parse
from headrace.groups.answers import Answer
from headrace.groups.events import Event, Load, Request, Resume, TimerFired, Unload
from headrace.store.errors import StoreError
from headrace.store.groups import Committed, OwnershipLost, Place, Taken
from headrace.store.identity import new_id, ulid

if TYPE_CHECKING:
    from headrace.broker.coordinator import Coordinator

log = logging.getLogger(__name__)

_RETRY_MS = 500
_STALLED_MS = 1_000
"""An alarm that rings this late means that the process stood still: members' heartbeats may wait to be read."""


class Trust(NamedTuple):
    """What a look at the store was worth: it holds on one connection, and while our lease was beyond doubt."""

    generation: int
    term: int


class _Ids:
    """Names for the machine."""

    def __init__(self) -> None:
        self.taken_slugs: set[str] = set()

    def unique(self) -> str:
        return str(uuid.uuid4())

    def ulid(self) -> str:
        return ulid(new_id())

    def slug_taken(self, slug: str) -> bool:
        return slug in self.taken_slugs


class LiveGroup:
    """A group's state, timers and offsets. Whoever calls a method that may write is alone with it."""

    def __init__(self, group_id: str, coordinator: Coordinator) -> None:
        self.id = group_id
        self.group: Group | None = None
        self.offsets: dict[Place, Committed] = {}
        self.is_gone = False
        """Deleted, or another node's: to be looked up again by whoever waited for the lock."""
        self._lock = asyncio.Lock()
        self._waiting: deque[Request] = deque()
        self._coordinator = coordinator
        self._store = coordinator.store.groups
        self._ids = _Ids()
        self._machine = Machine(coordinator.settings, self._ids)
        self._owner: str | None = None
        """Our token; None while nothing of the group is stored."""
        self._stored: StoredGroup | None = None
        self._timers = Timers()
        self._alarm = Alarm(coordinator.now_ms, self._wake)
        self._trust = coordinator.trust

    @property
    def exists(self) -> bool:
        return self.group is not None and self.group.state is not State.DEAD

    @property
    def is_blank(self) -> bool:
        """Nothing of it is stored: the name of a group that does not exist."""
        return self._owner is None

    @property
    def is_settled(self) -> bool:
        """Whether what is known holds."""
        return self._trust == self._coordinator.trust

    # -- loading ------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Takes what is stored of the group, if anything is."""
        taken = await self._store.take(self.id)
        if taken is None:
            return
        self._owner, self.offsets = taken.owner, taken.offsets
        if taken.state is None:
            return
        try:
            self._stored = parse(taken.state)
        except BadSnapshot as error:
            log.error("a stored group cannot be read; its offsets stay", extra={"group": self.id, "why": str(error)})
        else:
            await self.decide(Load(self._stored))

    async def settle(self) -> None:
        """Makes sure after a sign of trouble that what is known holds; the group may be gone afterwards.

        While Redis is away and our lease is beyond doubt nobody else can have changed anything.
        """
        trust = self._coordinator.trust
        if self._trust == trust or not self._coordinator.store.link.is_up:
            return
        if self._owner is None:
            self.drop()
            return
        taken = await self._store.create(self.id, self._owner)
        if not taken.nobody_came_between(self._owner):
            self.let_go()
            return
        self._owner = taken.owner
        await self._write_back(taken)
        was_in_doubt, self._trust = self._trust.term != trust.term, trust
        if was_in_doubt:
            await self.decide(Resume())

    async def _write_back(self, taken: Taken) -> None:
        """Gives the store what it lost, and takes from it what was never acknowledged or is deleted."""
        assert self._owner is not None
        state = None if self._stored is None else dump(self._stored)
        lost = {place: known for place, known in self.offsets.items() if taken.offsets.get(place) != known}
        extra = [place for place in taken.offsets if place not in self.offsets]
        if self.group is not None and self.group.identity is not None:
            await self._store.reserve_slug(self.id, self.group.identity.slug)
        if state is not None and state != taken.state:
            await self._store.save(self.id, self._owner, state)
        if lost:
            await self._store.commit(self.id, self._owner, lost)
        if extra:
            await self._store.delete_offsets(self.id, self._owner, extra)
        if lost or extra or state != taken.state:
            log.warning("the store differed from what a group was told: it was written again", extra={"group": self.id})

    # -- one at a time ------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nobody else is at the group; what comes meanwhile waits."""
        try:
            async with self._lock:
                yield
        finally:
            self._decide_waiting()

    def take(self, request: Request) -> bool:
        """Decides a request, or lets it wait until it can be; its token is told the answer.

        If false, it was not taken: it needs the store, or the group has to be looked up again.
        """
        if self._lock.locked():
            self._waiting.append(request)
            return True
        return self._decide_now(request)

    def _decide_now(self, request: Request) -> bool:
        if self.is_gone or self.is_blank or not self.is_settled or not self._coordinator.may_decide(self.id):
            return False
        decision = self._machine.decide(self.group, cast("Event", request), self._coordinator.now_ms())
        if decision.store is not None or decision.tombstone:
            return False
        self._adopt(decision)
        return True

    def _decide_waiting(self) -> None:
        while self._waiting and not self._lock.locked():
            request = self._waiting.popleft()
            if not self._decide_now(request):
                self._coordinator.store.spawn(self._coordinator.decide_in_turn(request))

    # -- deciding -----------------------------------------------------------------------------------------------

    async def decide(self, event: Event) -> None:
        """One event: decide, store, adopt, answer. If storing fails, nothing happened."""
        now_ms = self._coordinator.now_ms()
        decision = self._machine.decide(self.group, event, now_ms)
        while (slug := self._new_slug(decision)) is not None and not await self._reserve(slug):
            self._ids.taken_slugs.add(slug)
            decision = self._machine.decide(self.group, event, now_ms)
        if decision.store is not None:
            await self._checked(self._store.save(self.id, await self._own(), dump(decision.store)))
            self._stored = decision.store
        elif decision.tombstone:
            await self._bury()
        self._adopt(decision)
        if decision.tombstone:
            self.drop()

    def _new_slug(self, decision: Decision) -> str | None:
        """The slug of an identity that this decision mints."""
        known = self.group.identity if self.group is not None else None
        minted = decision.store.identity if decision.store is not None else None
        return minted.slug if minted is not None and minted != known else None

    async def _reserve(self, slug: str) -> bool:
        await self._own()
        return await self._store.reserve_slug(self.id, slug)

    async def _own(self) -> str:
        """Our token, taken at the first write of a group that was not stored before."""
        if self._owner is None:
            self._owner = (await self._store.create(self.id)).owner
        return self._owner

    async def _checked(self, write: Awaitable[None]) -> None:
        try:
            await write
        except OwnershipLost:
            self.let_go()
            raise

    async def _bury(self) -> None:
        """Mirrors first: a crash in between then leaves a group to delete again, not mirrors that nobody knows."""
        slug = self.group.identity.slug if self.group is not None and self.group.identity is not None else None
        await self._coordinator.mirror.destroy(self.id, self.offsets)
        if self._owner is not None:
            await self._checked(self._store.delete(self.id, self._owner, slug))

    def _adopt(self, decision: Decision) -> None:
        self.group = decision.group
        self._timers.adopt(decision.timers)
        self._alarm.set(self._timers.wake_ms())
        for token, answer in decision.replies:
            future = cast("asyncio.Future[Answer]", token)
            if not future.done():
                future.set_result(answer)

    # -- offsets ------------------------------------------------------------------------------------------------

    async def commit(self, offsets: dict[Place, Committed]) -> None:
        """Stores committed offsets, all or none."""
        await self._checked(self._store.commit(self.id, await self._own(), offsets))
        self.offsets.update(offsets)

    async def forget_offsets(self, places: Iterable[Place]) -> None:
        """Deletes committed offsets, and the mirrors that show them."""
        doomed = [place for place in places if place in self.offsets]
        if not doomed:
            return
        await self._coordinator.mirror.destroy(self.id, doomed)
        await self._checked(self._store.delete_offsets(self.id, await self._own(), doomed))
        for place in doomed:
            del self.offsets[place]

    async def purge(self) -> None:
        """Deletes the rest of a group that was never stored whole."""
        if self.group is None and not self.offsets:
            await self._bury()
            self.drop()

    # -- leaving ------------------------------------------------------------------------------------------------

    def let_go(self) -> None:
        """The group is another node's now: whoever waits is told so."""
        self._adopt(self._machine.decide(self.group, Unload(), self._coordinator.now_ms()))
        self.drop()

    def drop(self) -> None:
        """Forgets the group here; the next request looks it up again."""
        self.is_gone = True
        self._alarm.cancel()
        self._coordinator.forget(self)

    # -- timers -------------------------------------------------------------------------------------------------

    def _wake(self, late_ms: int) -> None:
        self._coordinator.store.spawn(self._fire_timers(late_ms))

    async def _fire_timers(self, late_ms: int) -> None:
        async with self.alone():
            if self.is_gone:
                return
            if not self._coordinator.may_decide(self.id):
                self._alarm.set(self._coordinator.now_ms() + _RETRY_MS)
                return
            try:
                await self.settle()
                if late_ms > _STALLED_MS and not self.is_gone:
                    await self.decide(Resume())
                await self._fire_due()
            except StoreError as error:
                log.info("a group's timer has to wait", extra={"group": self.id, "why": str(error)})
                self._alarm.cancel()
                self._alarm.set(self._coordinator.now_ms() + _RETRY_MS)

    async def _fire_due(self) -> None:
        now_ms = self._coordinator.now_ms()
        for key in self._timers.due(now_ms):
            # What fired before may have cancelled or renewed it.
            if not self.is_gone and self._timers.armed().get(key, now_ms + 1) <= now_ms:
                await self.decide(TimerFired(key))
        if not self.is_gone:
            self._alarm.set(self._timers.wake_ms())

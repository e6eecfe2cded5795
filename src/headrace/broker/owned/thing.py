"""One thing that this node owns: its state, its timers, and the order of its events.

Steps wait in one queue and are taken one at a time: decided once, stored if the decision has durable changes, adopted,
answered. As long as nothing has to be stored this happens on arrival, without a task; the first step that needs the
store starts a worker, which runs until the queue is empty. Later steps wait in order.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Generic, cast

from headrace.broker.owned import answers, leaving, stored
from headrace.broker.owned.contract import Decision, Name, State
from headrace.broker.owned.names import Names
from headrace.broker.owned.steps import Asked, Fired, Resumed, Step
from headrace.broker.owned.timers import Alarm, Timers
from headrace.store.cluster.owned.things import OwnershipLost
from headrace.store.confidence import Confidence, Level
from headrace.store.redis.copied_writes import NotConfirmed
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import asyncio

    from headrace.broker.owned.runtime import Runtime

log = logging.getLogger(__name__)

_RETRY_MS = 500
_STALLED_MS = 1_000
"""An alarm that rings this late means that the process stood still: requests may wait to be read."""


class Thing(Generic[State]):
    """One cached thing. `state`, `fields` and `rows` are as stored, or as decided without anything to store."""

    def __init__(self, name: Name, runtime: Runtime[State]) -> None:
        self.name = name
        self.state: State | None = None
        self.fields: dict[str, Any] = {}
        """The document as it is stored."""
        self.rows: dict[Any, Any] = {}
        self._tried: stored.Both = {}, {}
        """The last write that was sent. If it failed, the store may have it all the same."""
        self.is_gone = False
        """Deleted, another node's, or never kept: whoever still waits looks it up again."""
        self.has_stalled = False
        """Deadlines are to be renewed before any of them counts."""
        self.has_fired = False
        """Whether a step waits that decides the timers which are due."""
        self.machine = runtime.kind.machine(name)
        self.timers: Timers[Hashable] = Timers()
        self._runtime, self.now_ms = runtime, runtime.now_ms
        self._owns_now, self._key = runtime.owns_now, name.id.encode()
        self.was_away_since = runtime.was_away_since
        self.kind, self.store = runtime.kind, runtime.stored
        self._names = Names(name, self.kind, self.store)
        self._owner: str | None = None
        """Our token; None while nothing of the thing is stored."""
        self._outbid = 0
        """Our next token's number is above this."""
        slot = runtime.slot_of(name)
        self.link, self.outlook = slot.link, runtime.outlook_of(slot)
        self.confidence = Confidence()
        self.doubt = self.confidence.doubt
        self._alarm = Alarm(runtime.now_ms, self.ring_now)
        self._waiting: deque[Step[State]] = deque()
        self._open: tuple[Step[State], Decision[State]] | None = None
        """Decided and not yet stored."""
        self._is_working = self.must_go = self._is_confirmed = False

    @property
    def is_blank(self) -> bool:
        """Whether it does not exist: nothing is stored, and no client was told of it."""
        return self._owner is None and self.state is None

    @property
    def owner(self) -> str:
        """Our token; empty while the thing is not stored."""
        return self._owner or ""

    @property
    def is_settled(self) -> bool:
        """Whether the cached state is valid.

        While Redis is away and our lease is beyond doubt nobody else can have changed anything, unless another node may
        have owned it before: in a cluster, the leases may be on a server that is not away.
        """
        seen, view = self.confidence.seen, self.outlook.view
        if self.confidence.level(view) is Level.SURE:
            return True
        return seen is not None and seen.term == view.term and not self.link.is_up

    def _is_ready(self) -> bool:
        return (
            not self.is_gone
            and not self.must_go
            and (self.confidence.seen is self.outlook.view or self.is_settled)
            and (self._is_confirmed or self._owns_now(self._key))
        )

    # -- steps --------------------------------------------------------------------------------------------------

    def ask(self, event: Any, answer: asyncio.Future[Any]) -> None:
        """Takes a request now if possible, else in its turn. The usual case is written out: it needs no step."""
        if self._is_working or not self._is_ready():
            self.submit(Asked(self.kind, event, answer))
            return
        try:
            decision = self.machine.decide(self.state, event, self.now_ms())
        except Exception as error:
            Asked(self.kind, event, answer).failed(error)
            return
        if decision.is_durable:
            self._open = Asked(self.kind, event, answer), decision
            self._begin_work()
            return
        self.adopt(decision)
        if self._owner is None:
            self._drop_if_nothing()

    def submit(self, step: Step[State]) -> None:
        """Takes a step now if possible, else in its turn."""
        if self._is_working or not self._is_ready():
            self._waiting.append(step)
        elif self._decide(step):
            if self._owner is None:
                self._drop_if_nothing()
            return
        self._begin_work()

    def _begin_work(self) -> None:
        if not self._is_working:
            self._is_working = True
            self._runtime.spawn(self._work(), self._stopped)

    def _decide_waiting(self) -> None:
        """Decides steps in their order, up to one that needs the store."""
        while self._waiting and self._is_ready():
            if not self._decide(self._waiting.popleft()):
                return

    def _decide(self, step: Step[State]) -> bool:
        """Decides a step; false if the decision has to be stored."""
        try:
            decision = step.decide(self)
        except Exception as error:
            step.failed(error)
            return True
        if decision is None:
            return True
        if decision.is_durable:
            self._open = step, decision
            return False
        self.adopt(decision)
        step.adopted(self)
        return True

    async def _work(self) -> None:
        try:
            while self._open is not None or self._waiting or self.must_go:
                if self._open is not None:
                    await self._finish(*self._open)
                    self._open = None
                if self.must_go:
                    await leaving.leave(self, self._runtime)
                if self._waiting and not await self._make_ready():
                    return
                self._decide_waiting()
                self._is_confirmed = False
        except Exception as error:
            self._open = None
            for step in self._take_waiting():
                step.failed(error)
            raise
        finally:
            self._is_working = False
            self._drop_if_nothing()

    def _stopped(self, worker: asyncio.Task[None]) -> None:
        if worker.cancelled():  # the node stops: nobody else will tell those who wait
            steps = [*([self._open[0]] if self._open is not None else ()), *self._take_waiting()]
            self._open, self._is_working = None, False
            for step in steps:
                step.refused(self, KafkaError(ErrorCode.NOT_COORDINATOR, "The node is stopping."))

    async def _make_ready(self) -> bool:
        """False if no waiter is left: they were refused, or look the thing up again."""
        try:
            self._runtime.check_owner(self.name)
            if not self._owns_now(self._key):
                await self._confirm()
            elif not self.is_gone and self.confidence.level(self.outlook.view) is Level.UNREAD:
                await self._load()
            elif not self.is_gone and not self.is_settled:
                await self.settle()
        except KafkaError as error:
            self._let_go_if_lost(error)
            for step in self._take_waiting():
                step.refused(self, error)
            if self.confidence.level(self.outlook.view) is Level.UNREAD:
                self.drop()
            return False
        if self.is_gone:
            for step in self._take_waiting():
                self._runtime.submit(self.name, step)
        return not self.is_gone

    def _take_waiting(self) -> deque[Step[State]]:
        waiting, self._waiting, self.has_fired = self._waiting, deque(), False
        return waiting

    # -- deciding -----------------------------------------------------------------------------------------------

    async def _finish(self, step: Step[State], decision: Decision[State]) -> None:
        """Stores a decision, then adopts it. If storing fails, nothing happened."""
        try:
            while decision.claim is not None:
                await self._own()
                if await self.kind.claim(self.name, decision.claim):
                    break
                self.machine.claim_refused(decision.claim)
                decision = cast("Decision[State]", step.decide(self))
            await self._write(decision)
        except KafkaError as error:
            self._let_go_if_lost(error)
            step.refused(self, error)
        except Exception as error:
            step.failed(error)
        else:
            self.adopt(decision)
            step.adopted(self)
            if decision.tombstone:
                self.drop()

    async def _own(self) -> str:
        """Our token, taken at the first write of a thing that nobody has stored before."""
        if self._owner is None:
            self._owner = await self.store.create(*self.name)
            self._runtime.is_stored(self)
        return self._owner

    async def _store_and_adopt(self, decision: Decision[State]) -> None:
        if decision.is_durable:
            await self._write(decision)
        self.adopt(decision)

    async def _write(self, decision: Decision[State]) -> None:
        try:
            await (self._bury() if decision.tombstone else self._write_changes(decision))
        except NotConfirmed:
            self.confidence.doubt()  # the store has it, and is taken back to what was answered for
            raise

    async def _write_changes(self, decision: Decision[State]) -> None:
        """Writes the changed fields and rows; what seems to change nothing may to another owner."""
        fields, rows = stored.changes_of(decision, self.fields, self.rows)
        if not fields and not rows:
            await self._check_token()
            return
        doomed = [row for row, value in rows.items() if value is None]
        if doomed:
            await self.kind.before_rows_go(self.name, doomed)
        packed = stored.packed(self.kind, fields, rows)
        self._tried = (fields, rows) if self.link.is_up else self._tried
        await self.store.write(*self.name, await self._own(), packed)
        stored.apply(self.fields, fields)
        stored.apply(self.rows, rows)
        if rows:
            self.kind.rows_stored(self.name, rows)

    async def _bury(self) -> None:
        """Deletes its visible copies first, so that a crash in between never leaves orphans."""
        claimed = self.kind.claimed(self.state) if self.state is not None else None
        await self.kind.before_rows_go(self.name, list(self.rows))
        self._tried = (dict.fromkeys(self.fields), dict.fromkeys(self.rows)) if self.link.is_up else self._tried
        await stored.delete(self.store, self.kind, self.name, self._owner, claimed)
        self.kind.buried(self.name, self.rows)

    def adopt(self, decision: Decision[State]) -> None:
        """Adopts a decision and sends its answers."""
        self.state = decision.state
        self._alarm.set(self.timers.adopt(decision.timers))
        if self._owner is None and self.state is not None and not self.is_gone:
            self._runtime.keep_unstored(self)
        if decision.replies:
            answers.send(decision.replies)

    # -- being sure ---------------------------------------------------------------------------------------------

    async def _confirm(self) -> None:
        """Without a lease only what is known and still ours is answered: maybe its server is away for us alone."""
        if self.confidence.level(self.outlook.view) <= Level.ASTRAY or self._runtime.is_with_leases(self.name):
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This node has no lease.")
        await self._check_token()
        if not self.is_settled:
            await self.settle()
        self._runtime.check_owner(self.name)
        self._is_confirmed = True  # the store has just said that it is ours

    async def _check_token(self) -> None:
        if not await self.store.is_owner(*self.name, self.owner):
            raise OwnershipLost(self.name.id)

    async def _load(self) -> None:
        """Loads the stored thing, if there is one."""
        self._runtime.check_restored()
        look = self.confidence.begin(self.outlook.view)
        taken = await self.store.take(*self.name)
        if taken is not None:
            self._owner = taken.owner
            self.rows = stored.unpacked_rows(self.kind, self.name, taken.rows)
            self.fields = stored.unpacked_fields(self.kind, self.name, taken)
            if self.fields:
                await self._store_and_adopt(self.machine.load(self.name.id, self.fields, self._runtime.now_ms()))
        self.confidence.end(look)

    async def settle(self) -> None:
        """Takes the thing again after a sign of trouble; it may be gone afterwards."""
        view, seen = self.outlook.view, self.confidence.seen
        look = self.confidence.begin(view)
        if self._owner is None:
            if seen is not None and seen.term == view.term:
                self.confidence.end(look)
            else:
                self.drop()  # another node may have decided meanwhile
            return
        timeline = seen.timeline if seen is not None and seen.term != view.term else None
        await self._names.list_again(self._owner, is_known=self.confidence.level(view) > Level.ASTRAY)
        taken = await self.store.take_again(*self.name, self._owner, self._outbid, timeline, leaves=self.must_go)
        if taken is None or not taken.nobody_came_between(self._owner):
            await leaving.give_up(self, self._runtime)
            return
        self._owner = taken.owner
        await self._names.claim_again(self.state)
        await stored.write_back(self.store, self.kind, self.name, taken, (self.fields, self.rows), self._tried)
        self.confidence.end(look)
        if seen is not None and seen.term != view.term and not self.must_go:
            await self._store_and_adopt(self.machine.resume(self.state, self._runtime.now_ms()))

    def outbid(self, number: int) -> None:
        """Something bears the number of an owner that the store has forgotten: ours has to be above it."""
        self._outbid = max(self._outbid, number)
        self.confidence.doubt()

    # -- leaving ------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Another node owns the thing now: lets it go as soon as no write is in flight, and the store has all of it."""
        self.must_go = True
        if leaving.is_astray(self):
            self._begin_work()
        elif not self._is_working:
            leaving.hand_over(self, self._runtime)

    def _let_go_if_lost(self, error: KafkaError) -> None:
        """A server that took over meanwhile may just not know our token: the next look tells."""
        if isinstance(error, OwnershipLost) and self.confidence.level(self.outlook.view) > Level.ASTRAY:
            self.let_go()

    def let_go(self) -> None:
        """Tells parked requests that another node owns the thing, and forgets it."""
        self.adopt(self.machine.unload(self.state, self._runtime.now_ms()))
        self.drop()

    def drop(self) -> None:
        """Forgets the thing here; the next request looks it up again."""
        self.is_gone, self.must_go = True, False
        self._alarm.cancel()
        self._runtime.forget(self)

    def _drop_if_nothing(self) -> None:
        if self.is_blank and not self._is_working and not self._waiting:
            self.drop()

    # -- timers -------------------------------------------------------------------------------------------------

    def ring_now(self, late_ms: int = 0) -> None:
        """Decides the timers that are due."""
        if self.is_gone:
            return
        self.has_stalled = self.has_stalled or late_ms > _STALLED_MS
        if self.has_stalled:
            self.submit(Resumed())
        if not self.has_fired and self.timers.are_due(self._runtime.now_ms()):
            self.has_fired = True
            self.submit(Fired())
        if not self._is_working and not self.is_gone:
            self._alarm.set(self.timers.wake_ms())

    def retry_timers(self, error: KafkaError) -> None:
        """Timers could not be decided: they are due again soon."""
        title = self.kind.title
        log.debug(f"a timer of a {title} is postponed", extra={title: self.name.id, "why": str(error)})
        if not self.is_gone:
            self._alarm.cancel()
            self._alarm.set(self._runtime.now_ms() + _RETRY_MS)

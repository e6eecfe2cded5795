"""The things of one kind that belong to this node: finding, loading and releasing them.

A request for a thing that is not ours, or while our lease is in doubt, is refused before any state is read
(NOT_COORDINATOR). While Redis is unavailable, everything that would have to be stored is refused, so that clients retry
without losing their place. A name is kept only while it has state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from headrace.broker.owned import leaving
from headrace.broker.owned.contract import Kind, Name, State
from headrace.broker.owned.just_left import JustLeft
from headrace.broker.owned.steps import Looked, Step
from headrace.broker.owned.thing import Thing
from headrace.store.cluster.owned.things import OwnedStore
from headrace.store.confidence import Outlook
from headrace.store.redis.errors import StoreError
from headrace.store.redis.topology import Slot
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.store import Store

_LOAD_AT_ONCE = 64
_UNSTORED_MAX = 10_000
"""Things of which nothing is stored, kept for those who were told something: member ids that were handed out."""


class Runtime(Generic[State]):
    """All things of one kind here."""

    def __init__(self, store: Store, stored: OwnedStore, kind: Kind[State], now_ms: Callable[[], int]) -> None:
        self.kind = kind
        self.stored = stored
        self.now_ms = now_ms
        """The wall clock as it was at the start, advanced by the monotonic one: it never goes back."""
        self.things: dict[Name, Thing[State]] = {}
        self._unstored: dict[Name, Thing[State]] = {}
        """Things without stored state, oldest first."""
        self._store = store
        self.owns_now = store.nodes.owns_now
        """Whether something, by its id as bytes, is ours and our lease is beyond doubt."""
        self.was_away_since = store.nodes.was_away_since
        """Whether other nodes may have owned our things after a term, because this one was away."""
        self.just_left: JustLeft[State] = JustLeft(self, store.leases.lease_ms / 1000)
        self.now_s = store.clock.monotonic_s
        self._is_closed = False
        store.nodes.restored.checks.append(self._is_restored)

    def close(self) -> None:
        """Stops deciding: the next owner starts from the stored state."""
        self._is_closed = True
        for thing in list(self.things.values()):
            thing.drop()

    async def leave_lost(self, patience_s: float) -> None:
        """Before `close`: what a server that went back in time has lost is nowhere but here."""
        await leaving.leave_lost(list(self.things.values()), patience_s)

    def _is_restored(self) -> bool:
        """Whether all that is here was seen on the servers that answer now: what one of them had lost is back."""
        are_settled = all(one.is_blank or (one.link.is_up and one.is_settled) for one in self.things.values())
        return are_settled and self.just_left.are_stored

    @property
    def organisations(self) -> list[str]:
        """The organisations whose things are maintained."""
        return list(self._store.organisations)

    # -- whose things -------------------------------------------------------------------------------------------

    @property
    def arrivals(self) -> Hashable:
        """Changes whenever there may be things to load: from other nodes, or back on servers that had lost them."""
        nodes = self._store.nodes
        return nodes.term, nodes.restored.servers(), frozenset(one.row.restored_on for one in nodes.seen)

    def slot_of(self, name: Name) -> Slot:
        """Where a thing is stored."""
        return self.stored.slot_of(*name)

    def is_with_leases(self, name: Name) -> bool:
        """Whether a thing is on the server of the leases: then neither can be read without the other."""
        return self.slot_of(name).shard is self._store.topology.slot_of(self._store.keys.nodes).shard

    def outlook_of(self, slot: Slot) -> Outlook:
        """The confidence in a thing read from a slot."""
        return self._store.outlook_of(slot)

    def is_mine(self, name: Name) -> bool:
        """Whether the thing belongs to this node."""
        nodes = self._store.nodes
        return nodes.owner(name.id.encode()).id == nodes.me.id

    def may_come_back(self, name: Name) -> bool:
        """Whether a thing that cannot be looked at now is this node's all the same: the store or the lease is away."""
        return not self._is_closed and self.is_mine(name)

    def may_decide(self, name: Name) -> bool:
        """Whether the thing is ours and our lease is beyond doubt."""
        return not self._is_closed and self._store.nodes.owns_now(name.id.encode())

    def check_owner(self, name: Name) -> None:
        """Raises NOT_COORDINATOR unless the thing is ours, as far as this node knows."""
        if self._is_closed or not self._store.nodes.may_own(name.id.encode()):
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")

    def check_restored(self) -> None:
        """Raises while servers may lack what another node is about to put back: taken now, it would be lost."""
        if self._store.latecomers.may_put_back:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Another node may have what the store lost.")

    async def is_emptied(self, name: Name) -> bool:
        """Whether a thing's server has just lost everything: what is missing there was not deleted.

        It has the leases too, and this node's row was not there: no other server tells.
        """
        nodes = self._store.nodes
        if not self.is_with_leases(name):
            return False
        return nodes.outages.is_emptied(self.now_s()) or await self._store.leases.row(nodes.me.id) is None

    # -- steps --------------------------------------------------------------------------------------------------

    def ask(self, name: Name, event: Any, answer: asyncio.Future[Any]) -> None:
        """Decides an event in its turn; the future is told the answer, which may be held back until others came."""
        thing = self.things.get(name)
        if thing is None:
            thing = self._thing(name)
        thing.ask(event, answer)

    async def look(self, name: Name, make_event: Callable[[Thing[State]], Any] | None = None) -> Thing[State]:
        """The thing, with all that came before decided. An event that is made of it then is decided, too."""
        future: asyncio.Future[Thing[State]] = asyncio.get_running_loop().create_future()
        self.submit(name, Looked(future, make_event))
        return await future

    async def current(self, name: Name) -> Thing[State]:
        """The thing with everything that any node had acknowledged when this was called.

        Our lease does not guarantee that: a node that joins, or deposes this one, takes over before we know of it.
        """
        while True:
            thing = await self.look(name)
            if await self.stored.is_owner(*name, thing.owner):
                return thing
            thing.doubt()
            await self._store.nodes.look_again()

    async def look_at_all(self, org: str) -> list[Thing[State]]:
        """Every thing of this node; raises if one cannot be looked at, when all others are.

        Also while our lease is in doubt: what was left out then would seem not to exist.
        """
        found, trouble = await self.look_at_known(org)
        if trouble is not None:
            raise trouble
        return found

    async def look_at_known(self, org: str) -> tuple[list[Thing[State]], KafkaError | None]:
        """The things of this node that can be looked at now, and why there may be more.

        While the server with the names is away, these are the things that are here.
        """
        away: KafkaError | None = None
        try:
            names = await self.names(org)
        except StoreError as error:
            names, away = [name for name in self.things if name.org == org], error
        found, trouble = await self.look_at([name for name in names if self.is_mine(name)])
        return found, away or trouble

    async def load_all(self, org: str) -> None:
        """Loads what of this node is not here yet; raises if something cannot be loaded, when all else is."""
        names = [name for name in await self.names(org) if self.may_decide(name)]
        names = [name for name in names if (one := self.things.get(name)) is None or not one.is_settled]
        _, trouble = await self.look_at(names)
        if trouble is not None:
            raise trouble

    async def look_at(self, names: Sequence[Name]) -> tuple[list[Thing[State]], KafkaError | None]:
        """Looks at many together, and says why some cannot be looked at: a server that is away has only some."""
        found: list[Thing[State]] = []
        trouble: KafkaError | None = None
        for at in range(0, len(names), _LOAD_AT_ONCE):
            looks = (self.look(name) for name in names[at : at + _LOAD_AT_ONCE])
            for outcome in await asyncio.gather(*looks, return_exceptions=True):
                if isinstance(outcome, KafkaError):
                    trouble = trouble or outcome
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    found.append(outcome)
        return found, trouble

    async def names(self, org: str) -> Iterable[Name]:
        """All that are stored, of all nodes; perhaps a few that no longer are."""
        return [Name(org, name) for name in await self.stored.names(org)]

    def submit(self, name: Name, step: Step[State]) -> None:
        (self.things.get(name) or self._thing(name)).submit(step)

    def _thing(self, name: Name) -> Thing[State]:
        thing = Thing(name, self)
        if self.may_decide(name):
            self.things[name] = thing
        else:
            thing.is_gone = True  # it only carries the refusal, or the steps to one that is kept
        return thing

    # -- what the things ask for --------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any], then: Callable[[asyncio.Task[None]], None]) -> None:
        self._store.spawn(work, then)

    def forget(self, thing: Thing[State]) -> None:
        """Told by a thing that it is gone."""
        if self.things.get(thing.name) is thing:
            del self.things[thing.name]
            self._unstored.pop(thing.name, None)

    def keep_unstored(self, thing: Thing[State]) -> None:
        """Registers a thing whose state is not stored. The oldest is dropped first: its clients retry."""
        self._unstored[thing.name] = thing
        if len(self._unstored) > _UNSTORED_MAX:
            next(iter(self._unstored.values())).drop()

    def is_stored(self, thing: Thing[State]) -> None:
        """Told by a thing before its first write."""
        self._unstored.pop(thing.name, None)

"""What this node left to others within the last lease.

The store may be lost before the next owner has read such a thing: then nobody else has it. So it is kept as it was
left; nothing is decided about it here. If a server that answers again has gone back in time, it gets the thing as if it
were left only then (`leaving.py`). For so long other nodes take nothing that they do not know (`check_restored` in
`runtime.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from headrace.broker.owned import stored
from headrace.broker.owned.contract import Name, State
from headrace.store.cluster.owned.things import OwnershipLost
from headrace.store.confidence import Level
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.owned.runtime import Runtime
    from headrace.broker.owned.thing import Thing
    from headrace.store.redis.route import Route

log = logging.getLogger(__name__)

_POLL_S: Final = 0.01
_AT_ONCE: Final = 64


class _Left(NamedTuple):
    thing: Thing[Any]
    claimed: str | None
    until_s: float


class JustLeft(Generic[State]):
    """The things of one kind, the first that was left first."""

    def __init__(self, runtime: Runtime[State], lease_s: float) -> None:
        self._runtime, self._lease_s = runtime, lease_s
        self._left: dict[Name, _Left] = {}
        self._seen: dict[Route, int] = {}
        """The timelines on which they were known to be stored."""
        self._is_watching = False

    def __len__(self) -> int:
        return len(self._left)

    @property
    def are_stored(self) -> bool:
        """Whether no server that has one of them may have lost it."""
        return all(link.is_up and link.timeline == timeline for link, timeline in self._seen.items())

    def add(self, thing: Thing[State]) -> None:
        """Before a thing that is stored is let go."""
        claimed = self._runtime.kind.claimed(thing.state) if thing.state is not None else None
        self._left.pop(thing.name, None)
        self._left[thing.name] = _Left(thing, claimed, self._runtime.now_s() + self._lease_s)
        self._seen.setdefault(thing.link, thing.link.timeline)
        if not self._is_watching:
            self._is_watching = True
            self._runtime.spawn(self._watch(), lambda _: None)

    async def _watch(self) -> None:
        try:
            while self._left:
                await asyncio.sleep(_POLL_S)
                if self.are_stored:
                    self._forget()
                else:
                    await self._put_back()
        finally:
            self._is_watching = False
            self._left.clear()
            self._seen.clear()

    def _forget(self) -> None:
        """Those whose time is over."""
        now_s = self._runtime.now_s()
        while self._left and (first := next(iter(self._left.values()))).until_s <= now_s:
            del self._left[first.thing.name]

    async def _put_back(self) -> None:
        """What a server that is back has lost."""
        back = {link: link.timeline for link, seen in self._seen.items() if link.is_up and link.timeline != seen}
        lost = [one for one in self._left.values() if one.thing.link in back and _is_astray(one.thing)]
        for at in range(0, len(lost), _AT_ONCE):
            await asyncio.gather(*map(self._put_one_back, lost[at : at + _AT_ONCE]))
        for one in lost:
            self._left.pop(one.thing.name, None)
        self._seen |= back

    async def _put_one_back(self, left: _Left) -> None:
        thing, kind = left.thing, left.thing.kind
        if thing.name in self._runtime.things:
            return
        try:
            if not await self._has_put_back(left):
                await self._put_rows_back(thing)
        except KafkaError as error:
            extra = {kind.title: thing.name.id, "why": str(error)}
            log.debug(f"a {kind.title} that was left a moment ago is not put back", extra=extra)

    async def _has_put_back(self, left: _Left) -> bool:
        """False if another process has taken it there."""
        thing, seen = left.thing, left.thing.confidence.seen
        kind, store, name = thing.kind, thing.store, thing.name
        if seen is None or thing.was_away_since(seen.term):
            return False
        await store.enlist(*name)
        try:
            taken = await store.take_again(*name, thing.owner, 0, None, leaves=True)
            if taken is None or not taken.nobody_came_between(thing.owner):
                return False
            if left.claimed is not None:
                await kind.claim(name, left.claimed)
            await stored.write_back(store, kind, name, taken, (thing.fields, thing.rows), ({}, {}))
        except OwnershipLost:
            return False
        return True

    async def _put_rows_back(self, thing: Thing[Any]) -> None:
        is_emptied = await self._runtime.is_emptied(thing.name)
        await stored.put_rows_back(thing.store, thing.kind, thing.name, thing.rows, is_emptied=is_emptied)


def _is_astray(thing: Thing[Any]) -> bool:
    return thing.confidence.level(thing.outlook.view) <= Level.ASTRAY

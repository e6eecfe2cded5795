"""An owner's background work.

Stored things are loaded at start-up, and again whenever nodes come or go or have restored what a store lost: a timer
has to fire even if no request names its thing. Things that moved to another node are released, and those lost by a
store that went back in time are written again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Hashable, Iterator
from typing import Generic

from headrace.broker.owned.contract import State
from headrace.broker.owned.runtime import Runtime
from headrace.ticks import until_tick
from headrace.wire.errors import KafkaError

log = logging.getLogger(__name__)

_EVERY_S = 1.0


class OwnedUpkeep(Generic[State]):
    """The background work for the things of one kind."""

    def __init__(self, runtime: Runtime[State]) -> None:
        self._runtime = runtime
        self._loaded: dict[str, Hashable] = {}
        """Organisation -> after which arrivals its things were loaded."""
        self._registered: dict[str, tuple[int, ...]] = {}
        """Organisation -> when its things were last seen to be listed."""
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Nodes came or went: there is something to do now."""
        self._woken.set()

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            with self._postponing():
                self.let_go_what_moved()
            for org in self._runtime.organisations:
                with self._postponing():
                    await self._load_what_came(org)
            with self._postponing():
                await self._check_what_is_here()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until_tick(_EVERY_S)):
                    await self._woken.wait()
            self._woken.clear()

    @contextlib.contextmanager
    def _postponing(self) -> Iterator[None]:
        """Around a part of the work: one that fails does not keep the others back, whose servers may be well."""
        title = self._runtime.kind.title
        try:
            yield
        except KafkaError as error:
            log.debug(f"upkeep of {title}s is postponed", extra={"why": str(error)})
        except Exception:
            log.exception(f"upkeep of {title}s failed")

    async def _load_what_came(self, org: str) -> None:
        arrivals = self._runtime.arrivals
        if self._loaded.get(org) != arrivals:
            await self._runtime.load_all(org)
            self._loaded[org] = arrivals

    def let_go_what_moved(self) -> None:
        """Lets things go that other nodes own by now."""
        runtime = self._runtime
        for thing in list(runtime.things.values()):
            if not (thing.must_go or runtime.is_mine(thing.name)):
                log.info(f"a {runtime.kind.title} moved to another node", extra={runtime.kind.title: thing.name.id})
                thing.release()

    def _doubt_what_may_not_be_listed(self) -> None:
        runtime = self._runtime
        for org in runtime.organisations:
            now = runtime.stored.registers_timeline(org)
            if self._registered.setdefault(org, now) != now:
                self._registered[org] = now
                for thing in runtime.things.values():
                    if thing.name.org == org:
                        thing.doubt()

    async def _check_what_is_here(self) -> None:
        self._doubt_what_may_not_be_listed()
        runtime = self._runtime
        things = [one for one in runtime.things.values() if runtime.is_mine(one.name)]
        _, trouble = await runtime.look_at([one.name for one in things if not one.is_settled and one.link.is_up])
        if trouble is not None:
            raise trouble

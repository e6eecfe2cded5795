"""Raises leader epochs before clients see them, not when the first client asks for a partition.

A log that may have lost its end together with its broker gets a new leader epoch when its next leader opens it
(`partition/origin.py`). If that waited for the first Fetch or ListOffsets, the very client that asks would be fenced,
because Metadata told it the old epoch. So whenever a new server run answers, a node searches the metas of all
partitions for those opened on an earlier run and not closed cleanly. It opens the suspects that it leads, and watches
those of other leaders, which become its own if those nodes do not come back.

No new suspects appear during a server run: once none is left, the run is recorded in the cluster's hash, and nodes that
start later have nothing to search.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.partition import origin
from headrace.store.redis.errors import StoreError
from headrace.ticks import until_tick

if TYPE_CHECKING:
    from headrace.store.cluster.catalogue import Topic
    from headrace.store.organisation import Organisation
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_READ_AT_ONCE = 256
_OPEN_AT_ONCE = 16
_PATIENCE_S = 3.0
_EVERY_S = 0.2
_SETTLED_EVERY_S = 1.0
_REST = 4
"""A round is followed by a rest of so many times its length: the suspects of another node must not keep us busy."""


class _Place(NamedTuple):
    topic: Topic
    number: int


class Takeover:
    """The partitions of one organisation, as far as their leader epochs may have to rise."""

    def __init__(self, store: Store, organisation: Organisation) -> None:
        self._store = store
        self._organisation = organisation
        self._noted_in = store.keys.cluster, f"settled:{organisation.name}"
        self._server = ""
        """The runs of the servers that the suspects are of."""
        self._suspects: list[_Place] = []

    @property
    def is_settled(self) -> bool:
        """Whether the epochs are as high as they have to be. Costs nothing."""
        return self._server == self._store.topology.identity and not self._suspects

    async def go_on(self) -> None:
        """Raises the epochs that this node can raise now, and applies those raised by others."""
        server = self._store.topology.identity
        if self._server != server:
            self._suspects = [] if await self._is_noted(server) else await self._search()
            self._server = server
        if self._suspects:
            self._suspects = await self._take_up()
        if not self._suspects:
            self._store.link.post("HSET", *self._noted_in, server)
        await self._organisation.catalogue.refresh()

    async def _is_noted(self, server: str) -> bool:
        noted: bytes | None = await self._store.link.call("HGET", *self._noted_in)
        return noted == server.encode()

    async def _search(self) -> list[_Place]:
        await self._organisation.catalogue.refresh()  # a topic may have been made right before the store went away
        topics = list(self._organisation.catalogue.by_name.values())
        places = (_Place(topic, number) for topic in topics for number in range(topic.partitions))
        return [place for some in _portions(places) for place in await self._suspects_among(some)]

    async def _suspects_among(self, places: list[_Place]) -> list[_Place]:
        topology = self._store.topology
        metas = [topic.keys(self._organisation.keys, number).meta for topic, number in places]
        rows = await topology.call_each(("HMGET", meta, "server", "left") for meta in metas)
        return [
            place
            for place, meta, (taken_up, left) in zip(places, metas, rows, strict=True)
            if origin.is_suspect(taken_up, left, topology.slot_of(meta).link.identity)
        ]

    async def _take_up(self) -> list[_Place]:
        """Opens the suspects that this node leads; gives those that are left, of this node (a lake is away) or others.

        What is opened is decided by opening it: a suspect that has nothing to fear keeps its epoch.
        """
        nodes, left = self._store.nodes, []
        for some in _portions(self._suspects):
            led = [place for place in some if nodes.leader(*place) == nodes.me]
            for at in range(0, len(led), _OPEN_AT_ONCE):
                await asyncio.gather(*map(self._open, led[at : at + _OPEN_AT_ONCE]))
            left += await self._suspects_among(some)
        return left

    async def _open(self, place: _Place) -> None:
        try:
            await (await self._organisation.partition(*place)).confirm()
        except StoreError as error:  # of this one alone, or the next command says so too
            extra = {"partition": f"{place.topic.name}-{place.number}", "why": str(error)}
            log.debug("a partition was not taken over", extra=extra)


class Takeovers:
    """The takeovers of all organisations, continued in the background, and those waiting for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_running = False
        self._round_ended = asyncio.Event()
        self._woken = asyncio.Event()
        self._seen: tuple[int, int] | None = None
        """The moment at which the last round began: servers and nodes have changed so often."""
        self._shown: tuple[int, int] | None = None
        """The last moment that somebody waited for."""

    @property
    def _now(self) -> tuple[int, int]:
        return self._store.topology.timeline, self._store.nodes.term

    async def start(self) -> None:
        """Returns once no suspect is left, other nodes' included, or after a while; it goes on in the background."""
        self._is_running = True
        self._store.spawn(self._run())
        await self._patiently(lambda: self.are_settled)

    async def settle(self) -> None:
        """Call it before epochs are shown: after a change of servers or nodes it waits for our own partitions.

        A change costs one bounded wait, however long taking over goes on.
        """
        now = self._now
        if not self._is_running or self.are_settled or self._shown == now:
            return
        self._woken.set()
        await self._patiently(lambda: self.are_settled or self._seen == self._now)
        self._shown = now

    def look(self) -> None:
        """The store was looked at: if another run of it answers, there is something to do."""
        if not self.are_settled:
            self._woken.set()

    @property
    def are_settled(self) -> bool:
        """Whether no partition is left whose leader epoch may have to rise."""
        return all(one.takeover.is_settled for one in self._store.organisations.values())

    async def _patiently(self, holds: Callable[[], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while not holds():
                    await self._round_ended.wait()

    async def _run(self) -> None:
        now_s = self._store.clock.monotonic_s
        while True:
            began, began_s = self._now, now_s()
            try:
                await self._go_on()
            except StoreError as error:
                log.debug("taking over is postponed", extra={"why": str(error)})
            except Exception:
                log.exception("taking over failed")
            self._seen = began
            self._round_ended.set()
            self._round_ended.clear()
            if self.are_settled:
                await self._rest()
            else:
                await asyncio.sleep(max(_EVERY_S, (now_s() - began_s) * _REST))

    async def _rest(self) -> None:
        """Until somebody sees that another run of the servers answers."""
        self._woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until_tick(_SETTLED_EVERY_S)):
                await self._woken.wait()

    async def _go_on(self) -> None:
        for one in list(self._store.organisations.values()):
            if not one.takeover.is_settled:
                await one.takeover.go_on()


def _portions(places: Iterator[_Place] | list[_Place]) -> Iterator[list[_Place]]:
    """As many as are read in one go: the loop has other things to do in between."""
    rest = iter(places)
    while some := list(islice(rest, _READ_AT_ONCE)):
        yield some

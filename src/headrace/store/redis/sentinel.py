"""The primary according to the sentinels: a majority of them has to name it.

They are asked before each connection, and once a second whether it has changed: a primary cut off from the rest keeps
running and accepts writes, and an old primary that comes back claims to be one. Neither is trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from headrace.store.options import StoreOptions
from headrace.store.redis.address import Address, HostPort
from headrace.store.redis.errors import StoreAway, StoreError
from headrace.store.redis.link import RedisLink

log = logging.getLogger(__name__)

_ANSWER_S = 1.0
_LOOK_EVERY_S = 1.0
_SWITCHED = "+switch-master"


class _Word(NamedTuple):
    """One sentinel's answer."""

    sentinel: str
    """Its run id."""
    primary: HostPort | None
    others: dict[str, HostPort]
    """The sentinels that it knows, by their run ids."""


class Sentinels:
    """The sentinels of one primary."""

    def __init__(self, address: Address, options: StoreOptions, replaced: Callable[[Address], None]) -> None:
        self._address = address
        self._timeout_ms = options.timeout_ms
        self._replaced = replaced
        self._links: dict[HostPort, RedisLink] = {}
        self._ears: dict[HostPort, RedisLink] = {}
        self._others: set[HostPort] = set()
        """Where others are, by the word of the sentinels that last named a primary."""
        self._task: asyncio.Task[None] | None = None
        self._switched = asyncio.Event()

    async def start(self) -> None:
        for place in self._address.seeds:
            self._open(place)
        self._task = asyncio.create_task(self._follow(), name="sentinels")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for link in [*self._links.values(), *self._ears.values()]:
            await link.close()

    def _open(self, place: HostPort) -> RedisLink:
        if (known := self._links.get(place)) is not None:
            return known
        address = self._address.sentinel_at(place)
        link = self._links[place] = RedisLink(address, "sentinel", self._timeout_ms, any_role=True)
        ear = self._ears[place] = RedisLink(address, "sentinel switches", self._timeout_ms, any_role=True)
        ear.listen_to(_SWITCHED, lambda _: self._switched.set())
        link.start_soon()
        ear.start_soon()
        return link

    async def _leave_gone(self) -> None:
        """Gives places up that do not answer, and that nobody names: containers come back with other addresses."""
        for place in self._links.keys() - self._others - set(self._address.seeds):
            if not self._links[place].is_up:
                await self._links[place].close()
                await self._ears[place].close()
                del self._links[place], self._ears[place]

    async def primary(self) -> Address:
        """Where the primary is; StoreAway if no majority names one."""
        words: list[_Word] = []
        named = await self._ask(list(self._links), words)
        unasked = {place for word in words for other, place in word.others.items() if other not in _heard(words)}
        if named is None and unasked:
            named = await self._ask(list(unasked), words)
        named = named or _named(words)
        if named is not None:
            self._others = {place for word in words for place in word.others.values()}
            return self._address.at(named)
        name, total = self._address.primary_name, max(len(_known(words)), 1)
        if words and all(word.primary is None for word in words):
            raise StoreAway(f"{self._address}: the sentinels know no primary '{name}'", "correct the name in --redis")
        seen = f"{len(words)} of {total} answer" if words else "none answers"
        trouble, advice = self._trouble()
        raise StoreAway(f"{self._address}: no majority of the sentinels names a primary ({seen}{trouble})", advice)

    def _trouble(self) -> tuple[str, str]:
        """Why one does not answer, and what to do: else a wrong password, or another server, looks like its death."""
        for place, link in self._links.items():
            if link.refusal is not None:
                return f"; {place}: {link.why_away}", "check ?sentinel_username= and ?sentinel_password= in --redis"
            if link.is_up and link.mode != "sentinel":
                return f"; {place} is not a sentinel", "name sentinels with --redis"
        why = next((f"; {place}: {link.why_away}" for place, link in self._links.items() if not link.is_up), "")
        return why, ""

    async def _ask(self, places: list[HostPort], words: list[_Word]) -> HostPort | None:
        """Adds what they say until a majority names a primary: one that is dead is not waited for then.

        The first to answer may know of no others yet, so all that the URL names count.
        """
        waiting = {asyncio.create_task(self._word_of(self._open(place))) for place in places}
        named: HostPort | None = None
        try:
            while waiting and named is None:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                words += [word for one in done if (word := one.result()) is not None]
                named = _named(words, len(self._address.seeds))
        finally:
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return named

    async def _word_of(self, link: RedisLink) -> _Word | None:
        name = self._address.primary_name
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                await link.wait_up(_ANSWER_S)
                where = await link.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
                rows = [] if where is None else await link.call("SENTINEL", "SENTINELS", name)
                others = {}
                for row in rows:
                    facts = dict(zip(row[::2], row[1::2], strict=True))
                    if run_id := facts.get(b"runid", b"").decode():
                        others[run_id] = HostPort(facts[b"ip"].decode(), int(facts[b"port"]))
                primary = None if where is None else HostPort(where[0].decode(), int(where[1]))
                return _Word(await self._id_of(link), primary, others)
        return None

    @staticmethod
    async def _id_of(link: RedisLink) -> str:
        """Its id among the other sentinels: not always the run id of its process."""
        try:
            return str((await link.call("SENTINEL", "MYID")).decode())
        except StoreError:
            return link.server.get("run_id", "")

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._switched.wait()
            self._switched.clear()
            try:
                self._replaced(await self.primary())
                await self._leave_gone()
            except StoreAway as error:
                log.debug("the sentinels do not name a primary", extra={"why": error.why})
            except Exception:
                log.exception("following the sentinels failed")


def _heard(words: list[_Word]) -> set[str]:
    return {word.sentinel for word in words}


def _known(words: list[_Word]) -> set[str]:
    return _heard(words) | {other for word in words for other in word.others}


def _named(words: list[_Word], least: int = 1) -> HostPort | None:
    """The primary that a majority names: of those that are known, and of so many at least."""
    votes = Counter({word.sentinel: word.primary for word in words}.values())
    total = max(len(_known(words)), least)
    return next((place for place, count in votes.items() if place is not None and count * 2 > total), None)

"""The replicas of one server: how many are in sync, and whether enough have the latest writes.

WAIT reports on the last write of its own connection; without one it reports success even while a replica hangs. So a
small write precedes it. Everything behind a WAIT on its connection waits too, so WAIT has its own links, one per number
of replicas waited for (docs/decisions/030).

One WAIT serves all requests made before it was sent. It is valid only for the server that took the writes: if another
one answers by now, or the links end at different servers, nothing is confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from headrace.store.redis.errors import StoreAway, StoreError
from headrace.store.redis.link import Argument, RedisLink, parse_info
from headrace.store.shared_work import retrieve
from headrace.wire.errors import ErrorCode

_LAG_MOST_S = 10
"""A replica that was not heard of for longer does not count: the default of Redis's own min-replicas-max-lag."""
_LINK_PATIENCE_S = 1.0
_MARGIN_MS = 2_000
"""Extra time for a server's answer beyond the timeout of a WAIT."""
_PIECE_S = 0.2
"""Duration of one WAIT. Replicas are asked when one begins, so a later replica would only be noticed by chance. Each
piece is twice as long as the last: up to Redis 7.0 each also waits for what was written meanwhile."""
_TOUCHED_FOR_MS = 3_600_000
_TOUCH_ANEW_S = 1_800.0
_TOUCHED_MOST = 1_000
_LEFT = "the server was left"


class NotEnoughReplicas(StoreError):
    """The server has too few replicas for a write, which was not made."""

    def __init__(self, wanted: int, found: int) -> None:
        super().__init__(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"min.insync.replicas asks for {wanted + 1} copies; the server has {found} replica(s) in sync.",
        )


class _Asked(NamedTuple):
    key: str
    deadline: float
    answer: asyncio.Future[bool]


class Replicas:
    """The replicas of one server."""

    def __init__(self, link: RedisLink, new_link: Callable[[str, int], RedisLink], timeout_ms: int) -> None:
        self._link = link
        self._new_link = new_link
        self.timeout_s = timeout_ms / 1000
        """How long they may take to have a write."""
        self.most_seen = 0
        self._known = 0
        self._known_of = ""
        """The run of the server that it is known of; empty: of none."""
        self._looking: asyncio.Task[int] | None = None
        self._waits: dict[int, _Waits] = {}

    @property
    def links(self) -> list[RedisLink]:
        """The connections of WAIT."""
        return [waits.link for waits in self._waits.values()]

    # -- how many there are -------------------------------------------------------------------------------------

    async def check(self, number: int) -> None:
        """Raises NotEnoughReplicas if it is known beforehand that a write will not be on so many."""
        if self._known >= number and self._known_of == self._link.identity:
            return
        if (found := await self.look()) < number:
            raise NotEnoughReplicas(number, found)

    async def look(self) -> int:
        """How many are in step; those who ask at once share a question."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(
                self._look(), name=f"replicas of {self._link.address}"
            )
            self._looking.add_done_callback(retrieve)
        looking = self._looking
        try:
            return await asyncio.shield(looking)
        except asyncio.CancelledError:
            if looking.cancelled() and not _is_cancelled():
                raise StoreAway(_LEFT) from None  # the store goes on without this server, and so does who asks
            raise

    async def _look(self) -> int:
        self._link_is_up()
        identity = self._link.identity
        facts = parse_info(await self._link.call("INFO", "replication"))
        self._check_history(identity, facts)
        self._known, self._known_of = count_in_step(facts), identity
        self.most_seen = max(self.most_seen, self._known)
        return self._known

    def _check_history(self, identity: str, facts: dict[str, str]) -> None:
        """A server takes another replication id while it runs, with its first replica for one. Whoever connects later
        knows it by that one: then all links, and all nodes, have to."""
        if identity == self._link.identity and facts.get("master_replid") != self._link.server.get("master_replid"):
            self._link.drop("its replication id changed")
            raise StoreAway("its replication id changed")

    def note_greeting(self) -> None:
        """Takes the replica count from the server's greeting."""
        self.most_seen = max(self.most_seen, count_in_step(self._link.server))

    def doubt(self) -> None:
        """They did not have a write in time: who asks next looks again."""
        self._known_of = ""

    # -- what they have -----------------------------------------------------------------------------------------

    async def have(self, key: str, number: int) -> bool:
        """Whether so many have everything that the server acknowledged before this call, in time.

        `key` is one of the server's own, for the write before the WAIT. StoreError if it cannot be told.
        """
        await self.check(number)
        waits = self._waits.get(number)
        if waits is None:
            timeout_ms = round(self.timeout_s * 1000) + _MARGIN_MS
            link = self._new_link(f"replicas-{number}", timeout_ms)
            link.start_soon()
            waits = self._waits[number] = _Waits(link, number)
        loop = asyncio.get_running_loop()
        asked = _Asked(key, loop.time() + self.timeout_s, loop.create_future())
        waits.add(asked, self._link_is_up())
        try:
            is_there = await asked.answer
        except StoreAway:
            await self.look()  # if it is our own link that knows the server by an older id, it connects again
            raise
        if not is_there:
            self.doubt()
        return is_there

    def _link_is_up(self) -> str:
        """The server's identity."""
        if not self._link.is_up:
            raise StoreAway
        return self._link.identity

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for waits in self._waits.values():
            await waits.close()


class _Waits:
    """One WAIT after the other, each for all who asked meanwhile."""

    def __init__(self, link: RedisLink, number: int) -> None:
        self.link = link
        self._number = number
        self._identity = ""
        self._asked: list[_Asked] = []
        self._task: asyncio.Task[None] | None = None
        self._touched: dict[str, float] = {}

    def add(self, asked: _Asked, identity: str) -> None:
        if identity != self._identity:
            self._fail(self._asked, StoreAway("another server answers"))
            self._asked, self._identity = [], identity
            if self.link.identity != identity:
                self.link.drop("the server was replaced")  # what is under way there would be waited for
        self._asked.append(asked)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"{self.link.name}")

    async def _run(self) -> None:
        while self._asked:
            asked, identity, self._asked = self._asked, self._identity, []
            try:
                is_there = await self._wait(asked, identity)
            except StoreError as error:
                self._fail(asked, error)
            except BaseException:
                # Those who asked meanwhile, too: nobody else would tell them.
                self._fail([*asked, *self._asked], StoreAway(_LEFT))
                self._asked = []
                raise
            else:
                for one in asked:
                    if not one.answer.done():
                        one.answer.set_result(is_there)

    async def _wait(self, asked: list[_Asked], identity: str) -> bool:
        link, key = self.link, asked[0].key
        await link.wait_up(_LINK_PATIENCE_S)
        if link.identity != identity:
            link.drop("the server was replaced")
            raise StoreAway("the server was replaced")
        now = asyncio.get_running_loop().time
        deadline = max(one.deadline for one in asked)
        touch = link.send(*self._touch(key))
        piece_s = _PIECE_S
        while True:
            left_s = max(deadline - now(), 0)
            timeout_ms = max(1, round(min(piece_s, left_s) * 1000))
            reply = link.send("WAIT", self._number, timeout_ms)
            reply.add_done_callback(retrieve)  # if the write before it failed, nobody awaits it
            if not await touch:
                self._touched.pop(key, None)  # somebody removed it: nothing was written
                raise StoreAway("a key was removed by hand")
            if int(await reply) >= self._number or left_s <= piece_s:
                return int(reply.result()) >= self._number
            piece_s *= 2

    def _touch(self, key: str) -> tuple[Argument, ...]:
        """A write without effect: extending a key's expiry works even when Redis is full."""
        now = asyncio.get_running_loop().time()
        if now - self._touched.get(key, -_TOUCH_ANEW_S) < _TOUCH_ANEW_S:
            return "PEXPIRE", key, _TOUCHED_FOR_MS
        if len(self._touched) >= _TOUCHED_MOST:
            self._touched.clear()
        self._touched[key] = now
        return "SET", key, "", "PX", _TOUCHED_FOR_MS

    @staticmethod
    def _fail(asked: list[_Asked], error: StoreError) -> None:
        for one in asked:
            if not one.answer.done():
                one.answer.set_exception(error)
                one.answer.exception()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail(self._asked, StoreAway(_LEFT))  # a task that was cancelled before it began told nobody
        self._asked = []
        await self.link.close()


def _is_cancelled() -> bool:
    """Whether it is the running task itself that has to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def count_in_step(facts: dict[str, str]) -> int:
    """The replicas of INFO that are attached and were heard of lately."""
    found = 0
    for at in range(int(facts.get("connected_slaves", 0))):
        row = dict(part.split("=", 1) for part in facts.get(f"slave{at}", "").split(",") if "=" in part)
        if row.get("state") == "online" and int(row.get("lag", 0)) <= _LAG_MOST_S:
            found += 1
    return found

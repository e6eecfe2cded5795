"""A route to the server that currently has a slot; all commands of partitions, groups and the rest go through one.

A slot is one of the 16384 parts of a cluster's keys; a single server has one slot for everything. Slots move between
servers, so users of the store hold a route, which always ends at the slot's current server, and not a link.
`generation` and `timeline` count changes of both server and slot: a moved slot is a new timeline (docs/decisions/023).

`send`, `send_chunks` and `send_then` send once: a redirected append was not applied, and may only be retried after its
log has been read at its new place. After a failover to a lagging replica, an append that simply follows would be
accepted after a hole. `call`, `pipeline` and `transaction` follow a limited number of redirects.

While a slot is moved key by key, a command for a key that has gone already is sent on, and only that one (ASK). The
slot's server stays the one before, so replicas of that one say nothing about it: `asked` counts such commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.store.redis.errors import RedisError, StoreAway
from headrace.store.redis.link import Argument, RedisLink
from headrace.store.redis.wire import Then
from headrace.wire.schema import Buffer

if TYPE_CHECKING:
    from headrace.store.end_of_turn import EndOfTurn
    from headrace.store.redis.address import Address
    from headrace.store.redis.shard import Shard

_REDIRECTS_MAX = 5
_REDIRECT_PATIENCE_S = 1.0
"""How long a server that we are sent to may take to answer its first greeting."""
_TRY_AGAIN_S = 0.05
_FOLLOW_S = 0.05
"""So often, whoever waits for a slot's server looks whether the slot has another one."""
_A_MOVE = 1 << 32
"""Added for each move of the slot: more than a link ever counts."""

Redirected = Callable[[RedisError, "RedisLink"], "Shard"]
"""Told of a redirect and the link that it came by: the server that it names."""


class Route:
    """One of the two ways to a slot's server."""

    def __init__(self, shard: Shard, of_shard: Callable[[Shard], RedisLink], redirected: Redirected) -> None:
        self._of_shard = of_shard
        self.link = of_shard(shard)
        """To the server that has the slot now."""
        self.moves = 0
        """Part of `generation` and `timeline`, for moves of the slot."""
        self.asked = 0
        """How often a command was sent on to the server that the slot is moving to (ASK)."""
        self._redirected = redirected

    def lead_to(self, shard: Shard) -> None:
        """The slot moved."""
        self.link = self._of_shard(shard)
        self.moves += _A_MOVE

    # -- what is known of the server ----------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self.link.is_up

    @property
    def why_away(self) -> str:
        return self.link.why_away

    @property
    def generation(self) -> int:
        return self.link.generation + self.moves

    @property
    def timeline(self) -> int:
        return self.link.timeline + self.moves

    @property
    def identity(self) -> str:
        return self.link.identity

    @property
    def server(self) -> dict[str, str]:
        return self.link.server

    @property
    def address(self) -> Address:
        return self.link.address

    async def wait_up(self, timeout_s: float) -> None:
        """Returns once there is a connection to the slot's server: after a failover that is another one."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + timeout_s
        while True:
            link = self.link
            try:
                await link.wait_up(min(_FOLLOW_S, max(until_s - now_s(), 0)))
                return
            except StoreAway:
                if link is self.link and now_s() >= until_s:
                    raise

    def drop(self, why: str) -> None:
        self.link.drop(why)

    # -- sent once ----------------------------------------------------------------------------------------------

    def send(self, *arguments: Argument) -> asyncio.Future[Any]:
        return self.link.send(*arguments)

    def send_chunks(self, chunks: list[Buffer]) -> asyncio.Future[Any]:
        return self.link.send_chunks(chunks)

    def send_then(self, chunks: list[Buffer], then: Then) -> None:
        """The same, and `then` is called with the reply in the turn in which it arrives."""
        link = self.link
        if not link.is_up or link.wire is None:
            raise StoreAway(link.why_away)
        link.wire.send_then(chunks, then)  # not through the link: every append comes this way

    def hold_back(self, end_of_turn: EndOfTurn) -> None:
        """Called at the end of a turn: what all partitions of the server send then leaves in one write."""
        wire = self.link.wire
        if wire is not None and wire.hold_back():
            end_of_turn.add_last(wire.let_go)

    def post(self, *arguments: Argument) -> None:
        """Sends a command that may be lost without harm."""
        self.link.post(*arguments)

    # -- following the slot -------------------------------------------------------------------------------------

    async def call(self, *arguments: Argument) -> Any:
        """Sends a command and waits for its reply."""
        link = self.link
        try:
            return await link.send(*arguments)
        except RedisError as error:
            if not _is_elsewhere(error):
                raise
            return await self._follow(error, link, arguments)

    async def pipeline(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Sends commands in one go; the first failure is raised once all have been answered."""
        link = self.link
        replies: list[Any] = await asyncio.gather(*(link.send(*one) for one in commands), return_exceptions=True)
        for at, reply in enumerate(replies):
            if isinstance(reply, RedisError) and _is_elsewhere(reply):
                replies[at] = await self._follow(reply, link, commands[at])
            elif isinstance(reply, BaseException):
                raise reply
        return replies

    async def transaction(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Runs commands as one atomic write (MULTI); redone whole where the slot has moved."""
        for _ in range(_REDIRECTS_MAX):
            link = self.link
            try:
                return await link.transaction(*commands)
            except RedisError as error:
                if error.kind != "MOVED":  # half a slot cannot be changed at once: ASK and TRYAGAIN are for later
                    raise
                await self._redirected(error, link).link.wait_up(_REDIRECT_PATIENCE_S)
        raise StoreAway("the slot keeps moving")

    async def _follow(self, error: RedisError, link: RedisLink, arguments: tuple[Argument, ...]) -> Any:
        for _ in range(_REDIRECTS_MAX):
            if error.kind == "TRYAGAIN":
                await asyncio.sleep(_TRY_AGAIN_S)
            else:
                link = self._of_shard(self._redirected(error, link))
                await link.wait_up(_REDIRECT_PATIENCE_S)
            if error.kind == "ASK":
                self.asked += 1
                link.send("ASKING").add_done_callback(lambda reply: reply.exception())
            try:
                return await link.send(*arguments)
            except RedisError as again:
                if not _is_elsewhere(again):
                    raise
                error = again
        raise error


def _is_elsewhere(error: RedisError) -> bool:
    return error.is_redirect or error.kind == "TRYAGAIN"

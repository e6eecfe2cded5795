"""Leaving a thing to its next owner.

A server that takes over may lack what this node acknowledged, and the next owner may never have seen that: it owned the
thing before, and the store that went back names it. So whoever leaves a thing then first writes back what the server
lost, unless somebody took the thing there already.

Not a node that was away: whoever owned the thing meanwhile knows more. It may own it still, or have taken it on a
server that had forgotten us.

Rows are another matter: they count one by one, and of two values the one that was acknowledged later. So a later one is
put back, whoever owns the thing by now. So is one that is not there at all, if the server has lost everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.owned import stored
from headrace.store.cluster.owned.things import OwnershipLost
from headrace.store.confidence import Level
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.owned.runtime import Runtime
    from headrace.broker.owned.thing import Thing

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 5.0
"""A failover takes less."""
_POLL_S: Final = 0.01


def is_astray(thing: Thing[Any]) -> bool:
    """Whether the server is away, or another one answers since the last look."""
    is_same = thing.link.is_up and thing.confidence.level(thing.outlook.view) > Level.ASTRAY
    return bool(thing.owner) and not (thing.is_gone or is_same)


async def leave(thing: Thing[Any], runtime: Runtime[Any]) -> None:
    """Lets it go, with all that is known of it in the store if that is possible."""
    seen = thing.confidence.seen
    was_away = seen is not None and thing.was_away_since(seen.term)
    try:
        if is_astray(thing):
            await thing.link.wait_up(_PATIENCE_S)
        if is_astray(thing) and (was_away or not await _settles(thing)):
            await give_up(thing, runtime)
    except KafkaError as error:
        title = thing.kind.title
        log.debug(f"a {title} was left without a look at the store", extra={title: thing.name.id, "why": str(error)})
    if not thing.is_gone:
        hand_over(thing, runtime)


def hand_over(thing: Thing[Any], runtime: Runtime[Any]) -> None:
    """Lets it go as it is stored; it is kept until the next owner has had the time to read it."""
    if thing.owner and not is_astray(thing):
        runtime.just_left.add(thing)
    thing.let_go()


async def _settles(thing: Thing[Any]) -> bool:
    """False if the next owner took it in the middle of that."""
    try:
        await thing.settle()
    except OwnershipLost:
        return False
    return True


async def give_up(thing: Thing[Any], runtime: Runtime[Any]) -> None:
    """Lets a thing go that another process owns by now, or did meanwhile."""
    if is_astray(thing):
        is_emptied = await runtime.is_emptied(thing.name)
        await stored.put_rows_back(thing.store, thing.kind, thing.name, thing.rows, is_emptied=is_emptied)
    thing.let_go()


async def leave_lost(things: Iterable[Thing[Any]], patience_s: float) -> None:
    """Before the node stops: leaves what a server may have lost, and waits for what is being left already."""
    leaving = [thing for thing in things if thing.must_go or is_astray(thing)]
    for thing in leaving:
        if not thing.must_go:
            thing.release()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while leaving:
                await asyncio.sleep(_POLL_S)
                leaving = [thing for thing in leaving if not thing.is_gone]

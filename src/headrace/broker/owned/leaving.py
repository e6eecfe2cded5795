"""Leaving a thing to its next owner.

A server that takes over may lack what this node acknowledged, and the next owner may never have seen that: it owned the
thing before, and the store that went back names it. So whoever leaves a thing then first writes back what the server
lost, unless somebody took the thing there already.

Not a node that was away: whoever owned the thing meanwhile knows more. It may own it still, or have taken it on a
server that had forgotten us.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from headrace.store.confidence import Level
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.owned.thing import Thing

_PATIENCE_S: Final = 5.0
"""A failover takes less."""
_POLL_S: Final = 0.01


def may_be_lost(thing: Thing[Any]) -> bool:
    """Whether the server is away, or another one answers since the last look, and nobody else has owned it since."""
    seen = thing.confidence.seen
    is_same = thing.link.is_up and thing.confidence.level(thing.outlook.view) > Level.ASTRAY
    was_away = seen is not None and thing.was_away_since(seen.term)
    return bool(thing.owner) and not (thing.is_gone or is_same or was_away)


async def leave(thing: Thing[Any]) -> None:
    """Lets it go, with all that is known of it in the store if that is possible."""
    with contextlib.suppress(KafkaError):
        if may_be_lost(thing):
            await thing.link.wait_up(_PATIENCE_S)
        if may_be_lost(thing):
            await thing.settle()
    if not thing.is_gone:
        thing.let_go()


async def leave_lost(things: Iterable[Thing[Any]], patience_s: float) -> None:
    """Before the node stops: leaves what a server may have lost, and waits for what is being left already."""
    leaving = [thing for thing in things if thing.must_go or may_be_lost(thing)]
    for thing in leaving:
        if not thing.must_go:
            thing.release()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while leaving:
                await asyncio.sleep(_POLL_S)
                leaving = [thing for thing in leaving if not thing.is_gone]

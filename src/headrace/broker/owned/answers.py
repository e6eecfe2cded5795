"""Sending the answers of a decision that was adopted: a bounded number in each turn of the event loop.

A rebalance answers all members of a group at once. In portions, the first ones go on while the answers of the others
are packed, and nobody else waits for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

_AT_ONCE: Final = 25


def send(replies: Sequence[tuple[Any, Any]]) -> None:
    """Tells each future its answer, unless it was told or cancelled before."""
    has_more = len(replies) > _AT_ONCE
    for future, answer in replies[:_AT_ONCE] if has_more else replies:
        if not future.done():
            future.set_result(answer)
    if has_more:
        asyncio.get_running_loop().call_soon(send, replies[_AT_ONCE:])

"""Threads for the slow steps of logins: few, with a bounded queue.

A flood of logins delays only those who cause it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 2
_WAITING_MAX = 256


class TooManyLogins(Exception):
    """So many steps wait already that this one is not made.

    The client's connection is closed without an answer: a refusal would tell it that its secret is wrong, and it would
    give up.
    """


class Workers:
    """The threads of a node."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="login")
        self._waiting = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`; TooManyLogins if too many others are waiting."""
        if self._waiting >= _WAITING_MAX:
            raise TooManyLogins("too many logins at once")
        self._waiting += 1
        try:
            return await asyncio.wrap_future(self._threads.submit(work, *args, **kwargs))
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

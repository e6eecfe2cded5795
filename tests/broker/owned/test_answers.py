"""The answers of one decision leave in portions."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.broker.owned.answers import send
from tests.store.produced import until

MANY = 1_000


async def test_many_answers_leave_room_for_others_and_all_arrive() -> None:
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in range(MANY)]
    send([(future, number) for number, future in enumerate(futures)])
    assert futures[0].done()
    assert not futures[-1].done()
    await until(lambda: futures[-1].done())
    assert [future.result() for future in futures] == list(range(MANY))


async def test_who_has_gone_meanwhile_is_passed_over() -> None:
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in range(MANY)]
    send([(future, "moved") for future in futures])
    futures[-2].cancel()
    await until(lambda: futures[-1].done())
    assert futures[-2].cancelled()
    assert all(future.result() == "moved" for future in futures if future is not futures[-2])

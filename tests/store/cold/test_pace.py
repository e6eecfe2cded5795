"""The rate of cold records: bounded while a node serves others, without effect otherwise."""

from __future__ import annotations

import asyncio
import time

import pytest

from headrace.store.cold.pace import SLICE_BYTES, ColdPace

MB = 1 << 20
RATE = 32 * MB


class Node:
    """Time, and the requests of others."""

    def __init__(self, *, others_per_s: int) -> None:
        self.now_s = 0.0
        self.others_per_s = others_per_s
        self._others = 0.0

    def pace(self, rate: int = RATE) -> ColdPace:
        pace = ColdPace(rate, lambda: self.now_s)
        pace.others = lambda: int(self._others)
        return pace

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self._others += self.others_per_s * seconds

    async def read(self, pace: ColdPace, wanted_bytes: int) -> int:
        """What is granted, once there is no need to wait."""
        while pause_s := pace.pause_s():
            self.pass_time(pause_s)
        granted = await pace.turn(wanted_bytes)
        pace.came(granted, granted)
        return granted

    async def read_for(self, pace: ColdPace, seconds: float, wanted_bytes: int = MB) -> int:
        until_s, read_bytes = self.now_s + seconds, 0
        while self.now_s < until_s:
            read_bytes += await self.read(pace, wanted_bytes)
            self.pass_time(0.001)
        return read_bytes


async def test_next_to_other_clients_cold_records_come_at_the_rate() -> None:
    node = Node(others_per_s=1000)
    pace = node.pace()
    await node.read_for(pace, 1)  # until it has looked
    read_bytes = await node.read_for(pace, 10)
    assert read_bytes == pytest.approx(10 * RATE, rel=0.05)


async def test_without_other_clients_they_are_never_held_up() -> None:
    node = Node(others_per_s=20)
    pace = node.pace()
    assert await node.read_for(pace, 10) >= 9_000 * MB


async def test_without_a_limit_they_are_never_held_up() -> None:
    node = Node(others_per_s=1000)
    pace = node.pace(0)
    assert await node.read_for(pace, 10, 8 * MB) >= 9_000 * 8 * MB


async def test_a_read_is_small_only_next_to_others() -> None:
    node = Node(others_per_s=1000)
    pace = node.pace()
    assert await node.read(pace, 8 * MB) == 8 * MB
    node.pass_time(1)
    assert await node.read(pace, 8 * MB) == SLICE_BYTES
    node.others_per_s = 0
    node.pass_time(1)
    assert await node.read(pace, 8 * MB) == 8 * MB


async def test_what_came_before_the_others_did_is_not_paid_back() -> None:
    node = Node(others_per_s=0)
    pace = node.pace()
    for _ in range(100):
        await node.read(pace, 8 * MB)
    node.others_per_s = 1000
    node.pass_time(0.2)
    assert pace.pause_s() == 0


async def test_a_read_that_brought_less_leaves_the_rest_to_the_next() -> None:
    node = Node(others_per_s=1000)
    pace = node.pace()
    node.pass_time(1)
    for _ in range(100):
        granted = await pace.turn(MB)
        pace.came(granted, 0)
    assert pace.pause_s() == 0


async def test_reads_wait_in_order_and_a_cancelled_one_holds_up_nobody() -> None:
    pace = ColdPace(RATE, time.monotonic)
    requests = iter(range(0, 1 << 40, 1 << 20))
    pace.others = lambda: next(requests)
    order: list[int] = []

    async def read(number: int) -> None:
        await pace.turn(MB)
        order.append(number)

    tasks = [asyncio.create_task(read(number)) for number in range(10)]
    tasks[5].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 2, 3, 4, 6, 7, 8, 9]

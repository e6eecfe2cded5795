"""The timer of a connection's waits, on a loop whose time stands still until it is moved."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Any, cast

from headrace.broker.network.wait_timer import WaitTimer


class FakeTimer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[FakeTimer] = []
        self.made = 0

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], Any]) -> TimerHandle:
        self.made += 1
        timer = FakeTimer(self.now + delay, callback)
        self.timers.append(timer)
        return cast("TimerHandle", timer)

    def move_to(self, now: float) -> None:
        """Runs what is due until then, each at its time."""
        while due := [one for one in self.timers if one.when <= now and not one.is_cancelled]:
            first = min(due, key=lambda one: one.when)
            self.timers.remove(first)
            self.now = max(self.now, first.when)
            first.callback()
        self.now = now


def _timer() -> tuple[WaitTimer, FakeLoop, list[float]]:
    loop = FakeLoop()
    return WaitTimer(cast("AbstractEventLoop", loop)), loop, []


def test_it_rings_when_a_wait_is_over() -> None:
    timer, loop, rung = _timer()
    timer.set(100.5, lambda: rung.append(loop.now))
    loop.move_to(100.4)
    assert rung == []
    loop.move_to(101)
    assert rung == [100.5]


def test_a_wait_that_ended_is_not_rung_for() -> None:
    timer, loop, rung = _timer()
    timer.set(100.5, lambda: rung.append(loop.now))
    timer.clear()
    loop.move_to(200)
    assert rung == []


def test_many_short_waits_share_a_timer_and_the_last_one_rings_at_its_time() -> None:
    timer, loop, rung = _timer()
    for at in range(400):
        loop.move_to(100 + at / 1000)
        timer.set(loop.now + 0.5, lambda: rung.append(loop.now))
        timer.clear()
    assert loop.made == 1
    timer.set(100.9, lambda: rung.append(loop.now))
    loop.move_to(102)
    assert rung == [100.9]
    assert loop.made == 2


def test_a_shorter_wait_does_not_wait_for_the_timer_of_a_longer_one() -> None:
    timer, loop, rung = _timer()
    timer.set(130, lambda: rung.append(loop.now))
    timer.set(100.1, lambda: rung.append(loop.now))
    loop.move_to(200)
    assert rung == [100.1]


def test_nothing_rings_after_it_was_closed() -> None:
    timer, loop, rung = _timer()
    timer.set(100.5, lambda: rung.append(loop.now))
    timer.close()
    loop.move_to(200)
    assert rung == []
    assert not [one for one in loop.timers if not one.is_cancelled]

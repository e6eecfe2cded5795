"""The watchdog tells what held the event loop up, and is quiet otherwise."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from headrace.broker.network.watchdog import Watchdog
from headrace.wire.skim import Steps, finish
from tests.store.produced import until

LONG_S = 0.3


def _work_until(deadline_s: float) -> Steps[None]:
    """Holds the loop up from within a function of the package."""
    while time.monotonic() < deadline_s:
        yield


def _stand_still() -> None:
    """As if the process had been stopped."""
    time.sleep(LONG_S)


async def test_a_long_turn_is_told_with_what_ran(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog()
    watchdog.start()
    try:
        with caplog.at_level(logging.WARNING, "headrace.broker.network.watchdog"):
            while not any("skim:finish" in getattr(line, "running", "") for line in caplog.records):
                finish(_work_until(time.monotonic() + LONG_S))
                await asyncio.sleep(0.1)
    finally:
        watchdog.stop()
    told = caplog.records[-1]
    assert told.message == "the event loop was blocked"
    assert vars(told)["held_ms"] >= LONG_S * 1000 / 2
    assert watchdog.long_turns >= 1


async def test_a_pause_in_which_the_broker_did_nothing_is_counted_apart() -> None:
    watchdog = Watchdog()
    watchdog.start()
    try:
        while not watchdog.pauses:
            _stand_still()
            await asyncio.sleep(0.1)
    finally:
        watchdog.stop()


async def test_pauses_of_a_busy_machine_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog()
    watchdog.start()
    try:
        with caplog.at_level(logging.INFO, "headrace.broker.network.watchdog"):
            while watchdog.pauses < 3:
                _stand_still()
                await asyncio.sleep(0.1)
    finally:
        watchdog.stop()
    assert [vars(line)["times"] for line in caplog.records if "was not scheduled" in line.message] == [1]


async def test_it_rests_while_no_client_asks_and_a_request_wakes_it(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog()
    watchdog.start()
    try:
        with caplog.at_level(logging.WARNING, "headrace.broker.network.watchdog"):
            while not any("skim:finish" in getattr(line, "running", "") for line in caplog.records):
                await until(lambda: watchdog.is_resting)
                watchdog.stir()
                finish(_work_until(time.monotonic() + LONG_S))
                await asyncio.sleep(0.1)
    finally:
        watchdog.stop()

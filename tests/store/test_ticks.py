"""Light background work wakes up together, and none of it too often or too rarely."""

from __future__ import annotations

import time

import pytest

from headrace.ticks import until_tick


@pytest.mark.parametrize("every_s", [0.5, 1.0, 2.0])
def test_a_tick_is_never_too_near_nor_too_far(every_s: float) -> None:
    pauses = [until_tick(every_s) for _ in range(1000)]
    assert all(every_s / 2 - 1e-6 <= pause <= every_s * 1.5 + 1e-6 for pause in pauses)


def test_who_sleeps_for_as_long_wakes_at_the_same_moments() -> None:
    begin = time.monotonic()
    due = [time.monotonic() + until_tick(1.0) for _ in range(2)]
    passed = time.monotonic() - begin
    apart = abs(due[1] - due[0])
    assert min(apart, abs(1.0 - apart)) <= passed

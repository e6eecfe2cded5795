"""The demo's numbers are worth something only if a tally tells every difference."""

from __future__ import annotations

from collections.abc import Iterable

from demo.orders import HOUR_MS, HOURS, Tally, a_day
from demo.stage import Line
from demo.story import Outcome

NOW_MS = 1_790_000_000_000


def test_a_day_has_exactly_the_orders_asked_for_in_the_order_of_time() -> None:
    hours = list(a_day(1000, NOW_MS))
    times = [timestamp_ms for hour in hours for _, _, timestamp_ms in hour]
    assert len(times) == 1000
    assert times == sorted(times)
    assert len(hours) == HOURS
    assert NOW_MS - (HOURS + 1) * HOUR_MS < times[0] < times[-1] < NOW_MS


def test_the_orders_are_the_same_in_every_run() -> None:
    assert list(a_day(200, NOW_MS)) == list(a_day(200, NOW_MS))


def test_an_order_less_an_order_twice_and_another_hour_are_all_told_from_the_whole() -> None:
    orders = [order for hour in a_day(100, NOW_MS) for order in hour]
    key, value, timestamp_ms = orders[0]
    whole = _tally(orders)
    assert _tally(orders[1:]) != whole
    assert _tally([*orders, orders[0]]) != whole
    assert _tally([(key, value, timestamp_ms - HOUR_MS), *orders[1:]]) != whole
    assert _tally(reversed(orders)) == whole


def test_one_line_that_does_not_agree_is_enough() -> None:
    good, bad = Line("a", 1, 1, agrees=True), Line("b", 2, 1, agrees=False)
    assert Outcome([good], {}, {}).agrees
    assert not Outcome([good, bad], {}, {}).agrees


def _tally(orders: Iterable[tuple[bytes, bytes, int]]) -> Tally:
    tally = Tally()
    for _, value, timestamp_ms in orders:
        tally.add(value, timestamp_ms)
    return tally

"""Places before the login: bounded, and nobody is kept out by a crowd, from one address or from many."""

from __future__ import annotations

import math

from headrace.broker.network.places import PATIENCE_S, Places


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Somebody:
    def __init__(self, places: Places, clock: Clock, host: str) -> None:
        self.host = host
        self.since_s = clock.now_s
        self.is_away = False
        self._places = places

    def turn_away(self) -> None:
        self.is_away = True
        self._places.leave(self)


class Door:
    """Four places in all, three for one address."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.places = Places(4, 3, self.clock)

    def come(self, host: str) -> Somebody | None:
        newcomer = Somebody(self.places, self.clock, host)
        return newcomer if self.places.take(newcomer) else None

    def let_in(self, host: str) -> Somebody:
        newcomer = self.come(host)
        assert newcomer is not None
        return newcomer


def test_one_address_has_its_share_until_somebody_of_it_had_a_second() -> None:
    door = Door()
    crowd = [door.let_in("a") for _ in range(3)]
    assert door.come("a") is None
    door.clock.now_s += PATIENCE_S
    assert door.come("a") is not None
    assert [one.is_away for one in crowd] == [True, False, False]
    assert len(door.places) == 3


def test_an_address_with_many_gives_a_place_to_one_with_few() -> None:
    door = Door()
    crowd = [door.let_in("a") for _ in range(3)]
    door.let_in("b")
    assert door.come("c") is not None, "a has three and nobody of it had a second"
    assert [one.is_away for one in crowd] == [True, False, False]
    assert len(door.places) == 4


def test_equals_take_nothing_from_each_other_before_their_second_is_over() -> None:
    door = Door()
    for host in "aabb":
        door.let_in(host)
    assert door.come("c") is not None
    assert door.come("d") is not None
    assert door.come("e") is None, "each has one now"
    door.clock.now_s += PATIENCE_S
    assert door.come("e") is not None


def test_who_waits_for_us_does_not_make_room() -> None:
    door = Door()
    crowd = [door.let_in("a") for _ in range(3)]
    crowd[0].since_s = math.inf
    door.clock.now_s += PATIENCE_S
    assert door.come("a") is not None
    assert [one.is_away for one in crowd] == [False, True, False]


def test_who_left_twice_frees_one_place() -> None:
    door = Door()
    one = door.let_in("a")
    door.let_in("a")
    door.places.leave(one)
    door.places.leave(one)
    assert len(door.places) == 1

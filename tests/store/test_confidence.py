"""The confidence machine by itself: which sign makes what of knowledge, and which looks count."""

from itertools import product

import pytest

from headrace.store.confidence import LEVELS, Confidence, Level, Outlook, View

NOW = View(timeline=3, generation=5, term=7)


def sure() -> Confidence:
    confidence = Confidence()
    assert confidence.end(confidence.begin(NOW))
    return confidence


class Outside:
    timeline = generation = term = 1


def test_the_view_is_the_same_while_nothing_changes() -> None:
    outside = Outside()
    outlook = Outlook(outside, outside)
    before = outlook.view
    assert outlook.view is before
    outside.generation, outside.timeline = 2, 2
    assert outlook.view == View(2, 2, 1)
    outside.term = 2
    assert outlook.view == View(2, 2, 2)


def test_nothing_is_known_before_the_first_look() -> None:
    assert Confidence().level(NOW) is Level.UNREAD


def test_a_look_makes_sure_of_the_moment_it_began_at() -> None:
    assert sure().level(NOW) is Level.SURE


@pytest.mark.parametrize(("sign", "level"), LEVELS)
def test_each_sign_has_its_level(sign: str, level: Level) -> None:
    later = NOW._replace(**{sign: getattr(NOW, sign) + 1})
    assert sure().level(later) is level


@pytest.mark.parametrize("signs", list(product((0, 1), repeat=3)))
def test_of_several_signs_the_worst_counts(signs: tuple[int, int, int]) -> None:
    later = View(*(known + sign for known, sign in zip(NOW, signs, strict=True)))
    worst = min((level for (_, level), sign in zip(LEVELS, signs, strict=True) if sign), default=Level.SURE)
    assert sure().level(later) is worst


def test_a_sign_during_a_look_is_not_lost() -> None:
    confidence = Confidence()
    look = confidence.begin(NOW)
    confidence.end(look)
    assert confidence.level(NOW._replace(generation=6)) is Level.STALE


def test_a_doubt_during_a_look_makes_it_not_count() -> None:
    confidence = sure()
    look = confidence.begin(NOW)
    confidence.doubt()
    assert not confidence.end(look)
    assert confidence.level(NOW) is Level.STALE


def test_a_doubt_during_the_first_look_leaves_catching_up_to_do_not_loading() -> None:
    confidence = Confidence()
    look = confidence.begin(NOW)
    confidence.doubt()
    confidence.end(look)
    assert confidence.level(NOW) is Level.STALE


def test_a_doubt_asks_for_a_look_and_a_look_settles_it() -> None:
    confidence = sure()
    confidence.doubt()
    assert confidence.level(NOW) is Level.STALE
    assert confidence.end(confidence.begin(NOW))
    assert confidence.level(NOW) is Level.SURE


def test_who_lost_track_compares_until_a_whole_look_has_ended() -> None:
    confidence = sure()
    look = confidence.begin(NOW)
    confidence.lose_track()
    assert confidence.level(NOW) is Level.ASTRAY
    confidence.loaded(look)
    assert not confidence.end(look)
    assert confidence.level(NOW) is Level.ASTRAY
    assert confidence.end(confidence.begin(NOW))
    assert confidence.level(NOW) is Level.SURE


def test_who_finds_track_again_within_a_look_is_as_sure_as_before() -> None:
    confidence = sure()
    look = confidence.begin(NOW)
    confidence.find_track(confidence.lose_track())
    assert confidence.level(NOW) is Level.SURE
    assert confidence.end(look)


def test_a_look_that_ends_early_after_loading_leaves_catching_up() -> None:
    confidence = Confidence()
    confidence.loaded(confidence.begin(NOW))
    assert confidence.level(NOW) is Level.STALE


def test_a_look_that_loads_anew_counts() -> None:
    confidence = sure()
    look = confidence.begin(NOW)
    confidence.forget()
    assert confidence.level(NOW) is Level.UNREAD
    assert confidence.end(look)
    assert confidence.level(NOW) is Level.SURE


def test_what_is_forgotten_is_loaded_again() -> None:
    confidence = sure()
    confidence.forget()
    assert confidence.level(NOW) is Level.UNREAD

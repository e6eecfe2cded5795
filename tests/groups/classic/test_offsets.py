"""Which offsets may go, and when a group is forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.classic.offsets import expired_topics
from headrace.groups.classic.state import Protocol
from headrace.groups.classic.subscription import parse_topics
from headrace.groups.classic.table import ClassicState
from headrace.groups.settings import DAY_MS, GroupSettings
from tests.groups.classic.driver import Driver, group_in, stable_group

WEEK_MS = 7 * DAY_MS
SETTINGS = GroupSettings()


def subscription(*topics: str, version: int = 0, tail: bytes = b"\xff\xff\xff\xff") -> bytes:
    names = b"".join(len(t.encode()).to_bytes(2, "big") + t.encode() for t in topics)
    return version.to_bytes(2, "big") + len(topics).to_bytes(4, "big") + names + tail


class TestSubscription:
    @pytest.mark.parametrize("version", range(4))
    @pytest.mark.parametrize("tail", [b"", b"\xff\xff\xff\xff", b"of a later version"])
    def test_topics_come_first_in_every_version(self, version: int, tail: bytes) -> None:
        raw = subscription("a", "ünïcode", version=version, tail=tail)
        assert parse_topics(raw) == frozenset({"a", "ünïcode"})

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"\x00",
            b"\xff\xff\x00\x00\x00\x00",
            b"\x00\x00\xff\xff\xff\xff",
            b"\x00\x00\x7f\xff\xff\xff",
            subscription("topic", tail=b"")[:-1],
            b"\x00\x00\x00\x00\x00\x01\xff\xff",
            b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
        ],
    )
    def test_bytes_of_another_form_are_unknown(self, raw: bytes) -> None:
        assert parse_topics(raw) is None

    @given(st.binary(max_size=200))
    def test_no_bytes_break_it(self, raw: bytes) -> None:
        topics = parse_topics(raw)
        assert topics is None or sum(len(t.encode()) for t in topics) <= len(raw)


class TestGroupRetention:
    def test_a_group_is_forgotten_a_week_after_it_became_empty(self) -> None:
        driver, (member_id,) = stable_group(1)
        driver.advance(1_000)
        driver.leave_one(member_id)
        driver.advance(WEEK_MS - 1)
        driver.check_retention()
        assert driver.is_in(ClassicState.EMPTY)
        driver.advance(1)
        driver.check_retention()
        assert driver.is_in(ClassicState.DEAD)
        assert driver.stored is None

    def test_a_restart_does_not_start_the_week_anew(self) -> None:
        driver, _ = group_in(ClassicState.EMPTY)
        driver.advance(WEEK_MS - 1)
        driver.restart()
        driver.advance(1)
        driver.check_retention()
        assert driver.is_in(ClassicState.DEAD)

    def test_a_simple_group_is_kept_for_a_week_after_its_last_commit(self) -> None:
        driver = Driver()
        driver.commit()
        driver.advance(DAY_MS)
        last_commit_ms = driver.now_ms
        driver.advance(WEEK_MS - 1)
        driver.check_retention(last_commit_ms)
        assert driver.is_in(ClassicState.EMPTY)
        driver.advance(1)
        driver.check_retention(last_commit_ms)
        assert driver.is_in(ClassicState.DEAD)

    @pytest.mark.parametrize(
        "state",
        [ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE, ClassicState.DEAD],
    )
    def test_only_an_empty_group_is_forgotten(self, state: ClassicState) -> None:
        driver, _ = group_in(state)
        driver.now_ms += 2 * WEEK_MS
        driver.check_retention()
        assert driver.is_in(state)

    def test_not_while_somebody_is_about_to_join(self) -> None:
        driver, _ = group_in(ClassicState.EMPTY)
        driver.advance(WEEK_MS)
        driver.new_member_id()
        driver.check_retention()
        assert driver.is_in(ClassicState.EMPTY)


class TestExpiredTopics:
    def expired(self, driver: Driver, after_ms: int, **commit_age_ms: int) -> set[str]:
        now_ms = driver.now_ms + after_ms
        commits = {topic: now_ms - age_ms for topic, age_ms in commit_age_ms.items()}
        return set(expired_topics(driver.the_group, commits, now_ms, SETTINGS))

    def test_an_empty_group_keeps_all_for_a_week(self) -> None:
        driver, _ = group_in(ClassicState.EMPTY)
        assert self.expired(driver, WEEK_MS - 1, old=2 * WEEK_MS) == set()
        assert self.expired(driver, WEEK_MS, old=2 * WEEK_MS) == {"old"}

    def test_a_position_that_was_reset_meanwhile_is_kept(self) -> None:
        driver, _ = group_in(ClassicState.EMPTY)
        assert self.expired(driver, 2 * WEEK_MS, old=2 * WEEK_MS, reset=DAY_MS) == {"old"}

    def test_a_simple_group_counts_from_each_last_commit(self) -> None:
        driver = Driver()
        driver.commit()
        assert self.expired(driver, WEEK_MS, old=WEEK_MS, new=WEEK_MS - 1) == {"old"}

    def test_a_stable_group_of_consumers_forgets_topics_that_it_no_longer_reads(self) -> None:
        driver, _ = stable_group(protocols=(Protocol("range", subscription("read")),))
        assert self.expired(driver, 0, read=WEEK_MS, other=WEEK_MS, recent=1) == {"other"}

    def test_what_is_not_known_to_be_unread_is_kept(self) -> None:
        unknown, _ = group_in(ClassicState.STABLE)
        assert self.expired(unknown, 0, any=WEEK_MS) == set()
        connect, _ = group_in(ClassicState.STABLE, protocol_type="connect")
        assert self.expired(connect, 0, any=WEEK_MS) == set()
        rebalancing, _ = group_in(
            ClassicState.PREPARING_REBALANCE, protocols=(Protocol("range", subscription("read")),)
        )
        assert self.expired(rebalancing, 0, other=WEEK_MS) == set()


def test_offsets_of_consumers_cannot_be_deleted_before_their_topics_are_known() -> None:
    driver = Driver(GroupSettings(), protocols=(Protocol("range", subscription("read")),))
    driver.join(version=3)
    assert driver.offset_delete("read", "other").subscribed == frozenset({"read", "other"})


def test_an_empty_group_of_consumers_lets_all_offsets_go() -> None:
    driver, _ = group_in(ClassicState.EMPTY, protocols=(Protocol("range", subscription("read")),))
    assert driver.offset_delete("read").subscribed == frozenset()

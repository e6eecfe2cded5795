"""When several things are wrong with a request, the answer is the one that Kafka looks at first."""

import pytest

from headrace.groups.classic.events import LeavingMember
from headrace.groups.classic.state import Protocol
from headrace.groups.classic.table import ClassicState
from headrace.groups.settings import GroupSettings
from headrace.wire.errors import ErrorCode
from tests.groups.classic.driver import NO_DELAY, Driver, group_in, stable_group

OTHER = (Protocol("other", b""),)
FULL = GroupSettings(initial_rebalance_delay_ms=0, max_size=2)


def static_pair() -> tuple[Driver, str, str]:
    """A Stable group of two static members, shop-1 (leading) and shop-2."""
    driver = Driver()
    driver.join(instance_id="shop-1")
    driver.join(instance_id="shop-2")
    first, second = driver.the_group.members
    driver.join(first, instance_id="shop-1")
    driver.sync_all(first)
    return driver, first, second


class TestJoin:
    def test_empty_group_id_before_session_timeout(self) -> None:
        driver = Driver()
        assert driver.joined(driver.join(group_id="", session_timeout_ms=1)).error == 24

    @pytest.mark.parametrize("session_timeout_ms", [0, 5_999, 1_800_001])
    def test_session_timeout_out_of_bounds_before_missing_group(self, session_timeout_ms: int) -> None:
        driver = Driver()
        token = driver.join("stranger", session_timeout_ms=session_timeout_ms)
        assert driver.joined(token).error == 26

    @pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
    def test_session_timeout_at_the_bounds_is_fine(self, session_timeout_ms: int) -> None:
        driver = Driver()
        assert driver.joined(driver.join(session_timeout_ms=session_timeout_ms)).error == 79

    def test_missing_group_before_protocols(self) -> None:
        driver = Driver()
        assert driver.joined(driver.join("stranger", protocols=())).error == 25

    def test_full_before_protocols(self) -> None:
        driver, _ = stable_group(2, FULL)
        assert driver.joined(driver.join(protocols=OTHER)).error == 81

    def test_dead_before_protocols(self) -> None:
        driver, _ = group_in(ClassicState.DEAD)
        assert driver.joined(driver.join(protocols=())).error == 15

    def test_protocols_before_unknown_member(self) -> None:
        driver, _ = group_in(ClassicState.STABLE)
        assert driver.joined(driver.join("stranger", protocols=OTHER)).error == 23

    def test_unknown_instance_before_unknown_member(self) -> None:
        driver, first, _ = static_pair()
        assert driver.joined(driver.join(first, instance_id="shop-9")).error == 25

    def test_fenced_before_unknown_member(self) -> None:
        driver, _, _ = static_pair()
        assert driver.joined(driver.join("stranger", instance_id="shop-1")).error == 82

    @pytest.mark.parametrize(("protocol_type", "protocols"), [("", None), ("consumer", ()), ("connect", OTHER)])
    def test_a_refused_first_join_makes_no_group(
        self, protocol_type: str, protocols: tuple[Protocol, ...] | None
    ) -> None:
        driver = Driver()
        token = driver.join(protocol_type=protocol_type, protocols=protocols)
        if protocol_type == "connect":
            assert driver.joined(token).error == 79
            assert driver.group is not None
        else:
            assert driver.joined(token).error == 23
            assert driver.group is None
            assert driver.stored is None

    def test_another_type_is_inconsistent(self) -> None:
        driver, _ = group_in(ClassicState.STABLE)
        assert driver.joined(driver.join(protocol_type="connect")).error == 23

    def test_a_handed_out_id_cannot_become_static(self) -> None:
        driver, _ = group_in(ClassicState.STABLE)
        member_id = driver.new_member_id()
        assert driver.joined(driver.join(member_id, instance_id="shop-1")).error == 25


class TestSync:
    def test_missing_protocol_fields_before_everything_from_version_5(self) -> None:
        driver = Driver()
        assert driver.synced(driver.sync("stranger", 0, protocol_type=None)).error == 23
        assert driver.synced(driver.sync("stranger", 0, protocol_name=None)).error == 23
        assert driver.synced(driver.sync("stranger", 0, version=4)).error == 25

    def test_empty_group_id(self) -> None:
        driver = Driver()
        assert driver.synced(driver.sync("stranger", 0, group_id="")).error == 24

    def test_member_before_generation(self) -> None:
        driver, _ = group_in(ClassicState.STABLE)
        assert driver.synced(driver.sync("stranger", 99)).error == 25

    def test_fenced_before_generation(self) -> None:
        driver, _, second = static_pair()
        assert driver.synced(driver.sync(second, 99, instance_id="shop-1")).error == 82

    def test_generation_before_protocol(self) -> None:
        driver, follower = group_in(ClassicState.STABLE)
        assert driver.synced(driver.sync(follower, 99, protocol_name="other")).error == 22

    @pytest.mark.parametrize("state", [ClassicState.PREPARING_REBALANCE, ClassicState.STABLE])
    def test_protocol_before_state(self, state: ClassicState) -> None:
        driver, follower = group_in(state)
        assert driver.synced(driver.sync(follower, protocol_name="other")).error == 23
        assert driver.synced(driver.sync(follower, protocol_type="other")).error == 23


class TestHeartbeat:
    def test_empty_group_id(self) -> None:
        assert Driver().heartbeat("stranger", 0, group_id="") == 24

    def test_unknown_instance_then_fenced_then_member_then_generation(self) -> None:
        driver, first, second = static_pair()
        assert driver.heartbeat(first, 99, instance_id="shop-9") == 25
        assert driver.heartbeat(second, 99, instance_id="shop-1") == 82
        assert driver.heartbeat("stranger", 99) == 25
        assert driver.heartbeat(first, 99, instance_id="shop-1") == 22

    def test_generation_before_rebalance_in_progress(self) -> None:
        driver, follower = group_in(ClassicState.PREPARING_REBALANCE)
        assert driver.heartbeat(follower, 99) == 22


class TestCommit:
    def test_unknown_instance_then_fenced_then_member_then_generation(self) -> None:
        driver, first, second = static_pair()
        assert driver.commit(first, 99, instance_id="shop-9") == 25
        assert driver.commit(second, 99, instance_id="shop-1") == 82
        assert driver.commit("stranger", 99) == 25
        assert driver.commit(first, 99, instance_id="shop-1") == 22

    def test_a_member_without_generation(self) -> None:
        driver, follower = group_in(ClassicState.STABLE)
        assert driver.commit(follower, -1) == 22

    def test_generation_before_rebalance_in_progress(self) -> None:
        driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
        assert driver.commit(follower, 99) == 22


class TestLeave:
    def test_empty_group_id(self) -> None:
        driver = Driver(NO_DELAY)
        assert driver.leave(LeavingMember("stranger"), group_id="").error == 24

    def test_unknown_instance_then_fenced(self) -> None:
        driver, first, second = static_pair()
        answer = driver.leave(
            LeavingMember(first, "shop-9"), LeavingMember(second, "shop-1"), LeavingMember("", "shop-9")
        )
        assert [row.error for row in answer.members] == [
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
        assert driver.is_in(ClassicState.STABLE)


def test_offset_delete_of_the_empty_group_id() -> None:
    assert Driver().offset_delete("topic", group_id="").error == 24

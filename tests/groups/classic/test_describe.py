"""What DescribeGroups and ListGroups show."""

import pytest

from headrace.groups.classic.describe import DescribedMember, ListedGroup, describe, is_listed, listed
from headrace.groups.classic.table import ClassicState
from tests.groups.classic.driver import GROUP_ID, Driver, group_in, stable_group


def test_a_stable_group_shows_protocol_metadata_and_assignment() -> None:
    driver, (leader, follower) = stable_group()
    described = describe(driver.group, GROUP_ID, 5)
    assert (described.state, described.protocol_type, described.protocol_name) == (
        "Stable",
        "consumer",
        "range",
    )
    assert (described.generation, described.leader) == (driver.generation, leader)
    assert described.members[1] == DescribedMember(
        member_id=follower,
        instance_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        metadata=b"range-metadata",
        assignment=follower.encode(),
    )


@pytest.mark.parametrize("state", [ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE])
def test_during_a_rebalance_members_show_without_protocol_and_metadata(state: ClassicState) -> None:
    driver, _ = group_in(state)
    described = describe(driver.group, GROUP_ID, 5)
    assert described.protocol_name == ""
    assert [m.metadata for m in described.members] == [b"", b""]


def test_assignments_end_with_their_generation() -> None:
    driver, _ = group_in(ClassicState.COMPLETING_REBALANCE)
    assert [m.assignment for m in describe(driver.group, GROUP_ID, 5).members] == [b"", b""]


def test_assignments_that_ended_do_not_come_back_with_a_restart_or_another_rebalance() -> None:
    driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
    driver.restart()
    assert [m.assignment for m in describe(driver.group, GROUP_ID, 5).members] == [b"", b""]
    driver.leave_one(follower)
    assert driver.is_in(ClassicState.PREPARING_REBALANCE)
    assert [m.assignment for m in describe(driver.group, GROUP_ID, 5).members] == [b""]


def test_a_group_with_members_is_not_empty_since_any_time() -> None:
    driver, _ = group_in(ClassicState.STABLE)
    assert describe(driver.group, GROUP_ID, 5).empty_since_ms is None


def test_an_empty_group_shows_since_when() -> None:
    driver, _ = group_in(ClassicState.EMPTY)
    described = describe(driver.group, GROUP_ID, 5)
    assert (described.members, described.empty_since_ms) == ((), driver.now_ms)
    assert described.protocol_type == "consumer"


def test_a_dead_group_has_no_members() -> None:
    driver, _ = group_in(ClassicState.DEAD)
    assert describe(driver.group, GROUP_ID, 6).members == ()


def test_listed() -> None:
    driver, _ = group_in(ClassicState.STABLE)
    assert listed(driver.the_group) == ListedGroup(GROUP_ID, "consumer", "Stable", "classic")
    simple = Driver()
    simple.commit()
    assert listed(simple.the_group) == ListedGroup(GROUP_ID, "", "Empty", "classic")


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ([], [], True),
        (["Stable"], [], True),
        (["stable ", "empty"], ["CLASSIC"], True),
        (["Empty"], [], False),
        ([], ["consumer"], False),
        (["Stable"], ["classic", "consumer"], True),
    ],
)
def test_list_filters(states: list[str], types: list[str], expected: bool) -> None:
    driver, _ = group_in(ClassicState.STABLE)
    assert is_listed(driver.the_group, states, types) is expected

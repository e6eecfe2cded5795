"""The lasting id and the resource locator of a group."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.classic.describe import describe
from headrace.groups.identity import SLUG_MAX_CHARS, slug_candidates, slug_of
from tests.groups.classic.driver import GROUP_ID, SESSION_MS, Driver, stable_group


@pytest.mark.parametrize(
    ("group_id", "slug"),
    [
        ("orders", "orders"),
        ("Orders.EU_west", "orders-eu-west"),
        ("--a...b--", "a-b"),
        ("connect-s3 sink", "connect-s3-sink"),
        ("über", "ber"),
        ("x" * 70, "x" * 63),
        ("x" * 62 + "__y", "x" * 62),
        ("___", "group"),
        ("注文", "group"),
    ],
)
def test_slugs(group_id: str, slug: str) -> None:
    assert slug_of(group_id) == slug


@given(st.text())
def test_every_slug_candidate_keeps_the_rules(group_id: str) -> None:
    candidates = list(islice(slug_candidates(group_id), 12))
    assert len(set(candidates)) == 12
    for slug in candidates:
        assert 1 <= len(slug) <= SLUG_MAX_CHARS
        assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert "--" not in slug
        assert slug.strip("-") == slug


def test_a_later_group_with_the_same_slug_gets_a_suffix() -> None:
    assert locator(Driver(taken_slugs=[])) == "default/consumer-groups/orders"
    assert locator(Driver(taken_slugs=["orders"])) == "default/consumer-groups/orders-2"
    assert locator(Driver(taken_slugs=["orders", "orders-2"])) == "default/consumer-groups/orders-3"


def test_the_organisation_is_part_of_the_locator() -> None:
    assert locator(Driver(org="acme")) == "acme/consumer-groups/orders"


def test_a_member_id_that_is_handed_out_stores_nothing() -> None:
    driver = Driver()
    driver.new_member_id()
    assert (driver.stores, driver.the_group.identity) == (0, None)


def test_once_nobody_can_come_with_a_handed_out_id_there_is_no_group() -> None:
    expiring, leaving = Driver(), Driver()
    expiring.new_member_id()
    expiring.advance(SESSION_MS + 1)
    leaving.leave_one(leaving.new_member_id())
    assert (expiring.group, leaving.group, expiring.stores, leaving.stores) == (None, None, 0, 0)


def test_the_id_is_minted_for_the_first_member_and_stored_before_the_answer() -> None:
    driver, _ = stable_group(1)
    identity = driver.the_group.identity
    assert identity is not None
    assert identity.id == "cgp_01hf0000000000000000000001"
    driver.restart()
    assert driver.the_group.identity == identity


def test_it_survives_the_last_leave_and_a_restart() -> None:
    driver, (member_id,) = stable_group(1)
    identity = driver.the_group.identity
    driver.leave_one(member_id)
    driver.restart()
    driver.new_member_id()
    assert driver.the_group.identity == identity


def test_a_simple_group_gets_it_when_it_is_joined() -> None:
    driver = Driver()
    driver.commit()
    assert describe(driver.group, GROUP_ID, 5).id is None
    driver.join(driver.new_member_id())
    assert describe(driver.group, GROUP_ID, 5).locator == "default/consumer-groups/orders"


def test_a_deleted_group_that_is_joined_again_is_another_one() -> None:
    driver, (member_id,) = stable_group(1)
    before = driver.the_group.identity
    driver.leave_one(member_id)
    driver.delete()
    driver.group = None
    driver.join(driver.new_member_id())
    assert driver.the_group.identity != before


def locator(driver: Driver) -> str | None:
    driver.join(driver.new_member_id())
    return describe(driver.group, GROUP_ID, 5).locator

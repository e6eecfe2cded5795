"""Whose quota counts, and what rates come to; the clock is a number."""

from __future__ import annotations

import pytest

from headrace.security.quotas import (
    CLIENT_ID,
    CONNECTIONS,
    IP,
    MUTATIONS,
    PRODUCER,
    USER,
    Entity,
    QuotaTable,
    Rate,
    TokenBucket,
    entity_of,
)

MOST_SPECIFIC_FIRST: list[tuple[Entity, tuple[str, str]]] = [
    (entity_of("alice", "app"), ("alice", "app")),
    (entity_of("alice", None), ("alice", "app")),
    (((USER, "alice"),), ("alice", "")),
    (entity_of(None, "app"), ("alice", "app")),
    (entity_of(None, None), ("alice", "app")),
    (((USER, None),), ("alice", "")),
    (((CLIENT_ID, "app"),), ("", "app")),
    (((CLIENT_ID, None),), ("", "app")),
]


@pytest.mark.parametrize("place", range(len(MOST_SPECIFIC_FIRST)))
def test_the_most_specific_quota_counts(place: int) -> None:
    table = QuotaTable()
    for number, (entity, _) in enumerate(MOST_SPECIFIC_FIRST[place:], start=place):
        table.put(entity, {PRODUCER: 1000.0 + number})
    assert table.find(PRODUCER, "alice", "app") == (1000.0 + place, MOST_SPECIFIC_FIRST[place][1])
    assert table.find(MUTATIONS, "alice", "app") is None


def test_a_more_specific_entity_without_the_key_does_not_hide_another() -> None:
    table = QuotaTable()
    table.put(((USER, "alice"),), {MUTATIONS: 5.0})
    table.put(((CLIENT_ID, "app"),), {PRODUCER: 7.0})
    assert table.find(PRODUCER, "alice", "app") == (7.0, ("", "app"))
    table.put(((CLIENT_ID, "app"),), {})
    assert table.find(PRODUCER, "alice", "app") is None


def test_addresses_have_a_default() -> None:
    table = QuotaTable()
    table.put(((IP, None),), {CONNECTIONS: 10.0})
    table.put(((IP, "10.0.0.1"),), {CONNECTIONS: 3.0})
    assert (table.find_address("10.0.0.1"), table.find_address("10.0.0.2")) == (3.0, 10.0)


def test_a_rate_is_over_ten_seconds_and_the_pause_brings_it_back() -> None:
    """Numbers of Kafka's Rate and QuotaUtils.throttleTime: 11 samples of a second, ten of them full at least."""
    rate = Rate()
    rate.record(10_000, 0)
    assert rate.throttle_ms(1_000, 0) == 0  # 10,000 over 10 s: just the bound
    rate.record(5_000, 0)
    assert rate.throttle_ms(1_000, 0) == 5_000
    assert rate.throttle_ms(1_000, 5_000) == 5_000  # the window is ten seconds until then
    assert rate.throttle_ms(1_000, 10_500) == 4_500
    assert rate.throttle_ms(1_000, 11_000) == 0  # the sample is gone


@pytest.mark.parametrize("bound", [1_000.0, 50_000.0])
def test_who_pauses_as_told_comes_to_its_bound(bound: float) -> None:
    rate, now_ms, sent = Rate(), 0.0, 0
    while now_ms < 120_000:
        rate.record(bound * 2, now_ms)
        sent += int(bound * 2)
        now_ms += 10 + rate.throttle_ms(bound, now_ms)
    assert sent / (now_ms / 1_000) == pytest.approx(bound, rel=0.15)


def test_changes_may_come_in_a_burst_and_then_at_the_bound() -> None:
    bucket = TokenBucket(2.0, 0)
    bucket.take(22, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 0
    bucket.take(10, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 5_000
    assert bucket.throttle_ms(2.0, 4_000) == 1_000
    assert bucket.throttle_ms(2.0, 5_000) == 0

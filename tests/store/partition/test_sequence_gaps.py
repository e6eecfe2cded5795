"""A producer that skips batches: what it skips may still be on its way, in either format."""

from __future__ import annotations

import pytest

from headrace.store.partition.base import Partition
from headrace.store.partition.sequences.gaps import Due, SequenceGaps, Skip
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.movable_clock import MovableClock
from tests.store.partition.test_contract import all_of, numbers, produce_each
from tests.store.produced import produce, values


@pytest.fixture(params=[{}, {"headrace.format": "stream"}], ids=["log", "stream"])
async def partition(store: Store, request: pytest.FixtureRequest) -> Partition:
    return await store.default.partition(await store.default.catalogue.create("orders", 1, request.param), 0)


async def is_refused_for_now(partition: Partition, sequence: int) -> bool:
    try:
        await produce(partition, b"%d" % sequence, producer=7, sequence=sequence)
    except KafkaError as error:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        return True
    return False


async def test_of_a_new_producer_whose_first_batches_were_refused_the_next_one_is_not_taken(
    partition: Partition,
) -> None:
    """librdkafka would take them for delivered."""
    assert await is_refused_for_now(partition, 4)
    await produce_each(partition, 0, 6)
    assert values(await all_of(partition)) == numbers(0, 6)


async def test_a_producer_that_is_not_known_any_more_goes_on_never(partition: Partition, clock: MovableClock) -> None:
    assert await is_refused_for_now(partition, 4)
    clock.advance(partition.options.node_lease_ms)
    await partition.nodes.renew()
    assert not await is_refused_for_now(partition, 4)
    await produce_each(partition, 5, 7)
    assert values(await all_of(partition)) == numbers(4, 7)


def test_of_too_many_unknown_producers_the_first_waits_again() -> None:
    asked = []

    def never() -> bool:
        return False

    def begin(are_slow: bool) -> Due:
        if not are_slow:
            asked.append(never)
        return never

    gaps = SequenceGaps(begin)
    for producer_id in range(1_001):
        assert not gaps.admits(Skip(producer_id, (0,), 5))
    assert not gaps.admits(Skip(1_000, (0,), 6))
    assert len(asked) == 1_001
    assert not gaps.admits(Skip(0, (0,), 6))
    assert len(asked) == 1_002


async def test_of_batches_that_were_refused_the_first_goes_on_though_a_later_one_comes_before_it(
    partition: Partition, clock: MovableClock
) -> None:
    """The lease ends between two batches in flight: the first was refused, and must not be left out."""
    for sequence in (4, 5, 6):
        assert await is_refused_for_now(partition, sequence)
    clock.advance(2 * partition.options.node_lease_ms)
    await partition.nodes.renew()
    assert await is_refused_for_now(partition, 5)
    await produce_each(partition, 4, 7)
    assert values(await all_of(partition)) == numbers(4, 7)


async def test_a_producer_goes_on_behind_a_batch_that_it_has_given_up(
    partition: Partition, clock: MovableClock
) -> None:
    for sequence in (4, 5):
        assert await is_refused_for_now(partition, sequence)
    clock.advance(60_000)
    await partition.nodes.renew()
    await produce_each(partition, 5, 7)
    assert values(await all_of(partition)) == numbers(5, 7)

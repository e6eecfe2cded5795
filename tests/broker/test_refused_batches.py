"""What the answers to one connection's batches say of those sent behind them."""

from __future__ import annotations

import asyncio

import pytest

from headrace.broker.produce.refused_batches import RefusedBatches
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.identity import kafka_uuid, new_id
from headrace.store.partition.appending import Appended
from headrace.wire.errors import ErrorCode, KafkaError

TOPIC = Topic("orders", kafka_uuid(new_id(0)), 2)
NOT_LEADER = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
OUT_OF_ORDER = KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "")


class Batches:
    """Batches of one connection to one partition."""

    def __init__(self) -> None:
        self.refused = RefusedBatches()

    def under_way(self) -> asyncio.Future[Appended]:
        appended: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self.refused.watch(TOPIC, 0, appended)
        return appended

    async def is_appended(self, batch: asyncio.Future[Appended]) -> None:
        batch.set_result(Appended(0))
        await asyncio.sleep(0)  # its callbacks

    def verdict(self, partition: int = 0, *, is_settled: bool = True) -> ErrorCode:
        return self.refused.verdict(TOPIC, partition, OUT_OF_ORDER, is_settled=is_settled).code


@pytest.fixture
def batches() -> Batches:
    return Batches()


async def test_a_gap_without_a_refusal_is_a_gap(batches: Batches) -> None:
    await batches.is_appended(batches.under_way())
    assert batches.verdict() == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_while_partitions_move_a_gap_may_be_the_refusal_of_another_node(batches: Batches) -> None:
    assert batches.verdict(is_settled=False) == ErrorCode.KAFKA_STORAGE_ERROR
    fenced = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "")
    assert batches.refused.verdict(TOPIC, 0, fenced, is_settled=False) is fenced


async def test_a_gap_behind_a_refusal_is_for_now_and_for_that_partition_alone(batches: Batches) -> None:
    batches.refused.note(TOPIC, 0, NOT_LEADER)
    assert batches.verdict() == ErrorCode.KAFKA_STORAGE_ERROR
    assert batches.verdict(partition=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_batch_from_before_the_refusal_does_not_make_it_good(batches: Batches) -> None:
    before = batches.under_way()
    batches.refused.note(TOPIC, 0, NOT_LEADER)
    await batches.is_appended(before)
    assert batches.verdict() == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_batch_between_two_refusals_makes_only_the_first_good(batches: Batches) -> None:
    batches.refused.note(TOPIC, 0, NOT_LEADER)
    between = batches.under_way()
    batches.refused.note(TOPIC, 0, NOT_LEADER)
    await batches.is_appended(between)
    assert batches.verdict() == ErrorCode.KAFKA_STORAGE_ERROR


async def test_the_refused_batch_that_comes_again_makes_it_good(batches: Batches) -> None:
    batches.refused.note(TOPIC, 0, NOT_LEADER)
    await batches.is_appended(batches.under_way())
    assert batches.verdict() == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_what_is_wrong_for_good_is_no_refusal_for_now(batches: Batches) -> None:
    batches.under_way().set_exception(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, ""))
    await asyncio.sleep(0)  # its callbacks
    assert batches.verdict() == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

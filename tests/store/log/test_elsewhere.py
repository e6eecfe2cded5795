"""A batch of the broker's own for a log that another node leads: at its end, or not at all."""

from __future__ import annotations

import contextlib

import pytest

from headrace.store.cluster.catalogue import Placing
from headrace.store.log.elsewhere import NotTakenUp, append_elsewhere
from headrace.store.log.partition import LogPartition
from headrace.store.redis.errors import PartitionGone
from headrace.store.store import Store
from headrace.wire.records import Record, encode_batch
from tests.store.conftest import OpenStore
from tests.store.log.test_back_in_time import produce_each
from tests.store.partition.test_losses import go_back
from tests.store.produced import log_partition, stored, until, values
from tests.store.servers import Valkey

BATCH = encode_batch([Record(0, 1000, None, b"elsewhere", [])])


async def led_by_the_first_node(store: Store) -> LogPartition:
    topic = await store.default.catalogue.create("orders", 1, {}, Placing(2, {0: [0, 1]}))
    return await log_partition(store, topic, 0)


async def test_a_batch_goes_to_the_end_of_a_log_that_another_node_leads(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    led = await led_by_the_first_node(store)
    await produce_each(led, 0, 3)
    other = await open_store(node_id=1)
    asked: list[int] = []

    async def ask() -> None:
        asked.append(1)

    await append_elsewhere(other.default.context, led.topic, 0, BATCH, ask)
    assert values(stored(valkey, led)) == [b"0", b"1", b"2", b"elsewhere"]
    assert len(asked) == 1


async def test_a_batch_leaves_no_hole_in_a_log_that_goes_back_between_its_end_and_the_append(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    led = await led_by_the_first_node(store)
    other = await open_store(node_id=1)
    await produce_each(led, 0, 3)
    checkpoint = valkey.checkpoint()
    await produce_each(led, 3, 6)
    lost: list[int] = []

    async def ask() -> None:
        if not lost:
            lost.append(1)
            await go_back(valkey, checkpoint, other)

    with contextlib.suppress(NotTakenUp):  # unless the leader is faster
        await append_elsewhere(other.default.context, led.topic, 0, BATCH, ask)
    await led.confirm()
    assert values(stored(valkey, led))[:6] == [b"%d" % n for n in range(6)]
    assert led.gaps == []


async def test_a_log_that_was_lost_is_waited_for_and_one_that_was_deleted_is_not(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    """A marker that is left out because the log seems to be deleted is missing once its leader has restored it."""
    led = await led_by_the_first_node(store)
    await produce_each(led, 0, 3)
    context = (await open_store(node_id=1)).default.context
    valkey.ask("DEL", led.keys.log)
    with pytest.raises(NotTakenUp):
        await append_elsewhere(context, led.topic, 0, BATCH, _wanted)
    led.doubt()
    await led.confirm()
    await append_elsewhere(context, led.topic, 0, BATCH, _wanted)
    assert values(stored(valkey, led)) == [b"0", b"1", b"2", b"elsewhere"]
    await store.default.catalogue.delete(led.topic)
    await until(lambda: led.uuid not in context.catalogue.by_uuid)
    with pytest.raises(PartitionGone):
        await append_elsewhere(context, led.topic, 0, BATCH, _wanted)


async def _wanted() -> None:
    """It is."""

"""A store that went back behind the lake: no offset is used twice, and what the lake has is not lost to readers."""

from __future__ import annotations

from typing import cast

import pytest

from headrace.store.log import tiering
from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from headrace.store.partition.losses import EpochStart, Gap
from headrace.wire.errors import ErrorCode, KafkaError
from tests.store.cold_copy import ColdCopy
from tests.store.partition.test_emptied import empty
from tests.store.partition.test_losses import go_back, made_for
from tests.store.produced import assert_dense, produce, same_partition, store_of, stored_entries, until
from tests.store.servers import Valkey
from tests.store.tiered import LOCAL_NOTHING, OpenTiered, archive, fill, read_all

MARGIN = 1_000_000
"""What else may have been given out, and is neither in Redis nor in the lake."""


async def test_a_log_goes_on_behind_what_the_lake_holds_and_all_of_it_is_read(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition, open_tiered: OpenTiered
) -> None:
    checkpoint = valkey.checkpoint()
    await fill(tiered, 5, start_ms=20_000)
    before = await read_all(tiered)
    archive(cold, valkey, tiered, 15)
    await store_of(tiered).close()
    valkey.go_back_to(checkpoint)
    again = await same_partition(await open_tiered(0), tiered)
    assert await produce(again, b"next") == Appended(30 + MARGIN)
    found = await read_all(again)
    assert found[:30] == before
    assert len(found) == 31
    assert (found[-1].value, found[-1].leader_epoch) == (b"next", 2)
    assert again.epochs == [EpochStart(0, 0), EpochStart(1, 30), EpochStart(2, 30 + MARGIN)]
    other = await same_partition(await open_tiered(), tiered)
    assert (other.local_start, other.end, other.leader_epoch) == (30, 31 + MARGIN, 2)
    assert other.epoch_end(0) == (0, 30)


async def test_what_neither_has_is_a_gap(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition, open_tiered: OpenTiered
) -> None:
    """A lake that does not reach down to what Redis has: the archive was begun late, or its old files are gone."""
    checkpoint = valkey.checkpoint()
    await fill(tiered, 5, start_ms=20_000)
    cold.archive(tiered.topic.uuid, 0, [data for _, data in stored_entries(valkey, tiered)[12:]])
    await store_of(tiered).close()
    valkey.go_back_to(checkpoint)
    again = await same_partition(await open_tiered(0), tiered)
    assert await produce(again, b"next") == Appended(30 + MARGIN)
    assert again.gaps == [Gap(20, 30), Gap(30, 30 + MARGIN)]
    assert again.leader_epoch == 2


async def test_while_the_lake_is_away_appends_wait_and_reading_goes_on(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition, open_tiered: OpenTiered
) -> None:
    checkpoint = valkey.checkpoint()
    await fill(tiered, 5, start_ms=20_000)
    archive(cold, valkey, tiered, 15)
    await store_of(tiered).close()
    valkey.go_back_to(checkpoint)
    cold.is_away = True
    again = await same_partition(await open_tiered(0), tiered)
    assert_dense(await read_all(again))
    for refused in (produce(again, b"too early", timeout_s=0.3), again.confirm_up_to(25), again.confirm_end()):
        with pytest.raises(KafkaError) as raised:
            await refused
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    cold.is_away = False
    assert await produce(again, b"next") == Appended(30 + MARGIN)
    await again.confirm_up_to(25)
    assert again.end == 31 + MARGIN


async def test_the_lake_is_not_asked_again_about_the_same_run_of_the_server(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition, open_tiered: OpenTiered
) -> None:
    await until(lambda: not tiered.lake_end.is_open)
    cold.is_away = True
    again = await same_partition(await open_tiered(), tiered)
    assert await produce(again, b"next") == Appended(20)


async def test_nor_about_a_log_that_was_left_in_good_order(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition, open_tiered: OpenTiered
) -> None:
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    await store_of(tiered).close()
    cold.is_away = True
    valkey.restart()
    again = await same_partition(await open_tiered(), tiered)
    assert await produce(again, b"next") == Appended(20)
    assert valkey.ask("HGET", again.keys.meta, "left") is None


async def test_of_what_a_node_cannot_restore_readers_get_what_the_lake_has(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition
) -> None:
    checkpoint = valkey.checkpoint()
    await fill(tiered, 5, start_ms=20_000)
    before = await read_all(tiered)
    archive(cold, valkey, tiered, 13)
    cold.is_away = True
    await go_back(valkey, checkpoint, store_of(tiered))
    with pytest.raises(KafkaError) as raised:  # whoever went on would skip what the lake has
        await tiered.confirm()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    cold.is_away = False
    assert await produce(tiered, b"next") == Appended(30)
    found = await read_all(tiered)
    assert found[:26] == before[:26]
    assert [record.value for record in found[26:]] == [b"next"]
    assert tiered.gaps == [Gap(20, 30)]


async def test_what_the_lake_has_of_another_leader_is_read_after_the_store_lost_everything(
    valkey: Valkey, cold: ColdCopy, open_tiered: OpenTiered
) -> None:
    """The node that is left led earlier: its cache ends before the lake does."""
    store = await open_tiered(0, tail_cache_bytes=1_000_000)
    mine = cast("LogPartition", await made_for(1, open_tiered, store, {"remote.storage.enable": "true"}))
    await fill(mine, 5)
    other = await open_tiered(1)
    theirs = await same_partition(other, mine)
    await fill(theirs, 5, start_ms=20_000)
    before = await read_all(theirs)
    archive(cold, valkey, theirs, 8)
    await store.nodes.refresh()
    await other.close()
    await store.nodes.refresh()
    await empty(valkey, store)
    assert (await produce(mine, b"next")).base_offset > 20
    found = await read_all(mine)
    assert found[:16] == before[:16]
    assert [record.value for record in found[16:]] == [b"next"]
    again = await same_partition(await open_tiered(2), mine)
    assert await read_all(again) == found

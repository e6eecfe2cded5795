"""The mirrors of groups: Redis's own lag is what is left to read, whatever was trimmed, lost or read anew."""

from __future__ import annotations

import pytest

from headrace.store.partition.base import Partition
from headrace.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import CONFIGS, on, produce_each
from tests.store.servers import Valkey


@pytest.fixture(params=CONFIGS)
def configs(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


@pytest.fixture
async def either(store: Store, configs: dict[str, str]) -> Partition:
    """Partition 0 of `orders`, in each format."""
    return await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)


async def check_lag(valkey: Valkey, partition: Partition, offset: int, lag: int) -> None:
    """A mirror of a commit at an offset has so many entries to read, by its position and by Redis's count."""
    identity, entries = await partition.mirror_position(offset)
    assert len(valkey.ask("XRANGE", partition.keys.log, f"({identity}", "+")) == lag
    valkey.ask("XGROUP", "CREATE", partition.keys.log, "mirror", identity, "ENTRIESREAD", str(entries))
    (reply,) = valkey.ask("XINFO", "GROUPS", partition.keys.log)
    valkey.ask("XGROUP", "DESTROY", partition.keys.log, "mirror")
    assert reply[b"lag"] == lag


async def test_what_was_deleted_is_not_left_to_read(valkey: Valkey, either: Partition) -> None:
    offsets = await produce_each(either, 0, 10)
    await either.delete_before(offsets[4])
    for offset, lag in ((either.end, 0), (offsets[7], 3), (offsets[4], 6), (offsets[1], 6)):
        await check_lag(valkey, either, offset, lag)


async def test_a_node_that_never_saw_what_was_deleted_counts_as_redis_does(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    offsets = await produce_each(either, 0, 10)
    await either.delete_before(offsets[4])
    other = await on(await open_store(), either)
    for offset, lag in ((other.end, 0), (offsets[7], 3), (offsets[4], 6), (offsets[1], 6)):
        await check_lag(valkey, other, offset, lag)
    offsets += await produce_each(either, 10, 12)
    for offset, lag in ((offsets[-1] + 1, 0), (offsets[10], 2), (offsets[7], 5)):
        await check_lag(valkey, other, offset, lag)


async def test_a_node_that_reads_on_behind_what_was_deleted_counts_as_redis_does(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    await produce_each(either, 0, 3)
    other = await on(await open_store(), either)
    await check_lag(valkey, other, other.end, 0)
    offsets = await produce_each(either, 3, 10)
    await either.delete_before(offsets[4])
    for offset, lag in ((offsets[-1] + 1, 0), (offsets[5], 2), (offsets[1], 3)):
        await check_lag(valkey, other, offset, lag)


async def test_a_log_that_was_made_again_counts_from_its_first_entry(valkey: Valkey, either: Partition) -> None:
    offsets = await produce_each(either, 0, 10)
    await either.delete_before(offsets[4])
    await either.mirror_position(either.end)
    valkey.ask("DEL", either.keys.log)
    either.doubt()
    await either.confirm()
    for offset, lag in ((either.end, 0), (offsets[7], 3)):
        await check_lag(valkey, either, offset, lag)

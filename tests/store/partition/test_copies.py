"""What is answered once enough replicas have a batch, and when it is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace.store.cluster.catalogue import Placing
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.partition.appending import Appended
from headrace.store.partition.base import Partition
from headrace.store.partition.losses import Gap, record_gap
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.replicated import ReplicatedServers, replicated
from tests.store.produced import produce, until

FORMATS = pytest.mark.parametrize("configs", [{}, {"headrace.format": "stream"}], ids=["log", "stream"])
TIMEOUT_S = 20.0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ReplicatedServers]:
    with replicated(tmp_path / "servers") as started:
        yield started


@pytest.fixture
async def stores(servers: ReplicatedServers) -> AsyncIterator[list[Store]]:
    opened = [Store(parse_address(servers.url), node_at(at, "127.0.0.1", 9092), StoreOptions()) for at in range(2)]
    for store in opened:
        await store.start()
    yield opened
    for store in opened:
        await store.close()


async def opened_by_both(stores: list[Store], configs: dict[str, str]) -> list[Partition]:
    """A partition that asks for a copy, as its leader and another node have it."""
    asking = {"min.insync.replicas": "2", **configs}
    topic = await stores[0].default.catalogue.create("orders", 1, asking, Placing(2, {0: [0, 1]}))
    await stores[1].default.catalogue.refresh()
    partitions = [await store.default.partition(topic, 0) for store in stores]
    await until(lambda: all(partition.copies.wanted == 1 for partition in partitions))
    return partitions


@FORMATS
async def test_a_batch_that_is_there_is_confirmed_though_others_were_lost_at_its_offset(
    stores: list[Store], configs: dict[str, str]
) -> None:
    """A node whose records were replaced by those of another one notes their offsets as lost."""
    partition, other = await opened_by_both(stores, configs)
    base = (await produce(partition, b"0", producer=7, sequence=0)).base_offset
    await other.confirm()
    await record_gap(other, base, base + 1)
    partition.doubt()
    await partition.confirm()
    assert partition.gaps == [Gap(base, base + 1)]
    again = produce(partition, b"0", producer=7, sequence=0)
    assert await partition.copies.confirmed(again, 1, TIMEOUT_S) == Appended(base, duplicate=True)


@FORMATS
async def test_a_batch_that_is_lost_before_it_is_confirmed_is_refused(
    servers: ReplicatedServers, stores: list[Store], configs: dict[str, str]
) -> None:
    partition, other = await opened_by_both(stores, configs)
    await partition.copies.confirmed(produce(partition, b"0"), 1, TIMEOUT_S)
    [replica] = servers.replicas
    servers.freeze(replica)
    try:
        appended = produce(partition, b"1")
        confirmed = partition.copies.confirmed(appended, 1, TIMEOUT_S)
        base = (await appended).base_offset
        await other.confirm()
        await record_gap(other, base, base + 1)
        partition.doubt()
        await partition.confirm()
    finally:
        servers.thaw(replica)
    with pytest.raises(KafkaError, match="lost the batch") as refused:
        await confirmed
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@FORMATS
async def test_a_node_that_leads_again_knows_what_the_one_between_has_shown(
    servers: ReplicatedServers, stores: list[Store], configs: dict[str, str]
) -> None:
    partition, other = await opened_by_both(stores, configs)
    await partition.copies.confirmed(produce(partition, b"0"), 1, TIMEOUT_S)
    shown = partition.high_watermark
    await other.confirm()
    await other.copies.confirmed(produce(other, b"1"), 1, TIMEOUT_S)
    await other.copies.save()
    [replica] = servers.replicas
    servers.freeze(replica)
    try:
        await produce(other, b"2")
        stores[0].nodes.term += 1  # nodes came and went
        await partition.confirm()
        assert (partition.high_watermark, partition.end) == (shown, other.end)
        assert partition.copies.may_be_behind()
        await until(lambda: partition.high_watermark == other.high_watermark)
        assert partition.copies.may_be_behind()
    finally:
        servers.thaw(replica)
    await until(lambda: not partition.copies.may_be_behind())
    assert partition.high_watermark == partition.end


@FORMATS
async def test_what_was_shown_stays_shown_after_another_server_run_without_replicas(
    servers: ReplicatedServers, stores: list[Store], configs: dict[str, str]
) -> None:
    partition, _ = await opened_by_both(stores, configs)
    for value in (b"0", b"1"):
        await partition.copies.confirmed(produce(partition, value), 1, TIMEOUT_S)
    shown, timeline = partition.high_watermark, partition.link.timeline
    servers.replicas[0].kill()
    servers.primary.kill()
    servers.primary.start()  # empty: all of it is restored, on a server whose replica has nothing
    await until(lambda: partition.link.is_up and partition.link.timeline > timeline)
    await partition.confirm()
    appended = await produce(partition, b"2")
    assert (partition.high_watermark, partition.stable_end, partition.gaps) == (shown, shown, [])
    assert appended.base_offset >= shown

"""What is written while a slot is moved key by key is confirmed by replicas of the server that has it, or not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from signal import Signals

import pytest

from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.embedded.trial import TrialServer
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.redis.copied_writes import NotConfirmed
from headrace.store.redis.topology import Slot
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.clusters import ClusterOfServers, running
from tests.store.produced import produce, until

FORMATS = pytest.mark.parametrize("configs", [{}, {"headrace.format": "stream"}], ids=["log", "stream"])
TIMEOUT_S = 20.0
TOUCHED = ":touched"
"""A key that stays behind: with it, the server that the slot is moving from takes writes of the slot."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfServers]:
    with running(ClusterOfServers(tmp_path_factory.mktemp("cluster"), replicas=1)) as cluster:
        yield cluster


@pytest.fixture
async def store(servers: ClusterOfServers, topic: str) -> AsyncIterator[Store]:
    opened = await open_store(servers, topic, 0)
    yield opened
    await opened.close()


async def open_store(servers: ClusterOfServers, prefix: str, node: int) -> Store:
    options = StoreOptions(prefix=prefix, store_replicas=1, replica_timeout_ms=1_000)
    store = Store(parse_address(servers.url), node_at(node, "127.0.0.1", 9092), options)
    await store.start()
    store.topology.copied.wanted = lambda: 1
    return store


class Move:
    """A slot that is moving: keys that are not at its server are asked for at the other one, whose replica hangs."""

    def __init__(self, servers: ClusterOfServers, slot: Slot) -> None:
        self._servers, self._slot = servers, slot
        self.source = servers.owner_of(slot.number)
        self._target = next(one for one in servers.primaries if one is not self.source)
        self._replica = servers.replica_of(self._target)
        self.source_replica = servers.replica_of(self.source)

    def begin(self) -> None:
        self._servers.begin_move(self._slot.number, self._target)
        freeze(self._replica)

    def move_keys(self) -> None:
        """All but those that are touched."""
        self._servers.move_keys(self._slot.number, self.source, self._target, but=TOUCHED)

    async def end(self) -> None:
        """The replica goes on (it has to know who has the slot, too), and the slot has moved."""
        thaw(self._replica)
        await asyncio.to_thread(self._servers.wait_whole)
        await asyncio.to_thread(self._servers.end_move, self._slot.number, self.source, self._target)
        await until(lambda: self._slot.shard.link.address.port == self._target.port)


def freeze(server: TrialServer) -> None:
    server.send_signal(Signals.SIGSTOP)


def thaw(server: TrialServer) -> None:
    server.send_signal(Signals.SIGCONT)


@contextlib.asynccontextmanager
async def moving(servers: ClusterOfServers, slot: Slot) -> AsyncIterator[Move]:
    move = Move(servers, slot)
    try:
        move.begin()
        yield move
    finally:
        await move.end()


async def test_a_write_that_was_sent_on_is_not_confirmed_before_its_slot_has_moved(
    servers: ClusterOfServers, store: Store, topic: str
) -> None:
    key, copied = f"{{{topic}}}:thing", store.topology.copied
    slot = store.topology.slot_of(key)
    await copied.confirm(slot, slot.place, key)
    async with moving(servers, slot) as move:
        place = slot.place
        await slot.link.call("SET", key, "written")
        assert move.source.ask("EXISTS", f"{key}{TOUCHED}") == 1
        with pytest.raises(NotConfirmed):
            await copied.confirm(slot, place, key)
    place = slot.place
    await slot.link.call("SET", key, "written again")
    await copied.confirm(slot, place, key)


async def test_changes_of_the_catalogue_that_were_sent_on_are_not_confirmed(
    servers: ClusterOfServers, store: Store
) -> None:
    catalogue, deleted = store.default.catalogue, store.default.keys.deleted_topics
    await catalogue.create("orders", 1, {})
    doomed = await catalogue.create("doomed", 1, {})
    before = await catalogue.create("before", 1, {})
    row = catalogue.rows["before"]
    await catalogue.delete(before)
    await catalogue.slot.link.call("HSET", deleted, before.id, row)  # scripts with a key that is at neither are refused
    async with moving(servers, catalogue.slot) as move:
        move.move_keys()
        with pytest.raises(NotConfirmed):
            await catalogue.set_configs(catalogue.by_name["orders"], {"retention.ms": "1"})
        with pytest.raises(NotConfirmed):
            await catalogue.delete(doomed)
    await catalogue.set_configs(catalogue.by_name["orders"], {"retention.ms": "2"})
    await catalogue.delete(catalogue.by_name["orders"])


async def test_the_outcome_of_a_transaction_that_was_sent_on_is_not_confirmed(
    servers: ClusterOfServers, store: Store, topic: str
) -> None:
    slot = store.topology.slot_of(store.keys.of("default").group_verdicts(topic))
    await store.transactions.give_verdict("default", topic, 7, 1, commit=True)
    async with moving(servers, slot) as move:
        move.move_keys()
        with pytest.raises(NotConfirmed):
            await store.transactions.give_verdict("default", topic, 7, 2, commit=True)
    await store.transactions.give_verdict("default", topic, 7, 2, commit=True)


@FORMATS
async def test_a_log_that_is_read_where_its_slot_is_moving_to_is_not_confirmed_where_it_was(
    servers: ClusterOfServers, store: Store, configs: dict[str, str]
) -> None:
    made = await store.default.catalogue.create("orders", 1, {"min.insync.replicas": "2", **configs})
    partition = await store.default.partition(made, 0)
    # A producer's state is one more key of a stream, and scripts with a key that is not there are refused.
    await partition.copies.confirmed(produce(partition, b"0", producer=7, sequence=0), 1, TIMEOUT_S)
    shown = partition.high_watermark
    async with moving(servers, partition.slot) as move:
        freeze(move.source_replica)
        try:
            appended = produce(partition, b"1", producer=7, sequence=1)
            await appended
            move.move_keys()
            partition.doubt()
            await partition.confirm()
        finally:
            thaw(move.source_replica)
        with pytest.raises(KafkaError) as refused:
            await partition.copies.confirmed(appended, 1, 2.0)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert partition.high_watermark == shown
    await partition.copies.confirmed(appended, 1, TIMEOUT_S)
    assert partition.high_watermark == partition.end > shown


async def test_a_server_that_gets_its_first_slot_key_by_key_is_kept_and_is_no_other_store(
    tmp_path: Path, topic: str
) -> None:
    """Open transactions are aborted when the store is another one: nothing was lost here."""
    with running(ClusterOfServers(tmp_path / "servers", replicas=0)) as cluster:
        store = await open_store(cluster, topic, 0)
        try:
            empty = await asyncio.to_thread(cluster.add_server)
            await asyncio.to_thread(cluster.introduce, cluster.servers[0], empty)
            await asyncio.to_thread(cluster.wait_whole)
            slot, server = store.topology.slot_of(f"{{{topic}}}:things"), store.transactions.server
            cluster.begin_move(slot.number, empty)
            await slot.link.call("SET", f"{{{topic}}}:first", "sent on")
            connected = empty.info("stats")["total_connections_received"]
            sent_on, all_shards = next(one for one in store.topology.shards if one.name.endswith(f":{empty.port}")), 4
            for number in range(3):
                await store.topology._refresh()  # type: ignore[attr-defined]
                assert len(store.topology.shards) == all_shards
                assert sent_on.link.is_up
                assert store.transactions.server == server
                await slot.link.call("SET", f"{{{topic}}}:{number}", "sent on")
            assert int(empty.info("stats")["total_connections_received"]) < int(connected) + 5, "each look is one"
        finally:
            await store.close()

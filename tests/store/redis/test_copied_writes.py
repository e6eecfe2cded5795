"""A write that replicas did not confirm, for whatever reason, is told apart from one that was not made."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.store.embedded.ports import HOST
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.redis.copied_writes import NotConfirmed
from headrace.store.redis.errors import StoreAway
from headrace.store.redis.replicas import NotEnoughReplicas, Replicas
from headrace.store.redis.topology import open_topology
from tests.broker_process import wait_until
from tests.replicated import ReplicatedServers, replicated
from tests.store.produced import until

KEY = "headrace:thing"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ReplicatedServers]:
    with replicated(tmp_path / "servers") as started:
        yield started


async def test_a_replica_that_is_lost_between_the_check_and_the_write_leaves_it_unconfirmed(
    servers: ReplicatedServers,
) -> None:
    topology = open_topology(parse_address(servers.url), StoreOptions())
    try:
        await topology.start()
        topology.copied.wanted = lambda: 1
        slot = topology.slot_of(KEY)
        await topology.copied.check(slot.shard)
        await slot.link.call("SET", KEY, "written")
        await topology.copied.confirm(slot, slot.place, KEY)
        servers.replicas[0].kill()
        wait_until(lambda: servers.in_step() == 0, "the replica stays")
        slot.shard.replicas.doubt()
        await slot.link.call("SET", KEY, "written again")
        with pytest.raises(NotConfirmed):
            await topology.copied.confirm(slot, slot.place, KEY)
        with pytest.raises(NotEnoughReplicas):
            await topology.copied.check(slot.shard)
    finally:
        await topology.close()


async def test_a_primary_that_became_a_replica_confirms_nothing_and_leaves_no_error_unread(
    servers: ReplicatedServers,
) -> None:
    unread: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
    topology = open_topology(parse_address(servers.url), StoreOptions())
    try:
        await topology.start()
        topology.copied.wanted = lambda: 1
        slot = topology.slot_of(KEY)
        await slot.link.call("SET", KEY, "written")
        await topology.copied.confirm(slot, slot.place, KEY)
        servers.replicas[0].ask("REPLICAOF", "NO", "ONE")
        servers.primary.ask("REPLICAOF", HOST, servers.replicas[0].port)
        with pytest.raises(NotConfirmed):
            await topology.copied.confirm(slot, slot.place, KEY)
    finally:
        await topology.close()
    gc.collect()
    assert unread == []


async def test_a_write_of_a_servers_last_run_is_not_confirmed_in_the_next(servers: ReplicatedServers) -> None:
    topology = open_topology(parse_address(servers.url), StoreOptions())
    try:
        await topology.start()
        topology.copied.wanted = lambda: 1
        slot = topology.slot_of(KEY)
        place = slot.place
        await slot.link.call("SET", KEY, "written")
        await topology.copied.confirm(slot, place, KEY)
        servers.primary.kill()
        servers.primary.start()
        await asyncio.to_thread(servers.wait_in_step, 1)
        await until(lambda: slot.link.timeline > place.timeline and slot.link.is_up)
        with pytest.raises(NotConfirmed):
            await topology.copied.confirm(slot, place, KEY)
    finally:
        await topology.close()


async def test_whoever_waits_for_a_server_that_is_left_is_told(servers: ReplicatedServers) -> None:
    """A cluster that gets along without a server leaves it while some wait for its replicas, and others for them."""
    topology = open_topology(parse_address(servers.url), StoreOptions())
    try:
        await topology.start()
        topology.copied.wanted = lambda: 1
        slot = topology.slot_of(KEY)
        await topology.copied.confirm(slot, slot.place, KEY)
        servers.freeze(servers.replicas[0])
        await slot.link.call("SET", KEY, "written")
        waiting = [asyncio.create_task(topology.copied.confirm(slot, slot.place, KEY))]
        await wait_for_commands(slot.shard.replicas)
        waiting.append(asyncio.create_task(topology.copied.confirm(slot, slot.place, KEY)))
        await asyncio.sleep(0)
        servers.freeze(servers.primary)
        slot.shard.replicas.doubt()
        waiting.append(asyncio.create_task(topology.copied.check(slot.shard)))
        await asyncio.sleep(0)
        await slot.shard.close()
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [NotConfirmed, NotConfirmed, StoreAway]
    finally:
        servers.thaw(servers.primary)
        servers.thaw(servers.replicas[0])
        await topology.close()


async def test_who_asks_in_the_moment_in_which_a_server_is_left_is_told(servers: ReplicatedServers) -> None:
    topology = open_topology(parse_address(servers.url), StoreOptions())
    try:
        await topology.start()
        topology.copied.wanted = lambda: 1
        slot = topology.slot_of(KEY)
        await topology.copied.confirm(slot, slot.place, KEY)
        waiting = asyncio.create_task(topology.copied.confirm(slot, slot.place, KEY))
        await asyncio.sleep(0)  # it has asked, and nobody has begun to answer
        await slot.shard.close()
        async with asyncio.timeout(10):
            with pytest.raises(NotConfirmed):
                await waiting
    finally:
        await topology.close()


async def wait_for_commands(replicas: Replicas) -> None:
    """Returns once a WAIT is under way."""
    links = replicas.links
    async with asyncio.timeout(10):
        while not any(link.wire is not None and link.wire.is_waiting for link in links):  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.001)

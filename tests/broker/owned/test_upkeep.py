"""A new owner's things are spread over servers: those on one that is away keep no other from being looked after."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.owned.contract import Name
from headrace.broker.owned.upkeep import OwnedUpkeep
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from tests.broker.owned.tally import Add, Tallies
from tests.clusters import ClusterOfServers, running
from tests.store.produced import is_up, until

_NAMES = [f"tally-{number}" for number in range(64)]


async def test_what_is_on_servers_that_are_well_is_loaded_though_another_one_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.broker.owned.runtime._LOAD_AT_ONCE", 4)
    with running(ClusterOfServers(tmp_path / "servers", replicas=0)) as servers:
        store = Store(parse_address(servers.url), node_at(0, "127.0.0.1", 9092), StoreOptions())
        await store.start()
        try:
            await until(lambda: is_up(store))
            before, after = Tallies(store), Tallies(store)
            for name in _NAMES:
                await before.ask(name, Add, "me", 1)
            needed = {servers.owner_of_key(key) for key in ("t:default:tallies", store.keys.nodes, store.keys.cluster)}
            away = next(server for server in servers.servers if server not in needed)
            well = {name for name in _NAMES if servers.owner_of_key(f"{{{name}}}") is not away}
            assert 0 < len(well) < len(_NAMES)
            away.kill()
            gone = next(shard for shard in store.topology.shards if shard.name.endswith(f":{away.port}"))
            await until(lambda: not gone.link.is_up)
            upkeep = asyncio.create_task(OwnedUpkeep(after.runtime).run())
            await until(lambda: well == {name.id for name, one in after.runtime.things.items() if not one.is_blank})
            lost = next(iter(well))
            thing = next(one for name, one in after.runtime.things.items() if name.id == lost)
            thing.doubt()
            await until(lambda: thing.is_settled)
            upkeep.cancel()
        finally:
            await store.close()


async def test_one_that_takes_its_time_keeps_no_other_from_being_looked_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that starts waits until all are restored: one after the other takes long when the store is slow."""
    tallies = Tallies(store)
    runtime, look = tallies.runtime, tallies.runtime.look
    for name in ("slow", "quick"):
        await tallies.ask(name, Add, "me", 1)
    slow, quick = runtime.things.values()

    async def look_slowly(name: Name) -> Any:
        if name == slow.name:
            await asyncio.Event().wait()
        return await look(name)

    upkeep = OwnedUpkeep(runtime)
    rounds = iter(range(1_000_000))
    monkeypatch.setattr(upkeep, "let_go_what_moved", lambda: next(rounds))
    work = asyncio.create_task(upkeep.run())
    await until(lambda: next(rounds) > 1)
    monkeypatch.setattr(runtime, "look", look_slowly)
    slow.doubt()
    quick.doubt()
    upkeep.wake()
    await until(lambda: quick.is_settled)
    work.cancel()

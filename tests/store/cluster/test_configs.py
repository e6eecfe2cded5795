"""Configs that were set while brokers run: every node has them, no change is lost, and a store that lost some gets them
back."""

from __future__ import annotations

import asyncio

from headrace.store.cluster.configs import Configs, of_broker, of_group
from headrace.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.produced import until
from tests.store.servers import Valkey

ALL = of_broker("")


async def test_what_is_set_is_seen_by_every_node_and_told_once(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    told = 0

    def tell() -> None:
        nonlocal told
        told += 1

    other.default.configs.on_change = tell
    assert await store.default.configs.replace(ALL, {"a": "1"})
    assert await store.default.configs.replace(of_group("g:h"), {"b": "2"})
    await until(lambda: other.default.configs.version == store.default.configs.version)
    assert (other.default.configs.get(ALL), other.default.configs.get(of_group("g:h"))) == ({"a": "1"}, {"b": "2"})
    assert (other.default.configs.groups(), other.default.configs.get(of_broker("0"))) == (["g:h"], {})
    seen = told
    assert not await other.default.configs.refresh()
    assert told == seen
    assert await store.default.configs.replace(of_group("g:h"), {})
    await other.default.configs.refresh()
    assert (other.default.configs.groups(), (await open_store()).default.configs.get(ALL)) == ([], {"a": "1"})


async def test_a_change_on_top_of_an_outdated_copy_is_refused(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    done = await asyncio.gather(
        store.default.configs.replace(ALL, {"a": "1"}), other.default.configs.replace(ALL, {"b": "2"})
    )
    assert sorted(done) == [False, True]
    for configs in (store.default.configs, other.default.configs):
        await configs.refresh()
        assert configs.get(ALL) == ({"a": "1"} if done[0] else {"b": "2"})


async def test_two_nodes_that_add_to_the_same_configs_lose_nothing(store: Store, open_store: OpenStore) -> None:
    other = await open_store()

    async def add(configs: Configs, key: str) -> None:
        while not await configs.replace(ALL, {**configs.get(ALL), key: key}):
            pass

    await asyncio.gather(
        *(add(node.default.configs, f"{n}-{at}") for at, node in enumerate((store, other)) for n in range(20))
    )
    await store.default.configs.refresh()
    assert set(store.default.configs.get(ALL)) == {f"{n}-{at}" for at in range(2) for n in range(20)}


async def test_a_change_of_the_lost_moment_comes_back(valkey: Valkey, store: Store) -> None:
    assert await store.default.configs.replace(ALL, {"a": "1"})
    checkpoint = valkey.checkpoint()
    assert await store.default.configs.replace(ALL, {"a": "2"})
    assert await store.default.configs.replace(of_group("g"), {"b": "1"})
    version, timeline = store.default.configs.version, store.link.timeline
    valkey.go_back_to(checkpoint)
    await until(lambda: store.link.timeline > timeline and store.link.is_up)
    await store.default.configs.refresh()
    configs = store.default.configs
    assert (configs.get(ALL), configs.groups(), configs.version) == ({"a": "2"}, ["g"], version)
    assert int(valkey.ask("HGET", store.default.keys.configs, ":version")) == version
    assert await store.default.configs.replace(ALL, {})


async def test_a_node_with_an_older_copy_does_not_bring_it_back(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    """Its copy is from before the store restarted; the store's own is newer."""
    other = await open_store()
    assert await store.default.configs.replace(ALL, {"a": "1"})
    await other.default.configs.refresh()
    assert await store.default.configs.replace(ALL, {"a": "2"})
    timeline = other.link.timeline
    valkey.restart()
    await until(lambda: other.link.timeline > timeline and other.link.is_up)
    await other.default.configs.refresh()
    assert other.default.configs.get(ALL) == {"a": "2"}

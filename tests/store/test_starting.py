"""A step of a start is tried again while what hinders it passes by itself."""

from __future__ import annotations

import pytest

from headrace.store.redis.errors import OutcomeUnknown, RedisError, StoreAway, StoreError
from headrace.store.redis.link import RedisLink
from headrace.store.starting import patiently
from tests.store.conftest import OpenStore


@pytest.mark.parametrize(
    "obstacle",
    [
        StoreAway(),
        OutcomeUnknown("no answer"),
        RedisError("CLUSTERDOWN The cluster is down"),
        RedisError("LOADING Valkey is loading the dataset in memory"),
    ],
    ids=str,
)
async def test_a_start_waits_for_what_passes(obstacle: StoreError) -> None:
    obstacles = [obstacle]

    async def step() -> None:
        if obstacles:
            raise obstacles.pop()

    await patiently(step)
    assert not obstacles


async def test_a_start_does_not_wait_for_what_an_operator_has_to_mend() -> None:
    tries = 0

    async def step() -> None:
        nonlocal tries
        tries += 1
        raise RedisError("NOPERM this user has no permissions")

    with pytest.raises(RedisError):
        await patiently(step)
    assert tries == 1


async def test_a_node_starts_though_the_server_of_the_leases_has_just_become_a_replica(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = RedisLink.start, list[str]()

    async def refused_once(link: RedisLink) -> None:
        if link.name == "leases" and not refused:
            refused.append(link.name)
            raise StoreAway("the server is a replica")
        await start(link)

    monkeypatch.setattr(RedisLink, "start", refused_once)
    store = await open_store()
    assert (refused, store.nodes.lease_is_valid) == (["leases"], True)

"""A step of a start is tried again while what hinders it passes by itself."""

from __future__ import annotations

import pytest

from headrace.store.redis.errors import OutcomeUnknown, RedisError, StoreAway, StoreError
from headrace.store.starting import patiently


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

"""A node that leaves: its partitions are closed one by one, and its lease is given back whatever becomes of one."""

from __future__ import annotations

import logging

import pytest

from headrace.store.redis.errors import RedisError
from tests.store.conftest import OpenStore
from tests.store.produced import until

LEASE_MS = 60_000


async def test_a_partition_that_cannot_be_closed_keeps_neither_others_nor_the_lease(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leaving = await open_store(node_lease_ms=LEASE_MS)
    topic = await leaving.default.catalogue.create("orders", 2, {})
    moving, other = [await leaving.default.partition(topic, number) for number in range(2)]
    saved: list[int] = []

    async def refuse() -> None:
        raise RedisError("MOVED 12305 127.0.0.1:7000")

    async def save() -> None:
        saved.append(other.number)

    monkeypatch.setattr(moving, "save_producers", refuse)
    monkeypatch.setattr(other, "save_producers", save)
    with caplog.at_level(logging.WARNING):
        await leaving.hand_over()
    assert saved == [other.number]
    assert "not all partitions were closed cleanly" in caplog.messages
    staying = await open_store(node_id=1, node_lease_ms=LEASE_MS)
    await until(lambda: [node.id for node in staying.nodes.live] == [1])

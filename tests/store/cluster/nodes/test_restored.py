"""What a node says it has restored: those that were away wait for the word."""

from __future__ import annotations

import pytest

from headrace.store.redis.errors import StoreError
from tests.store.conftest import OpenStore
from tests.store.produced import new_servers, until
from tests.store.proxy import Fate, Proxy
from tests.store.servers import Valkey

LEASE_MS = 60_000


@pytest.mark.parametrize("fate", ["swallow", "lose reply"])
async def test_what_did_not_arrive_is_said_again(
    valkey: Valkey, open_store: OpenStore, proxy: Proxy, fate: Fate
) -> None:
    store = await open_store(via=proxy, node_lease_ms=LEASE_MS)
    before = store.topology.runs
    async with new_servers(store):
        valkey.go_back_to(valkey.checkpoint())
    await store.leases.wait_up(20)
    await until(lambda: bool(store.nodes.restored.news))

    async def said() -> str:
        row = await store.leases.row(0)
        assert row is not None
        return row.restored_on

    proxy.trap(fate, lambda sent: b"restored_on" in sent)
    with pytest.raises(StoreError):
        await store.nodes.renew()
    await store.leases.wait_up(20)
    await store.nodes.renew()
    assert await said() == store.topology.runs != before

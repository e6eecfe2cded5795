"""What a node says it has restored: those that were away wait for the word."""

from __future__ import annotations

import pytest

from headrace.store.redis.errors import StoreError
from tests.store.conftest import OpenStore
from tests.store.produced import until
from tests.store.proxy import Fate, Proxy

LEASE_MS = 60_000


@pytest.mark.parametrize("fate", ["swallow", "lose reply"])
async def test_what_did_not_arrive_is_said_again(open_store: OpenStore, proxy: Proxy, fate: Fate) -> None:
    store = await open_store(node_id=0, via=proxy, node_lease_ms=LEASE_MS)
    waiting = await open_store(node_id=1, node_lease_ms=LEASE_MS)
    await waiting.nodes.claim("starting")

    async def says_so() -> bool:
        row = await waiting.leases.row(0)
        return row is not None and row.restored_on == store.leases.identity

    proxy.trap(fate, lambda sent: b"restored_on" in sent)
    with pytest.raises(StoreError):
        await store.nodes.renew()
    await store.leases.wait_up(20)
    await store.nodes.renew()
    await until(says_so)

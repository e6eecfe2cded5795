"""An answer is of one moment, although the store is asked while it is made."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headrace.broker.access import Access
from headrace.broker.broker import Broker
from headrace.broker.call import Call
from headrace.broker.handlers import metadata
from headrace.broker.options import BrokerOptions
from headrace.groups.settings import GroupSettings
from headrace.security.caller import ANONYMOUS, Caller
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.nodes.endpoints import DEFAULT_LISTENER, node_at
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conftest import StartRedis


async def test_metadata_names_no_leader_that_is_not_among_its_nodes(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node leaves while the second of two topics is looked for."""
    store = Store(parse_address(start_redis().url), node_at(0, "127.0.0.1", 9092), StoreOptions())
    await store.start()
    try:
        for name in ("one", "two"):
            await store.default.catalogue.create(name, 8, {})
        nodes = store.nodes
        nodes._change([nodes.me, node_at(1, "127.0.0.1", 9093)])
        find = store.default.catalogue.find

        async def find_and_lose(name: str) -> Topic | None:
            if name == "two" and len(nodes.live) > 1:
                nodes._change([nodes.me])
            return await find(name)

        monkeypatch.setattr(store.default.catalogue, "find", find_and_lose)
        broker = Broker(store, BrokerOptions(), GroupSettings())
        access = Access(broker, Caller(ANONYMOUS, "default", DEFAULT_LISTENER))
        call = Call(access, 12, "", cast("Any", None))
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in ("one", "two")])
        answer = await metadata.handle(call, request)
        leaders = {partition.leader_id for topic in answer.topics for partition in topic.partitions}
        assert leaders == {node.node_id for node in answer.brokers} == {0}
    finally:
        await store.close()

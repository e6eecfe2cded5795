"""Cold reads know how much a node serves besides them."""

from __future__ import annotations

from unittest.mock import Mock

from headrace.broker.network.server import Server
from headrace.broker.options import BrokerOptions
from headrace.clock import Clock
from headrace.wire.apis import FETCH, METADATA, PRODUCE


async def test_produces_and_fetches_of_hot_records_count_as_others() -> None:
    broker = Mock(options=BrokerOptions())
    broker.store.organisations = {"default": None}
    broker.store.clock = Clock()
    broker.store.cold_reads.fetches = 0
    server = Server(broker)
    others = broker.store.cold_reads.pace.others
    assert others() == 0
    for api_key in (PRODUCE, PRODUCE, FETCH, FETCH, FETCH, METADATA):
        server.requests.took(api_key, 0.01)
    assert others() == 5
    broker.store.cold_reads.fetches = 3
    assert others() == 2

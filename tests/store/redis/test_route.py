"""The way to a slot's server, whichever server that is."""

from __future__ import annotations

import asyncio

from headrace.store.embedded.ports import HOST, free_ports
from headrace.store.options import StoreOptions
from headrace.store.redis.address import Address, parse_address
from headrace.store.redis.errors import RedisError
from headrace.store.redis.link import RedisLink
from headrace.store.redis.route import Route
from headrace.store.redis.shard import Shard
from tests.store.servers import Valkey
from tests.stores import of_one_server

pytestmark = of_one_server


async def test_whoever_waits_for_a_server_that_is_gone_waits_for_the_one_that_takes_over(valkey: Valkey) -> None:
    gone = Shard(Address(HOST, free_ports(1)[0]), StoreOptions())
    taking_over = Shard(parse_address(valkey.url), StoreOptions())

    def redirected(error: RedisError, _: RedisLink) -> Shard:
        raise error

    route = Route(gone, lambda shard: shard.link, redirected)
    gone.start_soon()
    await taking_over.start()
    try:
        waiting = asyncio.create_task(route.wait_up(60))
        await asyncio.wait([waiting], timeout=0)
        route.lead_to(taking_over)
        await asyncio.wait_for(waiting, 10)
    finally:
        await gone.close()
        await taking_over.close()

"""The limit of stored bytes on a cluster: what one server has cannot be counted while it is away, all else can."""

from __future__ import annotations

from pathlib import Path

from headrace.broker.broker import Broker
from headrace.broker.options import BrokerOptions
from headrace.groups.settings import GroupSettings
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.security.tenants import TenantLimits
from headrace.store.store import Store
from tests.clusters import ClusterOfServers, running
from tests.store.produced import is_up, produce, until

ORGANISATIONS = ["acme", "bolt"]
PARTITIONS = 32


async def test_stored_bytes_are_counted_where_servers_answer_though_another_one_is_away(tmp_path: Path) -> None:
    with running(ClusterOfServers(tmp_path / "servers", replicas=0)) as servers:
        store = Store(parse_address(servers.url), node_at(0, "127.0.0.1", 9092), StoreOptions())
        await store.start()
        broker = Broker(store, BrokerOptions(), GroupSettings())
        try:
            await until(lambda: is_up(store))
            needed = {servers.owner_of_key(key) for key in (store.keys.usage, store.keys.nodes)}
            away = next(server for server in servers.servers if server not in needed)
            gone = next(shard for shard in store.topology.shards if shard.link.address.port == away.port)
            for name in ORGANISATIONS:
                await store.tenants.put(name, TenantLimits(bytes_stored=10))
                organisation = store.organisations[name]
                topic = await organisation.catalogue.create("orders", PARTITIONS, {})
                slots = [store.topology.slot_of(topic.keys(organisation.keys, at).log) for at in range(PARTITIONS)]
                well = next(at for at, slot in enumerate(slots) if slot.shard is not gone)
                assert gone in {slot.shard for slot in slots}
                await produce(await organisation.partition(topic, well), b"x" * 100)
            away.kill()
            await until(lambda: not gone.link.is_up)
            broker.start()
            await until(lambda: store.usage.full == set(ORGANISATIONS))
        finally:
            broker.stop()
            await store.close()

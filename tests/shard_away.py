"""A broker on a cluster of three servers without replicas, one of which hangs; the others have some of everything."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import msgspec

from headrace.client import Admin, Cluster, Groups, Producer, Transactions
from headrace.wire.special_times import EARLIEST, LATEST
from tests.broker_process import BrokerProcess, free_port, wait_until
from tests.clusters import ClusterOfServers, running
from tests.conftest import NO_RETENTION
from tests.lake.local_archive import archive_locally

LOGS, STREAMS, TIERED = "orders", "clicks", "sales"
PARTITIONS = 12
RECORDS = 3
NAMES = [f"name-{number}" for number in range(8)]
"""Of groups, and of transactional ids."""
GROUPS_KEY, TRANSACTIONS_KEY = "headrace:default:groups", "headrace:default:transactions"
"""The lists of their names; the first is on the server that has the leases, too."""
_NOTICED_S = 30.0
_LEASE_MS = 60_000
"""Its server may be the one that hangs: without a lease a broker that a busy machine holds up serves nothing."""


class ShardAway(msgspec.Struct, frozen=True):
    """What is on the server that hangs; all else is on the others."""

    broker: BrokerProcess
    logs: list[int]
    """Partitions."""
    streams: list[int]
    groups: list[str]
    transactions: list[str]
    lake: Path
    """With a table of the first topic."""

    def there(self, away: list[int]) -> list[int]:
        return [partition for partition in range(PARTITIONS) if partition not in away]

    def connect(self) -> Cluster:
        return Cluster(self.broker.address, 10.0)


@contextlib.contextmanager
def shard_away(folder: Path, key: str, **settings: object) -> Iterator[ShardAway]:
    """The server with this key hangs, and the broker knows."""
    with running(ClusterOfServers(folder / "cluster", replicas=0)) as servers:
        broker = BrokerProcess(
            folder / "data",
            redis=servers.url,
            http_port=free_port(),
            group_initial_rebalance_delay_ms=0,
            node_lease_ms=_LEASE_MS,
            **NO_RETENTION,
            **settings,
        )
        try:
            with Cluster(broker.start().address, 30.0) as cluster:
                _fill(cluster, tiered="lake" in settings)
                archive_locally(broker.address, folder / "lake", LOGS)
                victim = servers.owner_of_key(key)
                names = "\n".join(name.decode() for name in victim.ask("KEYS", "*"))
                victim.send_signal(SIGSTOP)
                try:
                    away = ShardAway(
                        broker,
                        sorted({int(n) for n in re.findall(rf"\{{{LOGS}:(\d+):", names)}),
                        sorted({int(n) for n in re.findall(rf"\{{{STREAMS}:(\d+)\}}", names)}),
                        sorted(set(re.findall(r"\{(name-\d)\}:offsets", names))),
                        sorted(set(re.findall(r"\{txn:(name-\d)\}", names))),
                        folder / "lake",
                    )
                    assert all(away.there(them) and them for them in (away.logs, away.streams))
                    assert 0 < len(away.groups) < len(NAMES)
                    assert 0 < len(away.transactions) < len(NAMES)
                    with cluster.impatient(0.0):
                        wait_until(lambda: _is_noticed(cluster, away), "the broker notices nothing", _NOTICED_S)
                    yield away
                finally:
                    victim.send_signal(SIGCONT)
        finally:
            broker.end()


def _fill(cluster: Cluster, *, tiered: bool) -> None:
    admin, groups, transactions = Admin(cluster), Groups(cluster), Transactions(cluster)
    admin.create_topic(LOGS, PARTITIONS)
    admin.create_topic(STREAMS, PARTITIONS, {"headrace.format": "stream"})
    if tiered:
        admin.create_topic(TIERED, PARTITIONS, {"remote.storage.enable": "true"})
    places = [(topic, partition) for topic in (LOGS, STREAMS) for partition in range(PARTITIONS)]
    with Producer(cluster) as producer:
        for topic, partition in places:
            for number in range(RECORDS):
                producer.send(topic, b"%d" % number, partition=partition)
    starts = admin.list_offsets(dict.fromkeys(places, EARLIEST))
    for name in NAMES:
        groups.set_offsets(name, {place: at.offset for place, at in starts.items()})
        transactions.fence(name, 60_000)


def _is_noticed(cluster: Cluster, away: ShardAway) -> bool:
    places = [(LOGS, partition) for partition in range(PARTITIONS)]
    places += [(STREAMS, partition) for partition in range(PARTITIONS)]
    _, missing = Admin(cluster).known_offsets(dict.fromkeys(places, LATEST))
    return missing.keys() == {(LOGS, p) for p in away.logs} | {(STREAMS, p) for p in away.streams}

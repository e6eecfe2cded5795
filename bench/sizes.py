"""What large catalogues and clusters cost one node: 100,000 partitions, 100 nodes, 10,000 connections.

The catalogue's rows and the other nodes' leases are written to the store directly: what is measured is what a node does
with them. An idle node is one that nobody talks to; its CPU with and without topics should be the same.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
from redis import Redis
from tests.broker.peers import connect, metadata
from tests.broker_process import BrokerProcess, RedisProcess, wait_until

from bench.processes import cpu_s
from bench.report import Figure, Report
from bench.systems import broker_process
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.identity import kafka_uuid, new_id
from headrace.store.cluster.nodes.endpoints import Registration, node_at, pack_registration
from headrace.store.keys import ClusterKeys
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse

_PARTITIONS = 10
_NODES = 100
_SETTLE_S = 25.0
_IDLE_S = 16.0
_IDLE_TIMES = 3
_SPARE_FILES = 200
_LEASE_MS = 3_600_000


def run(report: Report, *, quick: bool) -> None:
    topics, connections = (500, 500) if quick else (10_000, 10_000)
    with _broker(topics) as (broker, store):
        with _broker(0) as (other, _):
            values = _idle_ms({f"{topics:,} topics": broker, "no topics": other})
        report.add(Figure("sizes", "CPU of an idle node", "ms/s", values))
        for nodes in (1, _NODES):
            _write_nodes(store, nodes)
            wait_until(partial(_knows, broker, nodes), "the nodes do not come", timeout_s=60)
            took = {"first": [_metadata_s(broker)], "again": [_metadata_s(broker)]}
            what = f"metadata of {topics * _PARTITIONS:,} partitions on {nodes} nodes"
            report.add(Figure("sizes", what, "s", took))
        report.add(Figure("sizes", "memory with all topics", "MB", {"node": [broker.rss_bytes() / 1e6]}))
        with _connections(broker, connections) as opened:
            beside = f"beside {opened:,} connections"
            report.add(Figure("sizes", f"metadata of one topic {beside}", "ms", {"node": [_one_ms(broker)]}))
            report.add(Figure("sizes", f"memory {beside}", "MB", {"node": [broker.rss_bytes() / 1e6]}))


@contextlib.contextmanager
def _broker(topics: int) -> Iterator[tuple[BrokerProcess, RedisProcess]]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        store = RedisProcess(Path(name) / "store", "everysec")
        stack.callback(store.end)
        store.start()
        if topics:
            _write_topics(store, topics)
        broker = broker_process(Path(name) / "node", redis=store.url, connections_max=20_000, log_level="warning")
        stack.callback(broker.end)
        yield broker.start(), store


def _knows(broker: BrokerProcess, nodes: int) -> bool:
    with connect(broker) as connection:
        return len(metadata(connection, "topic-0").brokers) == nodes


def _one_ms(broker: BrokerProcess) -> float:
    with connect(broker) as connection:
        began = time.perf_counter()
        metadata(connection, "topic-0")
        return (time.perf_counter() - began) * 1000


def _idle_ms(brokers: dict[str, BrokerProcess]) -> dict[str, list[float]]:
    """CPU for each second, once the work of their start, and the first rounds of upkeep, are done.

    At the same time: what else the machine does is then the same for all.
    """
    time.sleep(_SETTLE_S)
    found: dict[str, list[float]] = {name: [] for name in brokers}
    for _ in range(_IDLE_TIMES):
        before = {name: cpu_s(broker.pid) for name, broker in brokers.items()}
        time.sleep(_IDLE_S)
        for name, broker in brokers.items():
            found[name].append((cpu_s(broker.pid) - before[name]) / _IDLE_S * 1000)
    return found


def _write_topics(store: RedisProcess, topics: int) -> None:
    key, now_ms = ClusterKeys().of("default").topics, int(time.time() * 1000)
    made = (Topic(f"topic-{n}", kafka_uuid(new_id(now_ms)), _PARTITIONS, {}, now_ms) for n in range(topics))
    with Redis.from_url(store.url) as redis:
        redis.hset(key, mapping={topic.name: msgspec.json.encode(topic) for topic in made})
        redis.hset(key, ":version", now_ms)


def _write_nodes(store: RedisProcess, nodes: int) -> None:
    """Those beside node 0, which is the one that is measured. Nobody listens at their addresses."""
    keys = ClusterKeys()
    with Redis.from_url(store.url) as redis:
        for number in range(1, nodes):
            row = Registration(node_at(number, "127.0.0.1", 1), "token")
            redis.set(keys.node(number), "token", px=_LEASE_MS)
            redis.hset(keys.nodes, str(number), pack_registration(row))


def _metadata_s(broker: BrokerProcess) -> float:
    with connect(broker) as connection:
        began = time.perf_counter()
        answer = connection.send_for(MetadataRequest(topics=None), MetadataResponse, 12)
        took_s = time.perf_counter() - began
        assert answer.topics
        return took_s


@contextlib.contextmanager
def _connections(broker: BrokerProcess, wanted: int) -> Iterator[int]:
    """As many as this process may open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.ExitStack() as stack:
        count = min(wanted, most - _SPARE_FILES)
        for _ in range(count):
            stack.enter_context(socket.create_connection((broker.host, broker.port)))
        yield count

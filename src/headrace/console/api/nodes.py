"""Nodes of the cluster, with the metrics of this machine's nodes and their Redis."""

from __future__ import annotations

import msgspec

from headrace.client import Admin, Cluster
from headrace.client.admin import BROKER
from headrace.console.endpoints import ApiQuestion
from headrace.console.facts import REDIS, read_fact
from headrace.console.samples import SampleRead
from headrace.wire.errors import KafkaError

_SHOWN = {
    "process_cpu_seconds_total": "CPU seconds",
    "process_resident_memory_bytes": "memory",
    "process_open_fds": "open files",
    "headrace_connections": "connections",
    "headrace_partitions_led": "partitions led",
    "headrace_tail_cache_bytes": "tail cache",
    "headrace_event_loop_long_turns_total": "long turns of the event loop",
    "headrace_request_failures_total": "failures",
}
_REDIS = (
    "headrace_redis_up",
    "headrace_redis_memory_percent",
    "headrace_redis_memory_bytes",
    "headrace_redis_memory_limit_bytes",
    "headrace_redis_full",
    "headrace_redis_timelines_total",
)


class NodeShown(msgspec.Struct, frozen=True):
    id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    ready: bool | None
    """Null for nodes on other machines."""
    numbers: dict[str, float]


class RedisShown(msgspec.Struct, frozen=True):
    """A Redis server, as one node sees it."""

    node: str
    server: str
    is_up: bool
    memory_percent: float
    used_bytes: float
    limit_bytes: float
    is_full: bool
    timelines: float
    """Restarts and failovers seen, each of which may have lost data."""
    reconnects: float


class ReplicaShown(msgspec.Struct, frozen=True):
    """A copy of a server."""

    address: str
    state: str
    behind_bytes: int | None


class ServerShown(msgspec.Struct, frozen=True):
    """A Redis server, from its INFO."""

    server: str
    version: str
    uptime_s: int
    clients: int
    used_bytes: int
    limit_bytes: int
    policy: str
    append_only: bool
    write_status: str
    rewriting: bool
    last_save_s: int
    save_status: str
    replicas: list[ReplicaShown]


class NodesShown(msgspec.Struct, frozen=True):
    cluster_id: str | None
    nodes: list[NodeShown]
    redis: list[RedisShown]
    servers: list[ServerShown]
    events: dict[str, float]
    """Problems detected by the store, by kind."""
    durability: str


class NodeConfig(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: str
    read_only: bool


class NodeConfigs(msgspec.Struct, frozen=True):
    node: int
    configs: list[NodeConfig]


def show_nodes(cluster: Cluster, question: ApiQuestion) -> NodesShown:
    info = Admin(cluster).describe_cluster()
    state = question.state
    is_operator = not state.settings.needs_login or _may_see(cluster)
    here = {_node_of(readings): (readings, state.health[at]) for at, readings in enumerate(state.nodes) if readings}
    nodes = []
    for node in info.nodes:
        readings, ready = here.get(str(node.node_id), ([], None))
        numbers = {_SHOWN[r.name]: r.value for r in readings if r.name in _SHOWN and is_operator}
        is_controller = node.node_id == info.controller_id
        nodes.append(NodeShown(node.node_id, node.host, node.port, node.rack, is_controller, ready, numbers))
    redis = [row for readings, _ in here.values() for row in _redis(readings)] if is_operator else []
    events: dict[str, float] = {}
    for readings, _ in here.values() if is_operator else []:
        for reading in readings:
            if reading.name == "headrace_store_events_total":
                kind = reading.labels["event"]
                events[kind] = events.get(kind, 0.0) + reading.value
    servers = read_fact(cluster, str(info.controller_id), REDIS, list[ServerShown], BROKER) or []
    return NodesShown(info.cluster_id, nodes, redis, servers, events, state.settings.durability)


def show_node_configs(cluster: Cluster, question: ApiQuestion) -> NodeConfigs:
    node = question.number("node", 0, 0, 1 << 31)
    entries = Admin(cluster).describe_configs(str(node), BROKER)
    return NodeConfigs(
        node,
        [
            NodeConfig(entry.name, None if entry.is_sensitive else entry.value, entry.source, entry.read_only)
            for entry in sorted(entries, key=lambda entry: entry.name)
        ],
    )


def _may_see(cluster: Cluster) -> bool:
    """A node's numbers cover all organisations, so they need the right to see its configs."""
    try:
        Admin(cluster).describe_configs(str(next(iter(cluster.nodes))), BROKER, ["node.id"])
    except KafkaError:
        return False
    return True


def _node_of(readings: list[SampleRead]) -> str:
    return readings[0].labels.get("node", "")


def _redis(readings: list[SampleRead]) -> list[RedisShown]:
    by_server: dict[str, dict[str, float]] = {}
    for reading in readings:
        if reading.name in _REDIS or reading.name == "headrace_redis_reconnects_total":
            found = by_server.setdefault(reading.labels["server"], {})
            found[reading.name] = found.get(reading.name, 0.0) + reading.value
    node = _node_of(readings)
    return [
        RedisShown(
            node,
            server,
            bool(found.get("headrace_redis_up")),
            found.get("headrace_redis_memory_percent", 0.0),
            found.get("headrace_redis_memory_bytes", 0.0),
            found.get("headrace_redis_memory_limit_bytes", 0.0),
            bool(found.get("headrace_redis_full")),
            found.get("headrace_redis_timelines_total", 0.0),
            found.get("headrace_redis_reconnects_total", 0.0),
        )
        for server, found in sorted(by_server.items())
    ]

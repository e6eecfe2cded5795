"""The first page: health, throughput, and possible data loss in a crash."""

from __future__ import annotations

import msgspec

from headrace.client import Cluster, Groups
from headrace.console.api.topics import all_topics
from headrace.console.endpoints import ApiQuestion
from headrace.console.state import ConsoleState
from headrace.wire.errors import KafkaError

_LOSSES = {
    "always": "Nothing: all acknowledged records are on disk.",
    "everysec": "About the last second at most: the store flushes its file every second.",
    "memory": "Everything: the store keeps nothing on disk.",
}


class NodeHealth(msgspec.Struct, frozen=True):
    """A node of the cluster; `ready` and numbers are known only for nodes on this machine."""

    id: int
    host: str
    port: int
    is_controller: bool


class Overview(msgspec.Struct, frozen=True):
    cluster_id: str | None
    nodes: list[NodeHealth]
    nodes_ready: int | None
    """For nodes on this machine; null if there are none."""
    nodes_here: int
    topics: int
    partitions: int
    groups: int | None
    records_in_per_s: float | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    requests_per_s: float | None
    connections: float | None
    memory_bytes: float | None
    """All Redis servers together."""
    memory_limit_bytes: float | None
    durability: str
    crash_loss: str
    crash_loss_bytes: float | None
    """Approximate bytes lost, at the current rate."""
    gaps: float | None
    """Offsets lost since the nodes started."""
    failures: float | None
    rates: list[tuple[float, float]]
    """Recent bytes in: times and values of a counter."""


def show_overview(cluster: Cluster, question: ApiQuestion) -> Overview:
    state, organisation = question.state, question.visitor.organisation
    topics = all_topics(cluster, question)
    visible = [topic for topic in topics if not topic.is_internal and not topic.name.startswith("__")]
    try:
        groups: int | None = len(Groups(cluster).list_groups())
    except KafkaError:
        groups = None
    series, durability = state.series, state.settings.durability
    bytes_in = series.rate(("bytes_in", organisation))
    if bytes_in is None and state.settings.node_sockets:
        bytes_in = 0.0
    # A node's numbers cover all organisations.
    sees_nodes = not state.settings.needs_login or organisation == "default"
    lossy = {"everysec": bytes_in, "always": 0.0}
    return Overview(
        cluster_id=cluster.cluster_id,
        nodes=[
            NodeHealth(node.node_id, node.host, node.port, node.node_id == cluster.controller_id)
            for node in sorted(cluster.nodes.values(), key=lambda node: node.node_id)
        ],
        nodes_ready=sum(state.health) if state.health else None,
        nodes_here=len(state.health),
        topics=len(visible),
        partitions=sum(len(topic.partitions) for topic in visible),
        groups=groups,
        records_in_per_s=series.rate(("records_in", organisation)),
        bytes_in_per_s=bytes_in,
        bytes_out_per_s=series.rate(("bytes_out", organisation)),
        requests_per_s=series.rate(("requests",)) if sees_nodes else None,
        connections=state.total("headrace_connections") if sees_nodes else None,
        memory_bytes=_of_store(state, "headrace_redis_memory_bytes") if sees_nodes else None,
        memory_limit_bytes=_of_store(state, "headrace_redis_memory_limit_bytes") if sees_nodes else None,
        durability=durability,
        crash_loss=_LOSSES.get(durability, "Depends on the replication and persistence of the store."),
        crash_loss_bytes=lossy.get(durability),
        gaps=state.total("headrace_store_events_total", event="gaps") if sees_nodes else None,
        failures=state.total("headrace_request_failures_total") if sees_nodes else None,
        rates=series.points(("bytes_in", organisation)),
    )


def _of_store(state: ConsoleState, name: str) -> float | None:
    """Sums a metric over all servers. Every node reports every server, so one node's values are enough."""
    told = [sum(one.value for one in readings if one.name == name) for readings in state.nodes if readings]
    return max(told, default=None)

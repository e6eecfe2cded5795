"""The first page: whether all is well, how much goes on, and what a crash would lose now."""

from __future__ import annotations

import msgspec

from headrace.client import Cluster, Groups
from headrace.console.api.topics import all_topics
from headrace.console.endpoints import ApiQuestion
from headrace.console.state import ConsoleState
from headrace.wire.errors import KafkaError

_LOSSES = {
    "always": "Nothing: what was acknowledged is on disk.",
    "everysec": "At most about the last second: the store's file is flushed every second.",
    "memory": "Everything: the store keeps nothing on disk.",
}


class NodeHealth(msgspec.Struct, frozen=True):
    """A node of the cluster; ready and the numbers are known of this machine's nodes alone."""

    id: int
    host: str
    port: int
    is_controller: bool


class Overview(msgspec.Struct, frozen=True):
    cluster_id: str | None
    nodes: list[NodeHealth]
    nodes_ready: int | None
    """Of the nodes on this machine; null if there are none."""
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
    """Of all servers of the store."""
    memory_limit_bytes: float | None
    durability: str
    crash_loss: str
    crash_loss_bytes: float | None
    """About how many bytes that is at the rate of now."""
    gaps: float | None
    """Offsets lost since the nodes started."""
    failures: float | None
    rates: list[tuple[float, float]]
    """Bytes in, lately: times and values that only rise."""


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
    # Numbers of a whole node are about all its tenants.
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
        crash_loss=_LOSSES.get(durability, "That depends on how the store is replicated and saved."),
        crash_loss_bytes=lossy.get(durability),
        gaps=state.total("headrace_store_events_total", event="gaps") if sees_nodes else None,
        failures=state.total("headrace_request_failures_total") if sees_nodes else None,
        rates=series.points(("bytes_in", organisation)),
    )


def _of_store(state: ConsoleState, name: str) -> float | None:
    """A number of all servers: every node of this machine tells it of each, so one node's word is enough."""
    told = [sum(one.value for one in readings if one.name == name) for readings in state.nodes if readings]
    return max(told, default=None)

"""Facts that Headrace brokers return as JSON in configs requested by name. Other brokers have none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from headrace.client import Admin, Cluster, UnsupportedApi
from headrace.client.admin import TOPIC
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

TIERING, TABLE, STREAM, CACHED = "headrace.tiering", "headrace.lake", "headrace.stream", "headrace.cached"
REDIS = "headrace.redis"

T = TypeVar("T")


def read_fact(cluster: Cluster, name: str, fact: str, kind: type[T], resource: int = TOPIC) -> T | None:
    """One fact about a topic or node; None if the broker has none, or the visitor may not see it."""
    try:
        told = Admin(cluster).describe_configs(name, resource, [fact])
    except (KafkaError, UnsupportedApi):
        return None
    return _decoded((entry.value for entry in told if entry.name == fact), kind)


def read_fact_of_node(cluster: Cluster, node_id: int, topic: str, fact: str, kind: type[T]) -> T | None:
    """The same from a particular node: some facts are about its own memory."""
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, [fact])])
    try:
        answer = cluster.node(node_id).send_for(request, DescribeConfigsResponse)
    except (KafkaError, UnsupportedApi):
        return None
    told = (entry.value for result in answer.results for entry in result.configs if entry.name == fact)
    return _decoded(told, kind)


def _decoded(values: Iterable[str | None], kind: type[T]) -> T | None:
    try:
        return next((msgspec.json.decode(value, type=kind) for value in values if value), None)
    except msgspec.DecodeError:
        return None

"""Creating topics and partitions: the checks shared by CreateTopics, CreatePartitions and auto-creation."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from headrace.broker.administration import duplicates
from headrace.broker.topics.names import check_collision, check_topic_name
from headrace.security.acls import Operation
from headrace.store.redis.errors import StoreError
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.access import Access
    from headrace.broker.broker import Broker
    from headrace.store.cluster.catalogue import Topic

DEFAULT = -1
"""Partitions or replication factor as the broker sees fit."""
REPLICATION_FACTOR = 1
"""Default of a topic. More is only a list of nodes: the store keeps the copies."""


def check_new_name(access: Access, name: str) -> None:
    """Raises the error for a topic of this name, if there is one."""
    check_topic_name(name)
    taken = access.taken_names()
    if name in taken:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    check_collision(name, taken)


def check_new_topic(access: Access, name: str, partitions: int, planned: Sequence[int] = ()) -> None:
    """Raises the error for a topic of this name and size, if there is one.

    `planned` are the sizes of topics that were found good before this one and are not made.
    """
    check_new_name(access, name)
    check_partition_count(access, partitions, partitions + sum(planned))
    topics = len(access.taken_names()) + len(planned)
    if topics >= access.broker.options.topics_max:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are {topics} topics, the maximum (setting topics_max).")
    if access.limits.topics is not None and topics >= access.limits.topics:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are {topics} topics, the organisation's maximum.")


def check_partition_count(access: Access, total: int, added: int) -> None:
    """Raises INVALID_PARTITIONS for a number that makes no sense or goes beyond the limits."""
    options = access.broker.options
    if total <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if total > options.topic_partitions_max:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"A topic may have at most {options.topic_partitions_max} partitions (setting topic_partitions_max).",
        )
    present = access.partition_count()
    most = access.limits.partitions
    if most is not None and present + added > most:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The organisation may have at most {most} partitions; there are {present}.",
        )
    if present + added > options.partitions_max:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"All topics together may have at most {options.partitions_max} partitions (setting partitions_max); "
            f"there are {present}.",
        )


async def check_replication_factor(broker: Broker, factor: int) -> int:
    """The number of replicas that are meant; INVALID_REPLICATION_FACTOR if there are not as many nodes."""
    if factor < DEFAULT or factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if factor == DEFAULT:
        return REPLICATION_FACTOR
    nodes = len(broker.store.nodes.live)
    if factor > nodes:
        await _look_for_nodes(broker)
        nodes = len(broker.store.nodes.live)
    if factor > nodes:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {nodes} broker(s) are registered.",
        )
    return factor


async def check_replicas(broker: Broker, assignments: Sequence[list[int]], factor: int | None = None) -> int:
    """The number of replicas that each partition is given.

    Raises INVALID_REPLICA_ASSIGNMENT unless they are brokers that there are, and as many for each partition.
    """
    live = {node.id for node in broker.store.nodes.live}
    if not live.issuperset(chain.from_iterable(assignments)):
        await _look_for_nodes(broker)
        live = {node.id for node in broker.store.nodes.live}
    factor = factor or len(assignments[0])
    for replicas in assignments:
        if not replicas:
            reason = "The manual partition assignment includes an empty replica list."
        elif unknown := sorted(set(replicas) - live):
            reason = f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
        elif repeated := duplicates(replicas):
            reason = f"The manual partition assignment includes the broker {min(repeated)} more than once."
        elif len(replicas) != factor:
            reason = (
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {factor} replica(s)."
            )
        else:
            continue
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return factor


async def _look_for_nodes(broker: Broker) -> None:
    """A node is missed only after asking the store: it may have come a moment ago."""
    with contextlib.suppress(StoreError):
        await broker.store.nodes.refresh()


async def auto_create(access: Access, name: str) -> Topic:
    """The topic that a client named, created by us or concurrently by another node."""
    access.check_create_topic(name)
    partitions = access.broker.options.default_partitions
    check_new_topic(access, name, partitions)
    try:
        return await access.create_topic(name, partitions, {})
    except KafkaError as error:
        found = await access.find_topic(Operation.DESCRIBE, name)
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or found is None:
            raise
        return found

"""Making topics and partitions: the checks that CreateTopics, CreatePartitions and auto-creation share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.broker.administration import duplicates
from headrace.broker.topic_names import check_collision, check_topic_name
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.store.catalogue import Topic

DEFAULT = -1
"""Partitions or replication factor as the broker sees fit."""
REPLICATION_FACTOR = 1
"""Of every partition: the store is the one replica, whatever copies it keeps of itself."""


def check_new_name(broker: Broker, name: str) -> None:
    """Raises what stands in the way of a topic of this name."""
    check_topic_name(name)
    topics = broker.store.catalogue.by_name
    if name in topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    check_collision(name, topics)


def check_new_topic(broker: Broker, name: str, partitions: int, planned: Sequence[int] = ()) -> None:
    """Raises what stands in the way of a topic of this name and size.

    `planned` are the sizes of topics that were found good before this one and are not made.
    """
    check_new_name(broker, name)
    check_partition_count(broker, partitions, partitions + sum(planned))
    topics = len(broker.store.catalogue.by_name) + len(planned)
    if topics >= broker.options.topics_max:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are {topics} topics; topics_max allows no more.")


def check_partition_count(broker: Broker, total: int, added: int) -> None:
    """Raises INVALID_PARTITIONS for a number that makes no sense or goes beyond the limits."""
    options = broker.options
    if total <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if total > options.topic_partitions_max:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"A topic may have at most {options.topic_partitions_max} partitions (setting topic_partitions_max).",
        )
    present = sum(topic.partitions for topic in broker.store.catalogue.by_name.values())
    if present + added > options.partitions_max:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"All topics together may have at most {options.partitions_max} partitions (setting partitions_max); "
            f"there are {present}.",
        )


def check_replication_factor(broker: Broker, factor: int) -> None:
    """Raises INVALID_REPLICATION_FACTOR unless it is 1 or the default."""
    if factor < DEFAULT or factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if factor not in (DEFAULT, REPLICATION_FACTOR):
        nodes = len(broker.store.nodes.live)
        reason = "The store holds one replica of each partition for all brokers."
        if factor > nodes:
            reason = (
                f"The target replication factor of {factor} cannot be reached because only {nodes} broker(s) are "
                "registered."
            )
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition {factor} time(s): {reason}"
        )


def check_replicas(broker: Broker, assignments: Iterable[list[int]]) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT unless each partition is given one broker that there is.

    Which broker is not kept: leaders follow from the brokers that are alive (store/nodes.py).
    """
    live = {node.id for node in broker.store.nodes.live}
    for replicas in assignments:
        if not replicas:
            reason = "The manual partition assignment includes an empty replica list."
        elif unknown := sorted(set(replicas) - live):
            reason = f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
        elif repeated := duplicates(replicas):
            reason = f"The manual partition assignment includes the broker {min(repeated)} more than once."
        elif len(replicas) != REPLICATION_FACTOR:
            reason = (
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but the store "
                "holds one replica of each partition for all brokers."
            )
        else:
            continue
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


async def auto_create(broker: Broker, name: str) -> Topic:
    """The topic that a client asked for by name; made by us or, at the same moment, by somebody else."""
    check_new_topic(broker, name, broker.options.default_partitions)
    try:
        return await broker.store.catalogue.create(name, broker.options.default_partitions, {})
    except KafkaError as error:
        found = await broker.store.catalogue.find(name)
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or found is None:
            raise
        return found

"""Making topics: the checks that CreateTopics and auto-creation share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.topic_names import check_collision, check_topic_name
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.store.catalogue import Topic


def check_new_topic(broker: Broker, name: str, partitions: int) -> None:
    """Raises what stands in the way of a topic of this name and size."""
    check_topic_name(name)
    topics = broker.store.catalogue.by_name
    if name in topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    check_collision(name, set(topics))
    check_partition_count(broker, partitions, partitions)
    if len(topics) >= broker.options.topics_max:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are {len(topics)} topics; topics_max allows no more.")


def check_partition_count(broker: Broker, total: int, added: int) -> None:
    """Raises INVALID_PARTITIONS for a number that makes no sense or goes beyond the limits."""
    options = broker.options
    if total <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if total > options.topic_partitions_max:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"A topic may have at most {options.topic_partitions_max} partitions."
        )
    present = sum(topic.partitions for topic in broker.store.catalogue.by_name.values())
    if present + added > options.partitions_max:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"All topics together may have at most {options.partitions_max} partitions."
        )


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

"""Creating, altering, emptying and deleting topics."""

from __future__ import annotations

import msgspec

from headrace.client import Admin, Cluster
from headrace.console.endpoints import ApiQuestion, Done
from headrace.console.errors import bad


class NewTopic(msgspec.Struct, frozen=True):
    """-1: the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] = {}


class ConfigChanges(msgspec.Struct, frozen=True):
    """Values by name; null resets a config to its default."""

    configs: dict[str, str | None]


class MorePartitions(msgspec.Struct, frozen=True):
    count: int


class RecordsBefore(msgspec.Struct, frozen=True):
    """Offsets by partition: records before them are deleted; -1 means all."""

    offsets: dict[int, int]


def create_topic(cluster: Cluster, question: ApiQuestion) -> Done:
    new: NewTopic = question.body
    Admin(cluster).create_topic(new.name, new.partitions, new.configs, replication_factor=new.replication_factor)
    return Done()


def alter_configs(cluster: Cluster, question: ApiQuestion) -> Done:
    changes: ConfigChanges = question.body
    if not changes.configs:
        raise bad("Name at least one config.")
    Admin(cluster).alter_configs(question.path["topic"], changes.configs)
    return Done()


def add_partitions(cluster: Cluster, question: ApiQuestion) -> Done:
    more: MorePartitions = question.body
    Admin(cluster).create_partitions(question.path["topic"], more.count)
    return Done()


def delete_records(cluster: Cluster, question: ApiQuestion) -> Done:
    question.confirmed(question.path["topic"])
    before: RecordsBefore = question.body
    topic = question.path["topic"]
    Admin(cluster).delete_records({(topic, index): offset for index, offset in before.offsets.items()})
    return Done()


def delete_topic(cluster: Cluster, question: ApiQuestion) -> Done:
    question.confirmed(question.path["topic"])
    Admin(cluster).delete_topic(question.path["topic"])
    return Done()

"""What a command cannot know because a part of the store is away: it shows the rest, names this and exits with 1.

In a cluster one server may be away for hours while all others answer. Commands that only show something wait for it for
a moment; JSON says in the same rows what is unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from msgspec import Struct

from headrace.cli.cluster_option import words_for
from headrace.cli.output import ranges
from headrace.client import Cluster
from headrace.client.errors import AWAY
from headrace.wire.errors import KafkaError

Result = TypeVar("Result")
Where = TypeVar("Where", str, int)


class Reason(Struct, frozen=True):
    """Why something is unknown."""

    error: str
    why: str


class PartitionTrouble(Reason, frozen=True):
    """The same of some partitions."""

    partitions: list[int]


class NodeTrouble(Reason, frozen=True):
    """The same of some of what a node looks after: it is not known of which."""

    node: int


class Unknown:
    """Collects it while a command runs."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._is_any = False

    def note(self, what: str, error: KafkaError) -> Reason:
        """Something that is not known."""
        trouble = trouble_of(error)
        self._lines.append(f"{what}: {trouble.why} ({trouble.error})")
        return trouble

    def note_partitions(self, topic: str, missing: Mapping[int, KafkaError], what: str = "") -> list[PartitionTrouble]:
        """Partitions of a topic of which something is not known; by reason."""
        by_reason: dict[Reason, list[int]] = {}
        for partition, error in sorted(missing.items()):
            by_reason.setdefault(trouble_of(error), []).append(partition)
        for trouble, partitions in by_reason.items():
            noun = "partition" if len(partitions) == 1 else "partitions"
            self._lines.append(f"{what}{topic}, {noun} {ranges(partitions)}: {trouble.why} ({trouble.error})")
        return [PartitionTrouble(one.error, one.why, partitions) for one, partitions in by_reason.items()]

    def say(self) -> None:
        """Names it all, once."""
        while self._lines:
            click.echo(f"Error: {self._lines.pop(0)}", err=True)
            self._is_any = True

    def end(self) -> None:
        """At the end of a command: names it all, and exits with 1 if there is any."""
        self.say()
        if self._is_any:
            raise click.exceptions.Exit(1)


def note_nodes(unknown: Unknown, missing: Mapping[int, KafkaError], what: str, *, is_any: bool) -> list[NodeTrouble]:
    """Nodes that may have more than they can list now; raises if there is nothing to show beside that."""
    if not is_any:
        for error in missing.values():
            raise error
    noted = ((node, unknown.note(f"some {what} of node {node}", error)) for node, error in missing.items())
    return [NodeTrouble(trouble.error, trouble.why, node) for node, trouble in noted]


def trouble_of(error: KafkaError) -> Reason:
    """The error in words."""
    return Reason(error.code.name, words_for(error))


def is_away(error: KafkaError) -> bool:
    """Whether it may pass by itself, when all else is known."""
    return error.code in AWAY


def impatient(command: Callable[..., Result]) -> Callable[..., Result]:
    """For commands that only show something: they wait a moment for what is away. Below `cluster_options`."""

    @functools.wraps(command)
    def run(*args: Any, cluster: Cluster, **given: Any) -> Result:
        with cluster.impatient():
            return command(*args, cluster=cluster, **given)

    return run

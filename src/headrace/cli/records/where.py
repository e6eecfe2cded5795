"""Positions in a log as users write them: `earliest`, `4711`, `-10`, `2026-05-01T10:00:00Z`, `10m`.

`consume --from` and `groups reset --to` share this syntax.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import click
from msgspec import Struct

from headrace.cli.moments import FORMS, parse_moment
from headrace.client import Admin
from headrace.wire.special_times import EARLIEST, LATEST
from headrace.wire.topic_partition import TopicPartition

HELP = (
    "earliest, latest, an offset, -N for the last N of each partition, or a time: 2026-05-01T10:00:00Z, "
    "@1777629600000 (milliseconds), 10m (ago)."
)


class Where(Struct, frozen=True):
    """One of: EARLIEST or LATEST, an offset, a number of records before the end, a time."""

    special: int | None = None
    offset: int | None = None
    back: int | None = None
    moment_ms: int | None = None


def parse_where(text: str) -> Where | None:
    """Parses a position, or returns None."""
    match text.strip().lower():
        case "earliest":
            return Where(special=EARLIEST)
        case "latest":
            return Where(special=LATEST)
    if re.fullmatch(r"[0-9]{1,19}", text):
        return Where(offset=int(text))
    if re.fullmatch(r"-[0-9]{1,18}", text):
        return Where(back=-int(text))
    moment = parse_moment(text)
    return None if moment is None else Where(moment_ms=moment)


def read_where(ctx: click.Context, param: click.Parameter, given: str | None) -> Where | None:
    """A position given as an option."""
    if given is None:
        return None
    where = parse_where(given)
    if where is None:
        raise click.BadParameter(f"{given!r} is not earliest, latest, an offset, -N, {FORMS}")
    return where


def offsets_at(admin: Admin, partitions: Collection[TopicPartition], where: Where) -> dict[TopicPartition, int]:
    """The offset of a position in each partition, always within the partition's range."""
    if where.moment_ms is not None:
        end = latest(admin, partitions)
        found = admin.list_offsets(dict.fromkeys(partitions, max(where.moment_ms, 0)))
        return {p: at.offset if at.offset >= 0 else end[p] for p, at in found.items()}
    if where.special == EARLIEST:
        return earliest(admin, partitions)
    if where.special == LATEST:
        return latest(admin, partitions)
    if where.back is not None:
        refuse_streams(admin, partitions, f"-{where.back}")
    start, end = earliest(admin, partitions), latest(admin, partitions)
    wanted = {p: end[p] - where.back if where.back is not None else where.offset or 0 for p in partitions}
    return {p: min(max(at, start[p]), end[p]) for p, at in wanted.items()}


def refuse_streams(admin: Admin, partitions: Collection[TopicPartition], given: str) -> None:
    """Raises for topics of format `stream`: their offsets are times, so they cannot count records."""
    for topic in sorted({topic for topic, _ in partitions}):
        if [c.value for c in admin.describe_configs(topic, keys=["headrace.format"])] == ["stream"]:
            raise click.ClickException(
                f"{given} counts records by offset, but in {topic!r} (headrace.format=stream) offsets are times; "
                "give a time instead, such as 10m"
            )


def earliest(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The start of each partition."""
    return {p: found.offset for p, found in admin.list_offsets(dict.fromkeys(partitions, EARLIEST)).items()}


def latest(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The end of each partition."""
    return {p: found.offset for p, found in admin.list_offsets(dict.fromkeys(partitions, LATEST)).items()}

"""`headrace groups reset`: prints a plan and, with --execute, commits it.

Groups with members are refused, even in a dry run: the consumers would continue at their own positions and overwrite
the new offsets. New offsets are always within the partition's range.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path

import click
from msgspec import Struct

from headrace.cli.cluster_option import cluster_options
from headrace.cli.groups.offsets_file import read_offsets
from headrace.cli.groups.view import existing
from headrace.cli.output import count_of, number, print_json, print_table, text
from headrace.cli.records.where import HELP, Where, earliest, latest, offsets_at, read_where, refuse_streams
from headrace.client import Admin, Cluster, Groups
from headrace.client.group_types import SHARE
from headrace.client.groups import CommittedOffset
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.topic_partition import TopicPartition

_EMPTY = "Empty"


class NewOffset(Struct, frozen=True):
    """One line of the plan; `before` is None if nothing was committed."""

    topic: str
    partition: int
    before: int | None
    offset: int
    note: str = ""


class ResetPlan(Struct, frozen=True):
    group: str
    executed: bool
    offsets: list[NewOffset]


@click.command()
@click.argument("group")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:PARTITIONS]",
    help="A topic, or some partitions of it: orders:0,2. May be repeated.",
)  # fmt: skip
@click.option("--all-topics", is_flag=True, help="All topics with offsets committed by the group.")
@click.option("--to", "where", metavar="WHERE", callback=read_where, help=HELP)
@click.option("--shift", type=int, metavar="N", help="Move forward by N records, or back if N is negative.")
@click.option(
    "--from-file", "file", type=click.Path(path_type=Path, dir_okay=False),
    help="Offsets from a file: CSV lines topic,partition,offset, or output of --json.",
)  # fmt: skip
@click.option("--execute", is_flag=True, help="Apply the plan; without this it is only shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@cluster_options
def reset(
    cluster: Cluster,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    where: Where | None,
    shift: int | None,
    file: Path | None,
    execute: bool,
    as_json: bool,
) -> None:
    """Change the committed offsets of GROUP. Shows the plan; --execute applies it.

    \b
    Examples:
      headrace groups reset billing --all-topics --to earliest
      headrace groups reset billing --topic orders:0,2 --to 2026-05-01
      headrace groups reset billing --topic orders --shift -100 --execute
      headrace groups reset billing --all-topics --to latest --json >plan.json
      headrace groups reset billing --from-file plan.json --execute
    """
    if sum(given is not None for given in (where, shift, file)) != 1:
        raise click.UsageError("give one of --to, --shift and --from-file")
    if file is None and all_topics == bool(topics):
        raise click.UsageError("give --topic or --all-topics")
    if file is not None and (topics or all_topics):
        raise click.UsageError("--from-file names the topics itself")
    with contextlib.nullcontext() if execute else cluster.impatient():
        _refuse_active(cluster, group)
        committed = Groups(cluster).offsets(group)
        if file is not None:
            wanted = _within(cluster, read_offsets(file))
        else:
            partitions = _chosen(cluster, topics) if topics else existing(cluster, sorted(committed))
            wanted = _moved(cluster, partitions, committed, where, shift)
    lines = _lines(committed, wanted)
    if execute and lines:
        _commit(cluster, group, lines)
    _show(ResetPlan(group, execute and bool(lines), lines), as_json)


def _refuse_active(cluster: Cluster, group: str) -> None:
    try:
        info = Groups(cluster).describe_group(group)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return  # offsets may be set for a group that does not exist yet
        raise
    if info.type == SHARE:
        raise click.ClickException(f"{group!r} is a share group, which has no committed offsets")
    if info.state != _EMPTY:
        raise click.ClickException(
            f"group {group!r} is {info.state} with {count_of(len(info.members), 'active member')}; stop them first"
        )


def _chosen(cluster: Cluster, topics: Collection[str]) -> list[TopicPartition]:
    """The partitions that `--topic` names."""
    chosen: list[TopicPartition] = []
    for given in topics:
        topic, colon, listed = given.partition(":")
        there = [p.index for p in Admin(cluster).describe_topic(topic).partitions]
        for part in listed.split(",") if colon else map(str, there):
            if not part.strip().isdecimal():
                raise click.UsageError(f"--topic {given!r} is not TOPIC or TOPIC:0,1,2")
            if int(part) not in there:
                raise click.ClickException(f"{topic} has no partition {int(part)}; it has 0 to {len(there) - 1}")
            chosen.append((topic, int(part)))
    return sorted(set(chosen))


def _moved(
    cluster: Cluster,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    where: Where | None,
    shift: int | None,
) -> dict[TopicPartition, tuple[int, str]]:
    if where is not None:
        asked = where.offset
        found = offsets_at(Admin(cluster), partitions, where)
        return {p: (at, _note(asked, at)) for p, at in found.items()}
    missing = [f"{topic}-{partition}" for topic, partition in partitions if (topic, partition) not in committed]
    if missing:
        raise click.ClickException(f"nothing is committed to shift for {', '.join(missing)}")
    if shift:
        refuse_streams(Admin(cluster), partitions, f"--shift {shift}")
    return _within(cluster, {p: committed[p].offset + (shift or 0) for p in partitions})


def _within(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, str]]:
    """The offsets, clamped to the partition's start and end, with a note if they were moved."""
    start, end = earliest(Admin(cluster), wanted), latest(Admin(cluster), wanted)
    held = {p: min(max(at, start[p]), end[p]) for p, at in wanted.items()}
    return {p: (held[p], _note(at, held[p])) for p, at in wanted.items()}


def _note(asked: int | None, given: int) -> str:
    if asked is None or asked == given:
        return ""
    return f"{asked} is before the start" if asked < given else f"{asked} is after the end"


def _lines(
    committed: Mapping[TopicPartition, CommittedOffset], wanted: Mapping[TopicPartition, tuple[int, str]]
) -> list[NewOffset]:
    return [
        NewOffset(topic, partition, before.offset if (before := committed.get((topic, partition))) else None, at, note)
        for (topic, partition), (at, note) in sorted(wanted.items())
    ]


def _commit(cluster: Cluster, group: str, lines: list[NewOffset]) -> None:
    try:
        Groups(cluster).set_offsets(group, {(line.topic, line.partition): line.offset for line in lines})
    except KafkaError as error:
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            raise click.ClickException(f"group {group!r} has active members again; stop them first") from None
        raise


def _show(plan: ResetPlan, as_json: bool) -> None:
    if as_json:
        print_json(plan)
    elif not plan.offsets:
        click.echo(f"{plan.group} has nothing committed; name topics with --topic")
    else:
        columns = [text("TOPIC"), number("PARTITION"), number("BEFORE"), number("NEW"), number("CHANGE")]
        rows: list[list[str | int | None]] = [
            [line.topic, str(line.partition), line.before, line.offset, _change(line)] for line in plan.offsets
        ]
        if any(line.note for line in plan.offsets):
            columns.append(text("NOTE"))
            rows = [[*row, line.note or " "] for row, line in zip(rows, plan.offsets, strict=True)]
        print_table(columns, rows)
        click.echo()
        click.echo("done" if plan.executed else "dry run: nothing was changed; use --execute to apply it")


def _change(line: NewOffset) -> str | None:
    return None if line.before is None else f"{line.offset - line.before:+,}"

"""`headrace groups`: list, describe, lag, reset and delete consumer groups."""

from __future__ import annotations

import sys

import click
from msgspec import Struct

from headrace.cli.cluster_option import cluster_options
from headrace.cli.groups.reset import reset
from headrace.cli.groups.view import GroupView, PositionView, sum_records, view_group, view_positions
from headrace.cli.output import Cell, number, print_facts, print_json, print_table, ranges, text, word
from headrace.cli.unknown import PartitionTrouble, Reason, Unknown, impatient, is_away, note_nodes
from headrace.client import Cluster, Groups
from headrace.client.admin import Missing, of_topic
from headrace.client.group_types import CLASSIC
from headrace.wire.errors import ErrorCode, KafkaError

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


@click.group()
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


groups.add_command(reset)


@groups.command("list")
@click.option("--state", "states", multiple=True, help="Only groups in this state, such as Stable. May be repeated.")
@json_option
@cluster_options
@impatient
def list_groups(cluster: Cluster, states: tuple[str, ...], as_json: bool) -> None:
    """List groups with their states.

    \b
    Examples:
      headrace groups list
      headrace groups list --state Empty --json
    """
    wanted = {state.lower() for state in states}
    unknown = Unknown()
    known, missing = Groups(cluster).known_groups()
    found = [g for g in known if not wanted or g.state.lower() in wanted]
    troubles = note_nodes(unknown, missing, "groups", is_any=bool(known))
    if as_json:
        print_json([*found, *troubles])
    elif not found and not troubles:
        click.echo("no groups")
    elif found:
        columns = [text("GROUP"), word("STATE"), word("PROTOCOL"), word("TYPE")]
        print_table(columns, [(g.group_id, g.state, g.protocol_type, g.type) for g in found])
    unknown.end()


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@json_option
@cluster_options
@impatient
def describe(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> None:
    """Show groups: members with their assignments, and position, end and lag per partition.

    \b
    Examples:
      headrace groups describe billing
      headrace groups describe billing --json
    """
    unknown = Unknown()
    views: list[GroupView] = []
    troubles: list[UnknownGroup] = []
    for name in names:
        try:
            view, missing = view_group(cluster, name)
        except KafkaError as error:
            troubles.append(_unknown_group(unknown, name, error))
            continue
        views.append(view)
        _note_ends(unknown, name, missing)
    if as_json:
        print_json([*views, *troubles])
    for at, view in enumerate(() if as_json else views):
        if at:
            click.echo()
        _show(view)
    unknown.end()


def _unknown_group(unknown: Unknown, group: str, error: KafkaError) -> UnknownGroup:
    if not is_away(error):
        raise error
    trouble = unknown.note(group, error)
    return UnknownGroup(trouble.error, trouble.why, group)


def _note_ends(unknown: Unknown, group: str, missing: Missing) -> dict[str, list[PartitionTrouble]]:
    topics = sorted({topic for topic, _ in missing})
    return {topic: unknown.note_partitions(topic, of_topic(missing, topic), f"{group}: lag in ") for topic in topics}


def _show(view: GroupView) -> None:
    facts: list[tuple[str, str | int | None]] = [
        ("id", view.id),
        ("locator", view.locator),
        ("state", view.state),
        ("generation", view.generation),
        ("protocol", " / ".join(part for part in (view.protocol_type, view.protocol) if part)),
        ("members", str(len(view.members))),
        ("lag", view.lag),
        ("records", view.records if view.records != view.lag else None),
    ]
    print_facts(view.group, facts)
    if view.members:
        click.echo()
        _show_members(view)
    click.echo()
    if view.positions:
        _show_positions(view)
    else:
        click.echo("nothing committed")


def _show_members(view: GroupView) -> None:
    static = any(m.instance_id for m in view.members)
    columns = [number("#"), text("CLIENT"), text("HOST"), text("READS"), text("MEMBER ID")]
    columns[2:2] = [text("INSTANCE")] if static else []
    rows = []
    for m in view.members:
        reads = "; ".join(f"{topic} {ranges(partitions)}" for topic, partitions in sorted(m.assignment.items()))
        row = [str(m.number), m.client_id, m.host, reads, m.member_id]
        row[2:2] = [m.instance_id or ""] if static else []
        rows.append(row)
    print_table(columns, rows)


def _show_positions(view: GroupView) -> None:
    clients = {m.number: f"#{m.number} {m.client_id}" for m in view.members}
    shows_records = any(p.records != p.lag for p in view.positions)
    columns = [text("TOPIC"), number("PARTITION"), number("POSITION"), number("END"), number("LAG"), text("MEMBER")]
    columns[5:5] = [number("RECORDS")] if shows_records else []
    rows = []
    for p in view.positions:
        row: list[Cell] = [p.topic, str(p.partition), p.position, p.end, p.lag, clients.get(p.member or 0)]
        row[5:5] = [p.records] if shows_records else []
        rows.append(row)
    print_table(columns, rows)


class UnknownGroup(Reason, frozen=True):
    """A group of which nothing is known now."""

    group: str


class TopicLag(Struct, frozen=True, omit_defaults=True):
    """A group's lag in a topic; `unknown` counts deleted partitions, and those of which the store is away.

    `records` is the lag in records, which differs from the lag in offsets for topics of format `stream`.
    """

    group: str
    topic: str
    partitions: int
    lag: int
    records: int | None
    unknown: int
    away: list[PartitionTrouble] = []


@groups.command()
@click.argument("names", nargs=-1, metavar="[GROUP]...")
@json_option
@cluster_options
@impatient
def lag(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> None:
    """Show the lag per group and topic; of all groups if none is named.

    In topics of format stream, offsets are times and LAG is their difference; RECORDS is the number of records, or -
    if counting would take too long.

    \b
    Examples:
      headrace groups lag
      headrace groups lag billing --json
    """
    unknown = Unknown()
    listed, missing_nodes = Groups(cluster).known_groups()
    troubles: list[Reason] = [] if names else [*note_nodes(unknown, missing_nodes, "groups", is_any=bool(listed))]
    types = {group.group_id: group.type for group in listed}
    lags: list[TopicLag] = []
    for name in names or types:
        try:
            if missing_nodes or name in types:
                Groups(cluster).describe_group(name)  # refused at once where offsets would be waited for
            positions, missing = view_positions(cluster, name, types.get(name, CLASSIC))
        except KafkaError as error:
            troubles.append(_unknown_group(unknown, name, error))
            continue
        lags += _lags(name, positions, _note_ends(unknown, name, missing))
    if as_json:
        print_json([*lags, *troubles])
    elif not lags and not troubles:
        click.echo(f"{', '.join(names)}: nothing committed" if names else "no group has committed offsets")
    elif lags:
        columns = [text("GROUP"), text("TOPIC"), number("PARTITIONS"), number("LAG")]
        rows: list[list[Cell]] = [[found.group, found.topic, found.partitions, found.lag] for found in lags]
        if any(found.records != found.lag for found in lags):
            columns.append(number("RECORDS"))
            rows = [[*row, found.records] for row, found in zip(rows, lags, strict=True)]
        print_table(columns, rows)
    unknown.end()


def _lags(group: str, positions: list[PositionView], away: dict[str, list[PartitionTrouble]]) -> list[TopicLag]:
    by_topic: dict[str, list[PositionView]] = {}
    for position in positions:
        by_topic.setdefault(position.topic, []).append(position)
    return [
        TopicLag(
            group=group,
            topic=topic,
            partitions=len(found),
            lag=sum(p.lag or 0 for p in found),
            records=sum_records(found),
            unknown=sum(p.lag is None for p in found),
            away=away.get(topic, []),
        )
        for topic, found in by_topic.items()
    ]


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation (asked only on a terminal).")
@cluster_options
def delete(cluster: Cluster, names: tuple[str, ...], yes: bool) -> None:
    """Delete groups with their committed offsets. Groups with members cannot be deleted.

    \b
    Examples:
      headrace groups delete billing
      headrace groups delete billing audit --yes
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} with committed offsets?", abort=True)
    for name in names:
        try:
            Groups(cluster).delete_group(name)
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                raise click.ClickException(f"there is no group {name!r}") from None
            if error.code is ErrorCode.NON_EMPTY_GROUP:
                raise click.ClickException(f"group {name!r} has active members; stop them first") from None
            raise
        click.echo(f"deleted {name}")

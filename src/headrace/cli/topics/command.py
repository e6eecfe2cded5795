"""`headrace topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import fnmatch
import sys

import click

from headrace.cli.cluster_option import cluster_options
from headrace.cli.output import MISSING, count_of, number, print_facts, print_json, print_table, text, word
from headrace.cli.quantities import parse_size, parse_time, show_approximate_size, show_size, show_time
from headrace.cli.topics.view import TopicDetail, TopicView, listing, topic_id, view_details, view_topics
from headrace.cli.transactions.view import show_open
from headrace.cli.unknown import Unknown, impatient
from headrace.client import Admin, Cluster
from headrace.client.admin import DEFAULT_COUNT, of_topic
from headrace.store.cluster.identity import kafka_uuid
from headrace.wire.errors import ErrorCode, KafkaError

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def read_configs(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Parses `name=value` pairs; sizes and times may be written as `64MiB` and `7d`."""
    configs = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE, such as retention.ms=7d")
        read = {"ms": parse_time, "bytes": parse_size}.get(name.rpartition(".")[2])
        quantity = read(value) if read else None
        configs[name] = value if quantity is None else str(quantity)
    return configs


config_option = click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    callback=read_configs,
    help="A topic config, such as retention.ms=7d. May be repeated.",
)


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "-p",
    "--partitions",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of partitions.  [default: the broker's setting]",
)
@config_option
@click.option("--if-not-exists", is_flag=True, help="Leave an existing topic unchanged.")
@json_option
@cluster_options
def create(
    cluster: Cluster,
    names: tuple[str, ...],
    partitions: int | None,
    configs: dict[str, str],
    if_not_exists: bool,
    as_json: bool,
) -> None:
    """Create topics.

    \b
    Examples:
      headrace topics create orders
      headrace topics create orders --partitions 6 -c retention.ms=7d
    """
    admin = Admin(cluster)
    created = []
    for name in names:
        try:
            bits = admin.create_topic(name, partitions or DEFAULT_COUNT, configs)
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                if not as_json:
                    click.echo(f"{name} already exists")
                continue
            raise
        count = len(admin.describe_topic(name).partitions)
        created.append({"name": name, "id": topic_id(bits), "topic_id": kafka_uuid(bits), "partitions": count})
        if not as_json:
            click.echo(f"created {name} with {count_of(count, 'partition')}, {topic_id(bits)}")
    if as_json:
        print_json(created)


@topics.command("list")
@click.argument("pattern", required=False)
@json_option
@cluster_options
@impatient
def list_topics(cluster: Cluster, pattern: str | None, as_json: bool) -> None:
    """List topics with their counts; only those that match PATTERN, if given.

    \b
    Examples:
      headrace topics list
      headrace topics list 'orders-*' --json
    """
    found = [t for t in Admin(cluster).list_topics() if pattern is None or fnmatch.fnmatchcase(t.name, pattern)]
    unknown = Unknown()
    views, missing = view_topics(cluster, found)
    listed = [listing(one, unknown.note_partitions(one.name, of_topic(missing, one.name))) for one in views]
    if as_json:
        print_json(listed)
    elif not listed:
        click.echo("no topics" if pattern is None else f"no topics match {pattern}")
    else:
        columns = [text("TOPIC"), number("PARTITIONS"), number("RECORDS"), number("SIZE"), word("ID")]
        print_table(columns, [(t.name, t.partitions, t.records, _size(t.size_bytes), t.id) for t in listed])
    unknown.end()


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--all-configs", is_flag=True, help="Also show configs with default values.")
@json_option
@cluster_options
@impatient
def describe(cluster: Cluster, names: tuple[str, ...], all_configs: bool, as_json: bool) -> None:
    """Show topics: ids, partitions, and non-default configs.

    \b
    Examples:
      headrace topics describe orders
      headrace topics describe orders --all-configs --json
    """
    admin = Admin(cluster)
    unknown = Unknown()
    views, missing = view_topics(cluster, [admin.describe_topic(name) for name in names])
    for view in views:
        unknown.note_partitions(view.name, of_topic(missing, view.name))
    details = [view_details(admin, view, all_configs=all_configs) for view in views]
    if as_json:
        print_json(details)
    for at, topic in enumerate(() if as_json else details):
        if at:
            click.echo()
        _show(topic)
    unknown.end()


def _show(topic: TopicDetail) -> None:
    facts: list[tuple[str, str | int | None]] = [
        ("id", topic.id),
        ("Kafka's id", topic.topic_id),
        *([("locator", topic.locator)] if topic.locator else []),
        ("partitions", str(len(topic.partitions))),
        ("records", MISSING if topic.records is None else topic.records),
        ("size", _size(topic.size_bytes)),
    ]
    print_facts(topic.name, facts)
    click.echo()
    _show_partitions(topic)
    click.echo()
    if topic.tiering:
        _show_tiering(topic)
        click.echo()
    if topic.open_transactions:
        show_open(topic.open_transactions)
        click.echo()
    if not topic.configs:
        click.echo("every config has its default")
        return
    columns = [text("CONFIG"), text("VALUE"), text("SET BY")]
    rows = [(c.name, _readable(c.name, c.value), "read-only" if c.read_only else c.source) for c in topic.configs]
    print_table(columns, rows)


def _readable(name: str, value: str | None) -> str | None:
    """`604800000 (7d)`: a size or time, also in the largest unit that is exact."""
    show = {"ms": show_time, "bytes": show_size}.get(name.rpartition(".")[2])
    if show is None or value is None or not value.isdecimal() or (shown := show(int(value))) == value:
        return value
    return f"{value} ({shown})"


def _show_partitions(topic: TopicView) -> None:
    columns = [
        number("PARTITION"), number("LEADER"), number("EPOCH"),
        number("START"), number("END"), number("RECORDS"), number("SIZE"),
    ]  # fmt: skip
    rows = [
        (str(p.partition), str(p.leader), p.leader_epoch, p.start, p.end, p.records, _size(p.size_bytes))
        for p in topic.partitions
    ]
    print_table(columns, rows)


def _show_tiering(topic: TopicDetail) -> None:
    columns = [number("PARTITION"), number("LOG START"), number("IN REDIS FROM"), number("IN LAKE TO")]
    rows = [(str(p.partition), p.log_start, p.local_start, p.lake_end) for p in topic.tiering]
    print_table(columns, rows)
    for p in topic.tiering:
        if p.trouble:
            click.echo(f"partition {p.partition}: {p.trouble}")


def _size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else show_approximate_size(size_bytes)


@topics.command()
@click.argument("name", metavar="TOPIC")
@click.option("-p", "--partitions", metavar="N", type=click.IntRange(min=1), help="New number of partitions.")
@config_option
@click.option("--unset", multiple=True, metavar="NAME", help="Reset a config to its default. May be repeated.")
@click.option("--dry-run", is_flag=True, help="Check the change without applying it.")
@cluster_options
def alter(
    cluster: Cluster,
    name: str,
    partitions: int | None,
    configs: dict[str, str],
    unset: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change a topic's configs, or add partitions.

    Adding partitions moves keys: new records may go to a different partition than older ones with the same key.

    \b
    Examples:
      headrace topics alter orders -c retention.ms=1d -c retention.bytes=1GiB
      headrace topics alter orders --unset retention.bytes
      headrace topics alter orders --partitions 12
    """
    changes: dict[str, str | None] = {**configs, **dict.fromkeys(unset)}
    if not changes and partitions is None:
        raise click.UsageError("nothing to change: give --config, --unset or --partitions")
    if twice := set(configs) & set(unset):
        raise click.UsageError(f"{min(twice)} is both set and unset")
    admin = Admin(cluster)
    admin.describe_topic(name)
    if changes:
        admin.alter_configs(name, changes, validate_only=dry_run)
    if partitions is not None:
        admin.create_partitions(name, partitions, validate_only=dry_run)
    done = "would change" if dry_run else "changed"
    parts = [f"{key}={value}" if value is not None else f"{key} to its default" for key, value in changes.items()]
    parts += [f"partitions to {partitions}"] if partitions is not None else []
    click.echo(f"{done} {name}: {', '.join(parts)}")


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="Ignore topics that do not exist.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation (asked only on a terminal).")
@cluster_options
def delete(cluster: Cluster, names: tuple[str, ...], if_exists: bool, yes: bool) -> None:
    """Delete topics with all their records.

    \b
    Examples:
      headrace topics delete orders
      headrace topics delete orders payments --yes
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} with all records?", abort=True)
    admin = Admin(cluster)
    for name in names:
        try:
            admin.delete_topic(name)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if not if_exists:
                raise click.ClickException(f"there is no topic {name!r}") from None
            click.echo(f"{name} does not exist")
        else:
            click.echo(f"deleted {name}")

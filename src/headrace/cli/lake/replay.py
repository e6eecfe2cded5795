"""`headrace lake replay`: sends the rows of a table to a topic. Needs neither Spark nor Java."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from headrace.cli.lake.cluster import kafka_options
from headrace.cli.lake.option import place_option
from headrace.cli.lake.progress import ReplayProgress
from headrace.cli.moments import FORMS
from headrace.cli.output import count_of, print_json
from headrace.cli.records.where import Where, parse_where
from headrace.cli.topics.command import json_option
from headrace.client import Cluster
from headrace.wire.compression import CODECS, Compression

if TYPE_CHECKING:
    from headrace.lake.replay.partitions import Partitioner
    from headrace.lake.replay.replay import Summary
    from headrace.lake.replay.target import Target
    from headrace.lake.storage.place import Place

_RUN = re.compile(r"[A-Za-z0-9._-]{1,64}")


def read_topic(ctx: click.Context, param: click.Parameter, given: str) -> tuple[str, tuple[int, ...]]:
    name, colon, listed = given.partition(":")
    if not name or (colon and not re.fullmatch(r"\d+(,\d+)*", listed)):
        raise click.BadParameter(f"{given!r} is not TOPIC or TOPIC:0,2")
    return name, tuple(sorted({int(index) for index in listed.split(",")})) if colon else ()


def read_bound(ctx: click.Context, param: click.Parameter, given: str | None) -> Where | None:
    if given is None:
        return None
    where = parse_where(given)
    if where is None or (where.offset is None and where.moment_ms is None):
        raise click.BadParameter(f"{given!r} is neither an offset nor {FORMS}")
    return where


def read_run(ctx: click.Context, param: click.Parameter, given: str) -> str:
    if given and not _RUN.fullmatch(given):
        raise click.BadParameter(f"{given!r} is not a name of up to 64 letters, digits, dots, dashes and underscores")
    return given


@click.command()
@place_option
@click.option(
    "--topic", "source", metavar="TOPIC[:PARTITIONS]", required=True, callback=read_topic,
    help="The archived topic, or some partitions of it: orders:0,2.",
)  # fmt: skip
@click.option("--into", metavar="TOPIC", help="The topic to send to.  [default: the same name]")
@click.option("--from", "start", metavar="WHERE", callback=read_bound, help="First offset or time: 2026-05-01, 10m.")
@click.option("--to", "stop", metavar="WHERE", callback=read_bound, help="End, exclusive.")
@click.option("--keep-timestamps", is_flag=True, help="Keep the records' timestamps instead of using the current time.")
@click.option(
    "--partitioner", type=click.Choice(["keep", "key"]),
    help="Keep a record's partition, or choose by key as Kafka does.  [default: keep, if the numbers match]",
)  # fmt: skip
@click.option("--create", is_flag=True, help="Create the target if it does not exist.")
@click.option(
    "--partitions", metavar="N", type=click.IntRange(min=1), help="Partitions of a new target.  [default: the source's]"
)
@click.option("--into-itself", is_flag=True, help="Allow the archived topic itself as the target.")
@click.option(
    "--run", metavar="NAME", default="", callback=read_run,
    help="A name for this replay: records sent under another name are sent again.",
)  # fmt: skip
@click.option("--compression", type=click.Choice(CODECS), default="none", help="Compression of batches.")
@json_option
@kafka_options
def replay(
    cluster: Cluster,
    root: Place,
    source: tuple[str, tuple[int, ...]],
    into: str | None,
    start: Where | None,
    stop: Where | None,
    keep_timestamps: bool,
    partitioner: Partitioner | None,
    create: bool,
    partitions: int | None,
    into_itself: bool,
    run: str,
    compression: Compression,
    as_json: bool,
) -> None:
    """Send the rows of a table to a topic, exactly once.

    Each record gets a header, headrace.replay, with its origin. Records that are already in the target are not sent
    again: an interrupted run resumes with the same command.

    \b
    Examples:
      headrace lake replay --lake lake --topic orders --into copy --create
      headrace lake replay --lake lake --topic orders --into day --from 2026-05-01
      headrace lake replay --lake lake --topic a:0,2 --bootstrap hub:9092
    """
    from headrace.lake.replay.replay import Replay, ReplaySettings
    from headrace.lake.replay.rows import Excerpt
    from headrace.lake.replay.target import find_target, source_partitions
    from headrace.lake.table.catalogue import tables_in

    topic, chosen = source
    (table,) = tables_in(root, [topic])
    if absent := set(chosen) - set(table.coverage):
        raise click.UsageError(f"the table of {topic} has no partition {min(absent)}")
    cluster.retrying(lambda: cluster.refresh([]))
    target = find_target(
        cluster, table, into or topic,
        keep_timestamps=keep_timestamps, into_itself=into_itself, create=create, partitions=partitions,
    )  # fmt: skip
    bounds = Excerpt(
        from_offset=start.offset if start else None,
        to_offset=stop.offset if stop else None,
        from_ms=start.moment_ms if start else None,
        to_ms=stop.moment_ms if stop else None,
    )
    how = _partitioner(partitioner, target, source_partitions(table))
    settings = ReplaySettings(bounds, chosen, keep_timestamps, how, compression, run)
    with ReplayProgress() as shown:
        done = Replay(table, cluster, target, settings, say=shown.say, progress=shown.step).run()
    if as_json:
        print_json(done)
    else:
        click.echo(_told(done))


def _partitioner(asked: Partitioner | None, target: Target, source_partitions: int) -> Partitioner:
    if asked == "keep" and target.partitions < source_partitions:
        raise click.UsageError(
            f"{target.name} has {count_of(target.partitions, 'partition')}, the table {source_partitions}: "
            "records cannot keep theirs; use --partitioner key"
        )
    return asked or ("keep" if target.partitions == source_partitions else "key")


def _told(done: Summary) -> str:
    rate = done.sent / max(done.seconds, 1e-3)
    words = f"sent {count_of(done.sent, 'record')} to {done.into} in {done.seconds:.1f} s ({rate:,.0f} a second)"
    if done.already:
        words += f"; {done.already:,} were there already"
    if done.left_out:
        words += f"; {done.left_out:,} skipped that came from a replay into {done.topic}"
    if done.gaps:
        words += f"; the range has {count_of(done.gaps, 'gap')} of unarchived records"
    return words

"""`headrace lake compact`, `expire` and `vacuum`: table maintenance on request. None of it needs Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.lake.cluster import kafka_options
from headrace.cli.lake.option import LeftOut, lake_option
from headrace.cli.lake.replay import read_bound
from headrace.cli.output import count_of, number, print_json, print_table, text
from headrace.cli.quantities import show_approximate_size
from headrace.cli.records.where import Where
from headrace.cli.topics.command import json_option
from headrace.client import Cluster

if TYPE_CHECKING:
    from headrace.lake.storage.place import Place
    from headrace.lake.upkeep.vacuum import InPlace

LEAST_HOURS, DEFAULT_HOURS = 24, 48


@click.command()
@lake_option
@json_option
def compact(root: Place, topics: tuple[str, ...], as_json: bool) -> None:
    """Merge small table files into large ones, with the same rows in the same order.

    An archive does this continuously; the command merges everything at once. Every row is compared with what was
    archived before a file is replaced. It can run alongside an archive and readers; replaced files stay until vacuum.

    \b
    Examples:
      headrace lake compact --lake lake
      headrace lake compact --lake lake --topics orders --json
    """
    from headrace.lake.table.catalogue import tables_in
    from headrace.lake.typed.compaction import compact_derived
    from headrace.lake.typed.table import find_derived
    from headrace.lake.upkeep.compaction import compact_table

    done = []

    def merged(topic: str, name: str, place: Place, files: tuple[int, int]) -> None:
        before, after = files
        done.append({"topic": topic, "merged": before, "into": after, "table": str(place)})
        if not as_json:
            click.echo(
                f"{name}: {count_of(before, 'file')} merged into {after}" if before else f"{name}: nothing to do"
            )

    left_out = LeftOut()
    for table in tables_in(root, topics, left_out):
        topic = table.identity.topic
        with left_out.of(topic):
            merged(topic, topic, table.place, compact_table(table))
            for made in find_derived(root, table.identity):
                merged(topic, f"{topic} {made.what}", made.place, compact_derived(made))
    if as_json:
        print_json(done)
    left_out.end()


@click.command()
@lake_option
@click.option("--before", metavar="WHERE", callback=read_bound, help="Delete rows below an offset, or before a time.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
@json_option
@kafka_options
def expire(
    cluster: Cluster, root: Place, topics: tuple[str, ...], before: Where | None, dry_run: bool, as_json: bool
) -> None:
    """Delete old rows from tables, in whole files.

    For a tiered topic (remote.storage.enable=true) only rows below its log start are deleted, which retention and
    DeleteRecords advance. Rows of other topics are deleted only with --before. The last file of a partition stays.

    \b
    Examples:
      headrace lake expire --lake lake
      headrace lake expire --lake lake --topics orders --before 2026-05-01
      headrace lake expire --lake lake --topics orders --before 90d --dry-run
    """
    from headrace.lake.table.catalogue import tables_in
    from headrace.lake.upkeep.expiry import Before, Expired, expire

    old = Before(before.offset, before.moment_ms) if before is not None else None
    left_out, done = LeftOut(), list[Expired]()
    for table in tables_in(root, topics, left_out):
        with left_out.of(table.identity.topic):
            done += expire(table, cluster, old, dry_run=dry_run)
    if as_json:
        print_json(done)
    elif not done:
        click.echo("nothing to expire")
    else:
        columns = [text("TOPIC"), number("PARTITION"), number("ROWS"), number("FILES"), number("SIZE"), number("START")]
        sizes = [show_approximate_size(one.size_bytes) for one in done]
        print_table(
            columns,
            [
                (one.topic, str(one.partition), one.rows, one.files, size, one.start)
                for one, size in zip(done, sizes, strict=True)
            ],
        )
        if dry_run:
            click.echo("nothing was deleted (--dry-run)")
    left_out.end()


@click.command()
@lake_option
@click.option(
    "--retain-hours",
    metavar="N",
    type=click.IntRange(min=LEAST_HOURS),
    default=DEFAULT_HOURS,
    show_default=True,
    help="Minimum age of files to delete.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
@json_option
def vacuum(root: Place, topics: tuple[str, ...], retain_hours: int, dry_run: bool, as_json: bool) -> None:
    """Delete unused files: replaced or expired ones, and leftovers of killed tasks.

    Files are kept for at least a day, because a task may be about to commit one and a reader may still use one. Delta's
    time travel and RESTORE cannot go back past a vacuum.

    \b
    Examples:
      headrace lake vacuum --lake lake
      headrace lake vacuum --lake lake --retain-hours 168 --dry-run
    """
    from headrace.lake.table.catalogue import tables_in
    from headrace.lake.typed.table import find_derived
    from headrace.lake.upkeep.vacuum import vacuum

    done, left_out = [], LeftOut()
    for table in tables_in(root, topics, left_out):
        topic = table.identity.topic
        with left_out.of(topic):
            named: list[tuple[InPlace, str]] = [(table, topic)]
            named += [(made, f"{topic} {made.what}") for made in find_derived(root, table.identity)]
            for one, name in named:
                gone = vacuum(one, retain_hours, dry_run=dry_run)
                done.append({"topic": topic, "files": gone, "table": str(one.place)})
                if not as_json:
                    would = "would be deleted" if dry_run else "deleted"
                    click.echo(f"{name}: {count_of(len(gone), 'file')} {would}")
    if as_json:
        print_json(done)
    left_out.end()

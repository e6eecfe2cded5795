"""`headrace lake compact`, `expire` and `vacuum`: what is done to tables on request. None of it needs Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.lake_cluster import kafka_options
from headrace.cli.lake_option import lake_option
from headrace.cli.lake_replay import read_bound
from headrace.cli.output import count_of, number, print_json, print_table, text
from headrace.cli.quantities import show_approximate_size
from headrace.cli.topics import json_option
from headrace.cli.where import Where
from headrace.client import Cluster

if TYPE_CHECKING:
    from headrace.lake.place import Place
    from headrace.lake.upkeep import InPlace

LEAST_HOURS, DEFAULT_HOURS = 24, 48


@click.command()
@lake_option
@json_option
def compact(root: Place, topics: tuple[str, ...], as_json: bool) -> None:
    """Merge small files of tables into large ones, with the same rows in the same order.

    An archive does so as it goes; this merges all there is at once. Every row is compared with what was archived before
    a file is replaced. It may run beside an archive and readers; the replaced files stay until vacuum.

    \b
    Examples:
      headrace lake compact --lake lake
      headrace lake compact --lake lake --topics orders --json
    """
    from headrace.lake.catalogue import tables_in
    from headrace.lake.compaction import compact_table
    from headrace.lake.typed_compaction import compact_derived
    from headrace.lake.typed_table import find_derived

    done = []

    def merged(topic: str, name: str, place: Place, files: tuple[int, int]) -> None:
        before, after = files
        done.append({"topic": topic, "merged": before, "into": after, "table": str(place)})
        if not as_json:
            click.echo(
                f"{name}: {count_of(before, 'file')} merged into {after}" if before else f"{name}: nothing to do"
            )

    for table in tables_in(root, topics):
        topic = table.identity.topic
        merged(topic, topic, table.place, compact_table(table))
        for made in find_derived(root, table.identity):
            merged(topic, f"{topic} {made.what}", made.place, compact_derived(made))
    if as_json:
        print_json(done)


@click.command()
@lake_option
@click.option("--before", metavar="WHERE", callback=read_bound, help="Rows below an offset, or before a moment.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
@json_option
@kafka_options
def expire(
    cluster: Cluster, root: Place, topics: tuple[str, ...], before: Where | None, dry_run: bool, as_json: bool
) -> None:
    """Delete old rows from tables, a whole file at a time.

    A tiered topic (remote.storage.enable=true) loses what lies below its log start, which retention and
    DeleteRecords move, and never more. The table of any other topic is kept unless --before names what is old. The
    last file of a partition stays.

    \b
    Examples:
      headrace lake expire --lake lake
      headrace lake expire --lake lake --topics orders --before 2026-05-01
      headrace lake expire --lake lake --topics orders --before 90d --dry-run
    """
    from headrace.lake.catalogue import tables_in
    from headrace.lake.upkeep import Before, expire

    old = Before(before.offset, before.moment_ms) if before is not None else None
    done = [gone for table in tables_in(root, topics) for gone in expire(table, cluster, old, dry_run=dry_run)]
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


@click.command()
@lake_option
@click.option(
    "--retain-hours",
    metavar="N",
    type=click.IntRange(min=LEAST_HOURS),
    default=DEFAULT_HOURS,
    show_default=True,
    help="How long a file that no table needs any more stays.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
@json_option
def vacuum(root: Place, topics: tuple[str, ...], retain_hours: int, dry_run: bool, as_json: bool) -> None:
    """Delete files that no table needs: replaced or expired ones, and those of tasks that were killed.

    They stay for a day at least, because a task may be about to commit a file and a reader may still have it. After
    it, Delta's time travel and RESTORE reach back so far only.

    \b
    Examples:
      headrace lake vacuum --lake lake
      headrace lake vacuum --lake lake --retain-hours 168 --dry-run
    """
    from headrace.lake.catalogue import tables_in
    from headrace.lake.typed_table import find_derived
    from headrace.lake.upkeep import vacuum

    done = []
    for table in tables_in(root, topics):
        topic = table.identity.topic
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

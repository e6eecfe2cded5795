"""`headrace lake`: topics as Delta tables: archive them, show their progress, verify that nothing is missing."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from headrace.cli.lake.cluster import connecting_options, kafka_options
from headrace.cli.lake.option import LeftOut, lake_option
from headrace.cli.lake.progress import ArchiveProgress, VerifyProgress
from headrace.cli.lake.replay import replay
from headrace.cli.lake.schema import parse, schema
from headrace.cli.lake.upkeep import compact, expire, vacuum
from headrace.cli.moments import show_moment
from headrace.cli.output import count_of, number, print_json, print_table, text
from headrace.cli.quantities import show_approximate_size
from headrace.cli.topics.command import json_option
from headrace.cli.unknown import Unknown
from headrace.client import Cluster
from headrace.client.admin import Missing, of_topic

if TYPE_CHECKING:
    from headrace.lake.archive.status import PartitionStatus
    from headrace.lake.connecting import Connecting
    from headrace.lake.storage.place import Place


@click.group()
def lake() -> None:
    """Topics as Delta tables: archive, status, verify, replay, upkeep."""


for command in (replay, schema, parse, compact, expire, vacuum):
    lake.add_command(command)


@lake.command()
@lake_option
@click.option("--once", is_flag=True, help="Archive the existing records, then exit.")
@click.option("--master", metavar="URL", help="Spark master.  [default: local, all cores]")
@click.option("--accept-gap", is_flag=True, help="Record a gap where records were deleted too early, and continue.")
@connecting_options
def archive(
    connecting: Connecting,
    cluster: Cluster,
    root: Place,
    topics: tuple[str, ...],
    once: bool,
    master: str | None,
    accept_gap: bool,
) -> None:
    """Copy topics into Delta tables, exactly once.

    Archives the topics in --topics, by default those with remote.storage.enable=true. Progress is stored in the tables:
    the command can be killed and restarted at any time, and a second one stands by. Temporary problems, such as an
    unavailable broker or a full disk, are reported and retried. Ctrl-C stops it.

    \b
    Examples:
      headrace lake archive --lake lake --topics orders,payments
      headrace lake archive --lake lake --topics orders --once
      headrace lake archive --lake /mnt/lake --topics a --master spark://hub:7077
    """
    from headrace.lake.archive.loop import Archive
    from headrace.lake.archive.plan import check_topics
    from headrace.lake.archive.round import ArchiveSettings
    from headrace.lake.jobs import SparkJobs
    from headrace.lake.session import check_master, own_spark
    from headrace.lake.storage.writable import check_writable

    check_master(master)
    cluster.retrying(lambda: cluster.refresh([]))
    if once:
        check_topics(cluster, topics)
    check_writable(root)
    settings = ArchiveSettings(root, topics, accept_gap)
    with ArchiveProgress() as shown:
        shown.say("starting Spark")
        with own_spark(master) as spark:
            jobs = SparkJobs(spark, shown.say)
            job = Archive(jobs, cluster, settings, connecting=connecting, say=shown.say, progress=shown.round)
            if once:
                job.run_once()
            else:
                with _stop_on_signals() as stop:
                    job.run(stop)
        shown.done()
    if once and job.topics.absent:
        raise click.ClickException(f"not archived: there is no topic {' and no '.join(job.topics.absent)}")
    if job.derivation.troubles and not job.troubles:
        stopped = ", ".join(f"{topic}-{partition}" for topic, partition in job.derivation.troubles)
        raise click.ClickException(f"archived, but not parsed: {stopped}")
    if job.troubles:
        stopped = ", ".join(f"{topic}-{partition}" for topic, partition in job.troubles)
        raise click.ClickException(f"not archived: {stopped}")


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """An event set by Ctrl-C and SIGTERM: the current round is finished, then the command ends."""
    stop = threading.Event()
    before = [(number, signal.signal(number, lambda *_: stop.set())) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield stop
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@lake.command()
@lake_option
@json_option
@kafka_options
def status(cluster: Cluster, root: Place, topics: tuple[str, ...], as_json: bool) -> None:
    """Show the offsets in the topic, the offsets in the table, and the lag, per partition.

    \b
    Examples:
      headrace lake status --lake lake
      headrace lake status --lake lake --topics orders --json
    """
    from headrace.lake.archive.status import lake_status

    def row(p: PartitionStatus) -> tuple[str | int | None, ...]:
        absent = "deleted" if p.cluster_id == cluster.cluster_id else "another cluster"
        name = p.topic if p.hot_end is not None or p.is_away else f"{p.topic} ({absent})"
        hot, cold = _range(p.hot_start, p.hot_end), _cold(p)
        size, moment = show_approximate_size(p.size_bytes), show_moment(p.last_commit_ms)
        return name, str(p.partition), hot, cold, p.lag, p.rows, len(p.gaps), p.files, size, moment

    left_out = LeftOut()
    unknown = Unknown()

    def note(missing: Missing) -> None:
        for topic in {topic for topic, _ in missing}:
            unknown.note_partitions(topic, of_topic(missing, topic))

    with cluster.impatient():
        found = lake_status(root, cluster, topics, left_out, _say_elsewhere, note)
    if as_json:
        print_json(found)
    elif not found:
        left_out.end()
        click.echo(f"no tables in {root}")
    else:
        columns = [
            text("TOPIC"), number("PARTITION"), number("HOT"), number("COLD"), number("LAG"), number("ROWS"),
            number("GAPS"), number("FILES"), number("SIZE"), text("LAST COMMIT"),
        ]  # fmt: skip
        print_table(columns, [row(p) for p in found])
        for p in found:
            for start, end in p.lost:
                click.echo(f"{p.topic}-{p.partition}: its table has lost the files with offsets {start} to {end - 1}")
            ends = [p.cold_end or 0, *(end for _, end in p.lost)]
            if p.committed is not None and p.cold_end is not None and p.committed > max(ends):
                click.echo(f"{p.topic}-{p.partition}: rows up to {p.committed} were archived but are missing now")
    unknown.say()
    left_out.end()
    unknown.end()


def _say_elsewhere(topic: str, cluster_id: str) -> None:
    click.echo(f"{topic}: its table belongs to cluster {cluster_id}, so it is not compared with this one", err=True)


def _cold(p: PartitionStatus) -> str | None:
    """`0-99`, or `0-49,60-99` if files are missing."""
    if p.cold_start is None or p.cold_end is None:
        return None
    inside = [(start, end) for start, end in p.lost if p.cold_start < start and end < p.cold_end]
    starts, ends = [p.cold_start, *(end for _, end in inside)], [*(start for start, _ in inside), p.cold_end]
    return ",".join(_range(start, end) or "" for start, end in zip(starts, ends, strict=True))


def _range(start: int | None, end: int | None) -> str | None:
    """`0-99`: first and last offset."""
    if start is None or end is None:
        return None
    return f"{start}-{end - 1}" if start < end else f"empty at {end}"


@lake.command()
@lake_option
@click.option("--offline", is_flag=True, help="Check only the tables, without a broker.")
@json_option
@kafka_options
def verify(cluster: Cluster, root: Place, topics: tuple[str, ...], offline: bool, as_json: bool) -> None:
    """Check that tables and topics agree. The exit code is 1 if they differ, or if there is no table to check.

    Every row is read and compared with the count and digest recorded by the archive, and with the topic if it still
    has the record.

    \b
    Examples:
      headrace lake verify --lake lake
      headrace lake verify --lake lake --topics orders --json
    """
    from headrace.lake.archive.verify import verify_lake

    left_out = LeftOut()
    with VerifyProgress() as shown:
        proof = verify_lake(root, None if offline else cluster, topics, shown.look, left_out, _say_elsewhere)
    if as_json:
        print_json(proof)
    else:
        for finding in proof.findings:
            where = finding.topic if finding.partition is None else f"{finding.topic}-{finding.partition}"
            where += "" if finding.offset is None else f" @{finding.offset}"
            click.echo(f"{where}: {finding.what}" + ("" if finding.path is None else f"\n  {finding.path}"))
        looked = (
            f"{count_of(proof.rows, 'row')} in {count_of(proof.files, 'file')} of {count_of(proof.topics, 'table')}"
        )
        with_topic = f"{count_of(proof.rows_compared, 'row')} compared with the topics"
        click.echo(f"{looked}, {with_topic}: {count_of(len(proof.findings), 'finding')}")
    left_out.end()
    if not proof.topics:
        raise click.ClickException(f"no tables in {root}")
    if proof.findings:
        raise click.exceptions.Exit(1)

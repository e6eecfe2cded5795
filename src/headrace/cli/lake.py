"""`headrace lake`: topics as Delta tables. Archive them, see how far they are, prove that nothing is missing."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from headrace.cli.lake_cluster import connecting_options, kafka_options
from headrace.cli.lake_option import lake_option
from headrace.cli.lake_progress import ArchiveProgress, VerifyProgress
from headrace.cli.lake_replay import replay
from headrace.cli.lake_schema import parse, schema
from headrace.cli.lake_upkeep import compact, expire, vacuum
from headrace.cli.moments import show_moment
from headrace.cli.output import count_of, number, print_json, print_table, text
from headrace.cli.quantities import show_approximate_size
from headrace.cli.topics import json_option
from headrace.client import Cluster

if TYPE_CHECKING:
    from headrace.lake.connecting import Connecting
    from headrace.lake.place import Place


@click.group()
def lake() -> None:
    """Topics as Delta tables: archive, status, verify, replay, upkeep."""


for command in (replay, schema, parse, compact, expire, vacuum):
    lake.add_command(command)


@lake.command()
@lake_option
@click.option("--once", is_flag=True, help="Archive what the topics hold now, and end.")
@click.option("--master", metavar="URL", help="Spark's master.  [default: local, all cores]")
@click.option("--accept-gap", is_flag=True, help="Record what was deleted before it was archived as a gap, and go on.")
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
    """Carry topics into Delta tables, each record once.

    Topics join by name, or by their config remote.storage.enable=true. The tables are the only position: the
    command may be killed and started again at any time, and a second one stands by. Ctrl-C ends it.

    \b
    Examples:
      headrace lake archive --lake lake --topics orders,payments
      headrace lake archive --lake lake --topics orders --once
      headrace lake archive --lake /mnt/lake --topics a --master spark://hub:7077
    """
    from headrace.lake.archive import Archive, Settings
    from headrace.lake.session import spark_session
    from headrace.lake.store_check import check_store

    cluster.retrying(lambda: cluster.refresh([]))
    check_store(root)
    settings = Settings(root, topics, accept_gap)
    with ArchiveProgress() as shown:
        shown.say("starting Spark")
        with spark_session(master) as spark:
            job = Archive(spark, cluster, settings, connecting=connecting, say=shown.say, progress=shown.round)
            if once:
                job.run_once()
            else:
                with _stop_on_signals() as stop:
                    job.run(stop)
        shown.done()
    if job.typing.troubles and not job.troubles:
        stopped = ", ".join(f"{topic}-{partition}" for topic, partition in job.typing.troubles)
        raise click.ClickException(f"archived, but not parsed: {stopped}")
    if job.troubles:
        stopped = ", ".join(f"{topic}-{partition}" for topic, partition in job.troubles)
        raise click.ClickException(f"not archived: {stopped}")


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set: the round under way is finished, then the command ends."""
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
    """Show per partition what the topic holds, what the table holds, and what is still to be archived.

    \b
    Examples:
      headrace lake status --lake lake
      headrace lake status --lake lake --topics orders --json
    """
    from headrace.lake.status import PartitionStatus, lake_status

    def row(p: PartitionStatus) -> tuple[str | int | None, ...]:
        name = p.topic if p.hot_end is not None else f"{p.topic} (deleted)"
        hot, cold = _range(p.hot_start, p.hot_end), _range(p.cold_start, p.cold_end)
        size, moment = show_approximate_size(p.size_bytes), show_moment(p.last_commit_ms)
        return name, str(p.partition), hot, cold, p.lag, p.rows, len(p.gaps), p.files, size, moment

    found = lake_status(root, cluster, topics)
    if as_json:
        print_json(found)
    elif not found:
        click.echo(f"no tables in {root}")
    else:
        columns = [
            text("TOPIC"), number("PARTITION"), number("HOT"), number("COLD"), number("LAG"), number("ROWS"),
            number("GAPS"), number("FILES"), number("SIZE"), text("LAST COMMIT"),
        ]  # fmt: skip
        print_table(columns, [row(p) for p in found])
        for p in found:
            if p.committed is not None and p.cold_end is not None and p.committed > p.cold_end:
                click.echo(f"{p.topic}-{p.partition}: rows up to {p.committed} were archived and are not there now")


def _range(start: int | None, end: int | None) -> str | None:
    """`0-99`: first and last offset."""
    if start is None or end is None:
        return None
    return f"{start}-{end - 1}" if start < end else f"empty at {end}"


@lake.command()
@lake_option
@click.option("--offline", is_flag=True, help="Prove the tables alone, without a broker.")
@json_option
@kafka_options
def verify(cluster: Cluster, root: Place, topics: tuple[str, ...], offline: bool, as_json: bool) -> None:
    """Prove that tables and topics agree, and say where not; the exit code is 1 then.

    Every row is read and compared with the count and digest that the archive wrote down, and with the topic as far
    as that still has it.

    \b
    Examples:
      headrace lake verify --lake lake
      headrace lake verify --lake lake --topics orders --json
    """
    from headrace.lake.verify import verify_lake

    with VerifyProgress() as shown:
        proof = verify_lake(root, None if offline else cluster, topics, shown.look)
    if as_json:
        print_json(proof)
    else:
        for finding in proof.findings:
            where = f"{finding.topic}-{finding.partition}"
            where += "" if finding.offset is None else f" @{finding.offset}"
            click.echo(f"{where}: {finding.what}" + ("" if finding.path is None else f"\n  {finding.path}"))
        looked = (
            f"{count_of(proof.rows, 'row')} in {count_of(proof.files, 'file')} of {count_of(proof.topics, 'table')}"
        )
        with_topic = f"{count_of(proof.rows_compared, 'row')} compared with the topics"
        click.echo(f"{looked}, {with_topic}: {count_of(len(proof.findings), 'finding')}")
    if proof.findings:
        raise click.exceptions.Exit(1)

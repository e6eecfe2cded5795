"""`headrace consume`: the records of a topic, for people on a terminal and for scripts elsewhere."""

from __future__ import annotations

import base64
import contextlib
import itertools
import signal
import sys
from collections.abc import Callable, Iterator

import click
import msgspec

from headrace.cli.cluster_option import cluster_options
from headrace.cli.moments import show_moment
from headrace.cli.output import harmless, one_line, styled
from headrace.cli.records.where import Where, offsets_at, read_where
from headrace.client import Admin, Cluster, Reader
from headrace.wire.records import Record
from headrace.wire.special_times import LATEST
from headrace.wire.topic_partition import TopicPartition

Show = Callable[[str, int, Record], None]


@click.command()
@click.argument("topic")
@click.option(
    "--from", "start", metavar="WHERE", default="earliest", callback=read_where,
    help="earliest, latest, an offset, -N for the last N of each partition, or a time: 2026-05-01T10:00:00Z, "
    "@1777629600000 (milliseconds), 10m (ago).  [default earliest]",
)  # fmt: skip
@click.option(
    "--partition", "partitions", multiple=True, type=click.IntRange(min=0), metavar="N",
    help="Read only this partition. May be repeated.",
)  # fmt: skip
@click.option("-n", "--max", "most", metavar="N", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("-F", "--follow", is_flag=True, help="Wait for new records at the end; Ctrl-C stops.")
@click.option(
    "--show", type=click.Choice(["full", "values"]),
    help="full: with key, headers, timestamp, partition and offset. Default: full on a terminal, otherwise values.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@cluster_options
def consume(
    cluster: Cluster,
    topic: str,
    start: Where,
    partitions: tuple[int, ...],
    most: int | None,
    follow: bool,
    show: str | None,
    as_json: bool,
) -> None:
    """Read the records of TOPIC up to its current end, or keep reading with --follow.

    It joins no group and commits nothing. In JSON, bytes that are not UTF-8 are base64, in key_base64 and value_base64
    instead of key and value.

    \b
    Examples:
      headrace consume orders
      headrace consume orders --from -10
      headrace consume orders --from 2026-05-01T10:00:00Z --max 100 --json
      headrace consume orders --partition 2 --from 4711 --follow
      headrace consume orders --from latest --follow | grep lamp
    """
    full = sys.stdout.isatty() if show is None else show == "full"
    shown: Show = _show_json if as_json else _show_full if full else _show_value
    with _until_interrupted():
        wanted = _partitions(cluster, topic, partitions)
        parts = [wanted] if follow else _away_last(cluster, wanted)
        records = (one for part in parts for one in _read(cluster, part, start, follow=follow))
        for found in itertools.islice(records, most):
            shown(*found)
            if follow:
                sys.stdout.flush()
    sys.stdout.flush()


def _away_last(cluster: Cluster, partitions: list[TopicPartition]) -> list[list[TopicPartition]]:
    """Partitions whose store is away come after the others: those are read meanwhile."""
    with cluster.impatient():
        _, away = Admin(cluster).known_offsets(dict.fromkeys(partitions, LATEST))
    parts = [[one for one in partitions if one not in away], list(away)]
    return [part for part in parts if part]


def _read(
    cluster: Cluster, partitions: list[TopicPartition], start: Where, *, follow: bool
) -> Iterator[tuple[str, int, Record]]:
    return Reader(cluster).read(offsets_at(Admin(cluster), partitions, start), follow=follow)


@contextlib.contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block without an error."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _partitions(cluster: Cluster, topic: str, chosen: tuple[int, ...]) -> list[TopicPartition]:
    there = [p.index for p in Admin(cluster).describe_topic(topic).partitions]
    for partition in chosen:
        if partition not in there:
            raise click.ClickException(f"{topic} has no partition {partition}; it has 0 to {len(there) - 1}")
    return [(topic, partition) for partition in sorted(set(chosen)) or there]


def _show_value(topic: str, partition: int, record: Record) -> None:
    sys.stdout.buffer.write((record.value or b"") + b"\n")


def _show_json(topic: str, partition: int, record: Record) -> None:
    line: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        "headers": [{"name": one_line(name), **_json_bytes("value", value)} for name, value in record.headers],
    }
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")


def _json_bytes(name: str, content: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


def _show_full(topic: str, partition: int, record: Record) -> None:
    """A line of metadata, then the value."""
    moment = show_moment(record.timestamp) if record.timestamp >= 0 else "no time"
    about = [f"{topic}-{partition} @{record.offset}", moment]
    about += [] if record.key is None else [f"key {_text(record.key, one_line)}"]
    about += [f"{one_line(name)}={_text(value, one_line)}" for name, value in record.headers]
    print(styled("  ".join(about), dim=True))
    print(_text(record.value, harmless))


def _text(content: bytes | None, clean: Callable[[str], str]) -> str:
    return styled("null", dim=True) if content is None else clean(content.decode(errors="backslashreplace"))

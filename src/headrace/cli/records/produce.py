"""`headrace produce`: records from arguments, standard input or a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from headrace.cli.cluster_option import cluster_options
from headrace.cli.moments import FORMS, parse_moment
from headrace.cli.output import count_of
from headrace.cli.records.line_input import lines
from headrace.client import Cluster, Producer
from headrace.client.producer import ALL, LEADER, NOBODY, Sent
from headrace.wire.compression import CODECS, Compression
from headrace.wire.records import Header

_ACKS = {"all": ALL, "1": LEADER, "0": NOBODY}


class Input(msgspec.Struct, frozen=True):
    """The sources of the records."""

    values: tuple[str, ...]
    file: Path | None
    is_whole: bool
    is_null: bool
    key: str | None
    key_separator: str | None

    def check(self) -> None:
        """A usage error if options contradict each other."""
        for clashes, message in (
            (self.values and self.file, "give values or --file, not both"),
            (self.values and self.is_whole, "--whole is for a file or standard input, not for values"),
            (self.is_null and (self.values or self.file or self.is_whole), "--null sends a record without a value"),
            (self.key is not None and self.key_separator is not None, "give --key or --key-separator, not both"),
            (self.key_separator == "", "--key-separator must not be empty"),
        ):
            if clashes:
                raise click.UsageError(message)

    def records(self) -> Iterator[tuple[bytes | None, bytes | None] | None]:
        """Yields key and value of each record; None if the next one is not there yet."""
        key = None if self.key is None else as_bytes(self.key)
        separator = None if self.key_separator is None else as_bytes(self.key_separator)
        for number, value in enumerate(self._values(), 1):
            if value is None or separator is None:
                yield None if value is None and not self.is_null else (key, value)
                continue
            split_key, found, split_value = value.partition(separator)
            if not found:
                raise click.ClickException(f"record {number} has no key separator {self.key_separator!r}")
            yield split_key, split_value

    def _values(self) -> Iterator[bytes | None]:
        if self.is_null:
            yield None
        elif self.values:
            yield from map(as_bytes, self.values)
        elif self.file is None:
            yield from self._read(sys.stdin.fileno())
        else:
            try:
                descriptor = os.open(self.file, os.O_RDONLY)
            except OSError as error:
                raise click.ClickException(f"cannot read {self.file}: {error.strerror}") from None
            try:
                yield from self._read(descriptor)
            except IsADirectoryError:
                raise click.ClickException(f"cannot read {self.file}: it is a directory") from None
            finally:
                os.close(descriptor)

    def _read(self, descriptor: int) -> Iterator[bytes | None]:
        if self.is_whole:
            with os.fdopen(descriptor, "rb", closefd=False) as content:
                yield content.read()
        else:
            yield from lines(descriptor)


def as_bytes(text: str) -> bytes:
    """The bytes as typed, even if they are not UTF-8."""
    return text.encode(errors="surrogateescape")


def read_headers(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> list[Header]:
    headers: list[Header] = []
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE")
        headers.append((name, as_bytes(value)))
    return headers


def read_timestamp(ctx: click.Context, param: click.Parameter, given: str | None) -> int | None:
    if given is None:
        return None
    moment = int(given) if given.isdecimal() else parse_moment(given)
    if moment is None:
        raise click.BadParameter(f"{given!r} is not {FORMS}")
    return moment


@click.command()
@click.argument("topic")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option(
    "-f", "--file", type=click.Path(path_type=Path), help="Read the values from a file, one per line, instead of stdin."
)
@click.option("--whole", "is_whole", is_flag=True, help="Send the whole file or stdin as one value.")
@click.option("--null", "is_null", is_flag=True, help="Send one record without a value: a tombstone for its key.")
@click.option("-k", "--key", help="Key of every record.")
@click.option(
    "--key-separator", metavar="TEXT", help="Separator between key and value: each line is KEY, this text, VALUE."
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", callback=read_headers,
    help="A header of every record. May be repeated.",
)  # fmt: skip
@click.option("--partition", metavar="N", type=click.IntRange(min=0), help="Send to this partition.  [default: by key]")
@click.option(
    "--timestamp", "timestamp_ms", metavar="MOMENT", callback=read_timestamp,
    help="Timestamp of every record, in ISO 8601 or milliseconds.  [default: now]",
)  # fmt: skip
@click.option("--compression", type=click.Choice(CODECS), default="none", help="Compression of batches.")
@click.option("--acks", type=click.Choice(list(_ACKS)), default="all", help="Acknowledgements to wait for.")
@click.option("--offsets", is_flag=True, help="Print partition and offset of each record.")
@click.option("--json", "as_json", is_flag=True, help="Print the same as one JSON object per line.")
@cluster_options
def produce(
    cluster: Cluster,
    topic: str,
    headers: list[Header],
    partition: int | None,
    timestamp_ms: int | None,
    compression: Compression,
    acks: str,
    offsets: bool,
    as_json: bool,
    **given: object,
) -> None:
    """Send records to TOPIC: the VALUEs, or each line of standard input or a file.

    The broker creates a missing topic, unless that is disabled.

    \b
    Examples:
      headrace produce orders hello world
      headrace produce orders --key alice -H trace=7f3 '{"item": "lamp"}'
      tail -f app.log | headrace produce logs --compression zstd
      headrace produce users --key-separator : < users.txt
      headrace produce pictures --key cat --whole --file cat.jpg
      headrace produce users --key alice --null
    """
    source = msgspec.convert(given, Input)
    source.check()
    if sys.stdin.isatty() and not (source.values or source.file or source.is_null):
        click.echo("one record per line; Ctrl-D ends", err=True)
    producer = Producer(cluster, _ACKS[acks], compression)
    report = _Report(offsets, as_json)
    try:
        for record in source.records():
            if record is None:
                producer.flush()
                report.show()
                continue
            key, value = record
            report.add(producer.send(topic, value, key, headers, partition, timestamp_ms))
    finally:
        # Records read before a bad line or Ctrl-C are still sent.
        producer.flush()
        report.show()
    if not offsets and not as_json:
        click.echo(f"sent {count_of(report.count, 'record')} to {topic}")


class _Report:
    """Prints where records were stored, once that is known."""

    def __init__(self, offsets: bool, as_json: bool) -> None:
        self.count = 0
        self._wanted = offsets or as_json
        self._as_json = as_json
        self._sent: list[Sent] = []

    def add(self, sent: Sent) -> None:
        self.count += 1
        if self._wanted:
            self._sent.append(sent)

    def show(self) -> None:
        for sent in self._sent:
            if self._as_json:
                click.echo(msgspec.json.encode(sent))
            else:
                offset = f"offset {sent.offset}" if sent.offset >= 0 else "offset unknown"
                click.echo(f"{sent.topic} partition {sent.partition} {offset}")
        self._sent.clear()

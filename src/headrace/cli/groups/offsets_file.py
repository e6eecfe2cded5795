"""Offset files for `groups reset`: CSV as exported by kafka-consumer-groups, or JSON as in our own plans.

Errors name the line or entry, because such files are often written by hand or by a script.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import click
import msgspec

from headrace.wire.topic_partition import TopicPartition

_HEADINGS = ["topic", "partition", "offset"]


class _Entry(msgspec.Struct):
    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0)]
    offset: Annotated[int, msgspec.Meta(ge=0)]


class _Plan(msgspec.Struct):
    offsets: list[_Entry]


def read_offsets(file: Path) -> dict[TopicPartition, int]:
    """The offsets in a file; a bad file ends the command with one sentence."""
    try:
        content = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise click.ClickException(f"cannot read {file}: {reason}") from None
    entries = _from_json(file, content) if content.lstrip()[:1] in ("[", "{") else _from_csv(file, content)
    offsets: dict[TopicPartition, int] = {}
    for entry in entries:
        if (entry.topic, entry.partition) in offsets:
            raise click.ClickException(f"{file} has {entry.topic}-{entry.partition} twice")
        offsets[entry.topic, entry.partition] = entry.offset
    if not offsets:
        raise click.ClickException(f"{file} has no offsets")
    return offsets


def _from_json(file: Path, content: str) -> list[_Entry]:
    try:
        if content.lstrip().startswith("["):
            return msgspec.json.decode(content, type=list[_Entry])
        return msgspec.json.decode(content, type=_Plan).offsets
    except msgspec.DecodeError as error:
        raise click.ClickException(f"{file} is not a list of topic, partition and offset: {error}") from None


def _from_csv(file: Path, content: str) -> list[_Entry]:
    entries = []
    for number, row in enumerate(csv.reader(content.splitlines()), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (number == 1 and [cell.lower() for cell in cells] == _HEADINGS):
            continue
        if len(cells) != len(_HEADINGS) or not cells[0] or not cells[1].isdecimal() or not cells[2].isdecimal():
            raise click.ClickException(f"{file}, line {number}: {','.join(row)!r} is not topic,partition,offset")
        entries.append(_Entry(cells[0], int(cells[1]), int(cells[2])))
    return entries

"""The records of a batch gone over in one go, for tests."""

from __future__ import annotations

from headrace.wire.batch import MAX_UNPACKED_BYTES, read_header
from headrace.wire.records import unpack
from headrace.wire.schema import Buffer
from headrace.wire.skim import Skimmed, check_records, finish, skim


def skimmed(batch: Buffer) -> list[Skimmed]:
    """What going over a batch tells of each record."""
    header = read_header(batch)
    return [one for portion in skim(unpack(batch, header, MAX_UNPACKED_BYTES), header) for one in portion]


def keyless(batch: Buffer, most: int = 10) -> tuple[int, list[int]]:
    """The deep check of a produced batch: how many records have no key, and which."""
    header = read_header(batch)
    return finish(check_records(unpack(batch, header, MAX_UNPACKED_BYTES), header, most))


def newest(batch: Buffer) -> int:
    """The highest timestamp of a batch's records, which are checked."""
    keyless(batch)
    return max(time for _, time, _ in skimmed(batch))

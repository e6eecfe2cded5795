"""Rows as record batches of a size that the target takes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from headrace.lake.replay_target import ReplayRefused
from headrace.wire.compression import Compression
from headrace.wire.records import Record, encode_batch

BATCH_BYTES = 512 * 1024


class Encoded(msgspec.Struct, frozen=True):
    """A batch, and which row of the source comes first in it."""

    batch: bytearray
    records: int
    source: int
    first_offset: int


def encode_batches(
    rows: pa.RecordBatch, source: int, max_message_bytes: int, compression: Compression
) -> Iterator[Encoded]:
    """The rows of one source partition, in their order, as batches for one partition of the target."""
    per_row = max(1, rows.nbytes // rows.num_rows)
    count = max(1, min(BATCH_BYTES, max_message_bytes // 2) // per_row)
    for start in range(0, rows.num_rows, count):
        piece = rows.slice(start, count)
        records = [
            Record(at, row["timestamp_ms"], row["key"], row["value"], [(h["key"], h["value"]) for h in row["headers"]])
            for at, row in enumerate(piece.to_pylist())
        ]
        batch = bytearray(encode_batch(records, compression=compression))
        first = piece.column("offset")[0].as_py()
        if len(batch) > max_message_bytes:
            raise ReplayRefused(
                f"The record of partition {source} offset {first} takes {len(batch)} bytes with the header that says "
                f"where it is from: raise the target's max.message.bytes of {max_message_bytes}."
            )
        yield Encoded(batch, len(records), source, first)

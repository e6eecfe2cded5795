"""Encodes rows as record batches that the target accepts, ready to be produced: offsets from 0, no producer yet."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.records.encode import encode
from headrace.lake.replay.target import ReplayRefused
from headrace.wire.batch import HEADER_BYTES, pack_header, read_header, stamp
from headrace.wire.compression import CODECS, Compression, compress

BATCH_BYTES = 512 * 1024
_RECORD_BYTES = 32
"""Estimated overhead of a record; the estimate may be rough, because batches are well below the limit."""


class ReplayBatch(msgspec.Struct, frozen=True):
    """A batch, and its first row in the source."""

    batch: bytearray
    records: int
    source: int
    first_offset: int


def encode_batches(
    rows: pa.RecordBatch, source: int, max_message_bytes: int, compression: Compression
) -> Iterator[ReplayBatch]:
    """The rows of one source partition, in order, as batches for one target partition."""
    offsets = rows.column("offset")
    # Produced records have consecutive offsets, and keep the timestamp they are sent with.
    numbered = pa.record_batch(
        {
            "offset": pa.array(np.arange(rows.num_rows, dtype=np.int64)),
            "timestamp_ms": rows.column("timestamp_ms"),
            "timestamp_type": pa.array(np.zeros(rows.num_rows, dtype=np.int32)),
            **{name: rows.column(name) for name in ("key", "value", "headers")},
        }
    )
    for start, stop in _pieces(rows, min(BATCH_BYTES, max_message_bytes // 2)):
        for encoded in encode(numbered.slice(start, stop - start)):
            batch = encoded.content if compression == "none" else _compressed(encoded.content, compression)
            stamp(batch, 0, 0, -1)
            first = offsets[encoded.first].as_py()
            if len(batch) > max_message_bytes:
                raise ReplayRefused(
                    f"The record of partition {source} offset {first} takes {len(batch)} bytes with its "
                    f"origin header: raise the target's max.message.bytes of {max_message_bytes}."
                )
            yield ReplayBatch(batch, encoded.last - encoded.first + 1, source, first)


def _pieces(rows: pa.RecordBatch, most_bytes: int) -> Iterator[tuple[int, int]]:
    """The ranges of rows that make batches of about this size; a larger row gets its own batch."""
    sizes = np.full(rows.num_rows, _RECORD_BYTES, dtype=np.int64)
    for name in ("key", "value"):
        sizes += pc.fill_null(pc.binary_length(rows.column(name)), 0).to_numpy()
    headers = rows.column("headers")
    flat, parents = pc.list_flatten(headers), pc.list_parent_indices(headers).to_numpy()
    for at in (0, 1):
        lengths = pc.fill_null(pc.binary_length(pc.struct_field(flat, at)), 0).to_numpy()
        sizes += np.bincount(parents, lengths + 2, rows.num_rows).astype(np.int64)
    filled = np.cumsum(sizes)
    start = 0
    while start < rows.num_rows:
        before = int(filled[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(filled, before + most_bytes, "right")))
        yield start, stop
        start = stop


def _compressed(batch: bytearray, compression: Compression) -> bytearray:
    """The batch with compressed records; its CRC is set when it gets its producer."""
    payload = compress(memoryview(batch)[HEADER_BYTES:], compression)
    header = read_header(batch)
    attributes = header.attributes | CODECS.index(compression)
    length = HEADER_BYTES + len(payload)
    return bytearray(pack_header(msgspec.structs.replace(header, attributes=attributes, length=length)) + payload)

"""A digest of rows: equal for equal rows, however they are split into batches, row groups or files.

It covers what came from the topic (offset, timestamp and its type, key, value, headers) and nothing derived. Each
column is hashed as a separate stream, lengths apart from contents, so `ab`+`c` is not `a`+`bc`, and null is not empty.
No headers and null headers are the same in Kafka and the same here.

Separate because three places must agree to the bit: the task that writes, and `verify` over the table and over the
topic.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.compute as pc

DIGEST_HEX = 32
"""Characters kept of a digest: 128 bits."""

_NUMBERS = {"offset": pa.int64(), "timestamp_ms": pa.int64(), "timestamp_type": pa.int32()}
_STREAMS = (
    *_NUMBERS, "key.length", "key", "value.length", "value", "headers.count",
    "header.key.length", "header.key", "header.value.length", "header.value",
)  # fmt: skip
NO_ROWS_CHAIN = "0" * DIGEST_HEX


class RowDigest:
    """A digest of rows added in order."""

    def __init__(self) -> None:
        self.rows = 0
        self._streams = {name: hashlib.sha256() for name in _STREAMS}

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds the rows of a batch with the table's columns."""
        self.rows += batch.num_rows
        for name, kind in _NUMBERS.items():
            self._add_numbers(name, batch.column(name).cast(kind))
        self._add_bytes("key", batch.column("key"))
        self._add_bytes("value", batch.column("value"))
        self._add_headers(batch.column("headers"))

    def hex(self) -> str:
        """The digest so far."""
        whole = hashlib.sha256()
        for name in _STREAMS:
            whole.update(self._streams[name].digest())
        return whole.hexdigest()[:DIGEST_HEX]

    def _add_numbers(self, name: str, numbers: pa.Array) -> None:
        start = numbers.offset * (width := numbers.type.bit_width // 8)
        self._streams[name].update(memoryview(numbers.buffers()[1])[start : start + len(numbers) * width])

    def _add_bytes(self, name: str, column: pa.Array) -> None:
        lengths = pc.binary_length(column).cast(pa.int32())
        self._add_numbers(f"{name}.length", pc.fill_null(lengths, -1) if lengths.null_count else lengths)
        present = column.drop_null() if column.null_count else column
        if len(present) == 0:
            return
        _, offsets, data = present.buffers()
        ends = memoryview(offsets).cast("i" if _narrow(present.type) else "q")
        if data is not None:
            self._streams[name].update(memoryview(data)[ends[present.offset] : ends[present.offset + len(present)]])

    def _add_headers(self, column: pa.Array) -> None:
        counts = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
        self._add_numbers("headers.count", counts)
        flat = pc.list_flatten(column)
        if len(flat):
            self._add_bytes("header.key", flat.field(0) if not flat.offset else pc.struct_field(flat, 0))
            self._add_bytes("header.value", flat.field(1) if not flat.offset else pc.struct_field(flat, 1))


def chained(chain: str, start: int, end: int, rows: int, digest: str) -> str:
    """The running digest of a partition after one more range."""
    return hashlib.sha256(f"{chain} {start} {end} {rows} {digest}".encode()).hexdigest()[:DIGEST_HEX]


def _narrow(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))

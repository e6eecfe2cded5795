"""Encodes rows of a table as record batches: the inverse of decode.py.

The rule: decoding the batches gives the same rows, to the bit. Offsets stay, with holes between them; timestamps and
their type stay, so a batch ends where the type changes, and with LogAppendTime, which has one timestamp per batch,
where the timestamp does. Producers are not in the table: no batch has one.

There is no loop over records and no compiler: numbers become columns of bytes, and Arrow joins them with keys and
values, row by row, into the batch's payload. Reading the rows from Parquet takes as long. A compiled loop would be
faster, but would have to be compiled before the first record could be served.
"""

from __future__ import annotations

from typing import cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.lake.records.table_schema import HEADERS_TYPE
from headrace.wire.batch import HEADER_BYTES, LOG_APPEND_TIME, MAGIC, BatchHeader, crc_of, pack_header

Int64s = NDArray[np.int64]
Bytes = NDArray[np.uint8]

BATCH_BYTES = 1024 * 1024
"""Approximate size of a batch; a larger record makes a larger batch."""

BATCH_RECORDS = 16 * 1024
"""Maximum records in a batch: a consumer that wants only the last one decodes all of them."""

COLUMNS = ["partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers"]
"""The columns `encode` needs; the reader of the file has to check them."""

_FURTHEST_DELTA = (1 << 31) - 1
_PLAIN_TIME = 1 << 61
"""Timestamps within this distance of 1970 have differences of 64 bits. Any other record gets its own batch."""

_RECORD_BYTES = 12
"""Approximate overhead of a record besides key, value and headers."""

_NOTHING = pa.scalar(b"", pa.binary())


class EncodedBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch and its first and last offset."""

    first: int
    last: int
    content: bytearray


def encode(rows: pa.RecordBatch) -> list[EncodedBatch]:
    """Encodes rows with rising offsets as batches of about `BATCH_BYTES`."""
    if rows.num_rows == 0:
        return []
    offsets, times = _numbers(rows, "offset"), _numbers(rows, "timestamp_ms")
    types = _numbers(rows, "timestamp_type")
    keys, values = rows.column("key"), rows.column("value")
    headers = _headers(rows.column("headers"))
    starts = _cut(offsets, times, types, _sizes(keys) + _sizes(values) + _sizes(headers))
    payload, ends = _payload(offsets, times, keys, values, headers, starts)
    batches = []
    for start, stop in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        records = payload[ends[start] : ends[stop]]
        batches.append(_batch(offsets[start:stop], times[start:stop], int(types[start]), records))
    return batches


def warm_up() -> None:
    """Loads in advance what the first call would load."""
    columns = {"partition": [0], "offset": [0], "timestamp_ms": [0], "timestamp_type": [0], "key": [b""]}
    rows = pa.table({**columns, "value": [b""], "headers": pa.nulls(1, HEADERS_TYPE)})
    encode(rows.to_batches()[0])


def _batch(offsets: Int64s, times: Int64s, timestamp_type: int, records: memoryview) -> EncodedBatch:
    first, last = int(offsets[0]), int(offsets[-1])
    header = BatchHeader(
        base_offset=first,
        length=HEADER_BYTES + len(records),
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=LOG_APPEND_TIME if timestamp_type else 0,
        last_offset_delta=last - first,
        base_timestamp=int(times[0]),
        max_timestamp=int(times.max()),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=len(offsets),
    )
    content = bytearray().join((pack_header(header), records))
    content[:HEADER_BYTES] = pack_header(msgspec.structs.replace(header, crc=crc_of(content)))
    return EncodedBatch(first, last, content)


# Where batches begin


def _cut(offsets: Int64s, times: Int64s, types: Int64s, sizes: Int64s) -> list[int]:
    """The index of each batch's first row."""
    changes = np.diff(types) != 0
    changes |= (types[1:] != 0) & (np.diff(times) != 0)
    odd = (times > _PLAIN_TIME) | (times < -_PLAIN_TIME)
    changes |= odd[1:] | odd[:-1]
    forced = np.flatnonzero(changes) + 1
    filled = np.cumsum(sizes + _RECORD_BYTES)
    starts: list[int] = []
    at, count = 0, len(offsets)
    while at < count:
        starts.append(at)
        before = int(filled[at - 1]) if at else 0
        next_forced = int(np.searchsorted(forced, at, "right"))
        at = max(
            at + 1,
            min(
                int(np.searchsorted(filled, before + BATCH_BYTES, "right")),
                int(np.searchsorted(offsets, int(offsets[at]) + _FURTHEST_DELTA, "right")),
                int(forced[next_forced]) if next_forced < len(forced) else count,
                at + BATCH_RECORDS,
                count,
            ),
        )
    return starts


# Records


def _payload(
    offsets: Int64s, times: Int64s, keys: pa.Array, values: pa.Array, headers: pa.Array, starts: list[int]
) -> tuple[memoryview, Int64s]:
    """All records back to back, and the start of each; one more start than records."""
    count = len(offsets)
    lengths = np.diff([*starts, count])
    time_deltas = _Varints(times - np.repeat(times[starts], lengths))
    offset_deltas = _Varints(offsets - np.repeat(offsets[starts], lengths))
    key_lengths, value_lengths = _lengths(keys), _lengths(values)
    key_varints, value_varints = _Varints(key_lengths), _Varints(value_lengths)
    contents = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + _lengths(headers)
    attributes = _Varints(np.zeros(count, np.int64))
    fields = (attributes, time_deltas, offset_deltas, key_varints)
    sizes = sum((field.lengths for field in fields), contents + value_varints.lengths)
    joined = _join(_interleaved(_Varints(sizes), *fields), keys, _interleaved(value_varints), values, headers)
    _, ends, data = joined.buffers()
    return memoryview(data), np.frombuffer(ends, np.int32).astype(np.int64)


def _headers(column: pa.Array) -> pa.Array:
    """The encoded headers of each record, prefixed by their count."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    count_bytes = _interleaved(_Varints(counts))
    flat = pc.list_flatten(column)
    if len(flat) == 0:
        return count_bytes
    names, values = pc.struct_field(flat, 0).cast(pa.binary()), pc.struct_field(flat, 1)
    each = _join(_interleaved(_Varints(_lengths(names))), names, _interleaved(_Varints(_lengths(values))), values)
    # A record's headers are adjacent: only the start per record changes.
    _, ends, data = each.buffers()
    lists = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=lists[1:])
    return _join(count_bytes, _binary(data, np.frombuffer(ends, np.int32)[lists]))


def _join(*columns: pa.Array) -> pa.Array:
    """Joins the bytes of all columns row by row; null counts as empty."""
    return pc.binary_join_element_wise(*columns, _NOTHING, null_handling="replace", null_replacement=b"")


class _Varints:
    """Numbers as zigzag varints: a column per byte position, with a mask of the rows that have it."""

    def __init__(self, numbers: Int64s) -> None:
        rest: NDArray[np.unsignedinteger] = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        largest = int(rest.max())
        if largest < 1 << 32:
            rest = rest.astype(np.uint32)  # half the bytes to process
        self.lengths = np.ones(len(numbers), np.int64)
        self.places: list[tuple[Bytes, NDArray[np.bool_] | None]] = []
        has_place = None
        while True:
            place = (rest & 0x7F).astype(np.uint8)
            rest = rest >> np.uint8(7)
            largest >>= 7
            if not largest:
                self.places.append((place, has_place))
                return
            has_more = rest != 0
            self.places.append((place | has_more.view(np.uint8) << 7, has_place))
            self.lengths += has_more
            has_place = has_more


def _interleaved(*fields: _Varints) -> pa.Array:
    """Joins the bytes of all fields row by row."""
    places = [place for field in fields for place in field.places]
    count = len(places[0][0])
    filled = np.empty((count, len(places)), np.uint8)
    mask = np.ones((count, len(places)), np.bool_)
    for at, (place, has_place) in enumerate(places):
        filled[:, at] = place
        if has_place is not None:
            mask[:, at] = has_place
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(sum(field.lengths for field in fields), out=ends[1:])
    return _binary(pa.py_buffer(filled[mask]), ends)


def _binary(data: pa.Buffer, ends: NDArray[np.int32]) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), data], 0)


# Columns


def _numbers(rows: pa.RecordBatch, name: str) -> Int64s:
    return cast(Int64s, rows.column(name).to_numpy().astype(np.int64, copy=False))


def _lengths(column: pa.Array) -> Int64s:
    """The length of each row's bytes, -1 for null, as in a record."""
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(ends).astype(np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def _sizes(column: pa.Array) -> Int64s:
    return np.maximum(_lengths(column), 0)

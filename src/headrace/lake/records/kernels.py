"""The inner loops of decoding, compiled by numba: find the records, then copy their bytes into Arrow's buffers.

Rule kept here: no byte outside a record is read and none outside a buffer is written, whatever the input. The loops
run without bounds checks and without the GIL, so every position is compared with its end before it is used; on a
mismatch `locate` gives up, and the caller gets the reason from the decoder in `wire`. Separate from decode.py because
everything here must stay within the part of Python that numba compiles.

Numbers are int64 unless a comment says why not: numba turns int64 and uint64 together into a float.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])
Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

# Columns of the table of batches that `locate` reads, one row per batch.
START, END, COUNT, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, IS_APPEND_TIME, APPEND_TIME = range(8)
BATCH_COLUMNS = 8

# Columns of the table of records that `locate` fills, one row per record; a length of -1 is null.
OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY_AT, KEY_BYTES, VALUE_AT, VALUE_BYTES, HEADERS_AT, HEADERS = range(9)
RECORD_COLUMNS = 9

_LOW_63_BITS = 0x7FFF_FFFF_FFFF_FFFF

# For the compiler numpy's types, for the type checker ordinary numbers.
_int64 = cast(Callable[[Any], int], np.int64)
_uint64 = cast(Callable[[Any], int], np.uint64)


def compiled(function: F) -> F:
    """Compiles the function at its first call, and caches it on disk if possible."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return cast(F, numba.njit(nogil=True)(function))


@compiled
def _varint(data: Bytes, pos: int, end: int, bits: int) -> tuple[int, int]:
    """The zigzag number at `pos` and the position after it, or -1 if it is malformed."""
    if pos < end and data[pos] < 0x80:
        byte = _int64(data[pos])
        return (byte >> 1) ^ -(byte & 1), pos + 1
    value = _int64(0)
    shift = 0
    while pos < end and shift < bits:
        byte = _int64(data[pos])
        pos += 1
        if byte < 0x80:
            if shift + 7 > bits and byte >> (bits - shift):
                return 0, -1
            value |= byte << shift
            return ((value >> 1) & _LOW_63_BITS) ^ -(value & 1), pos
        value |= (byte & 0x7F) << shift
        shift += 7
    return 0, -1


@compiled
def _span(data: Bytes, pos: int, end: int) -> tuple[int, int, int]:
    """Start and length (-1: null) of the length-prefixed bytes at `pos`, and the position after them or -1."""
    length, pos = _varint(data, pos, end, 32)
    if pos < 0:
        return 0, 0, -1
    if length < 0:
        return pos, -1, pos
    if length > end - pos:
        return 0, 0, -1
    return pos, length, pos + length


@compiled
def _past_headers(data: Bytes, pos: int, end: int, count: int) -> int:
    """The position after this many headers, or -1 if they are malformed."""
    for _ in range(count):
        _, name_bytes, pos = _span(data, pos, end)
        if pos < 0 or name_bytes < 0:
            return -1
        _, _, pos = _span(data, pos, end)
        if pos < 0:
            return -1
    return pos


@compiled
def locate(data: Bytes, batches: Int64s, first_offset: int, stop_offset: int, records: Int64s) -> tuple[int, int]:
    """Fills `records` with the positions of the parts of each record in [first_offset, stop_offset).

    Returns the count of records, and the index of the first malformed batch or -1.
    """
    found = 0
    for index in range(batches.shape[0]):
        batch = batches[index]
        pos, batch_end = batch[START], batch[END]
        last_delta = _int64(-1)
        for _ in range(batch[COUNT]):
            length, pos = _varint(data, pos, batch_end, 32)
            # The smallest record has an attributes byte and five numbers.
            if pos < 0 or length < 6 or length > batch_end - pos:
                return found, index
            end = pos + length
            timestamp_delta, pos = _varint(data, pos + 1, end, 64)
            if pos < 0:
                return found, index
            delta, pos = _varint(data, pos, end, 32)
            if pos < 0 or delta <= last_delta or delta > batch[LAST_DELTA]:
                return found, index
            last_delta = delta
            key_at, key_bytes, pos = _span(data, pos, end)
            if pos < 0:
                return found, index
            value_at, value_bytes, pos = _span(data, pos, end)
            if pos < 0:
                return found, index
            headers, pos = _varint(data, pos, end, 32)
            if pos < 0 or headers < 0:
                return found, index
            headers_at = pos
            pos = _past_headers(data, pos, end, headers)
            if pos != end:
                return found, index
            timestamp = batch[APPEND_TIME]
            if not batch[IS_APPEND_TIME]:
                base = batch[BASE_TIMESTAMP]
                timestamp = base + timestamp_delta
                if ((base ^ timestamp) & (timestamp_delta ^ timestamp)) < 0:
                    return found, index
            offset = batch[BASE_OFFSET] + delta
            if first_offset <= offset and offset < stop_offset:
                record = records[found]
                record[OFFSET] = offset
                record[TIMESTAMP] = timestamp
                record[TIMESTAMP_TYPE] = batch[IS_APPEND_TIME]
                record[KEY_AT] = key_at
                record[KEY_BYTES] = key_bytes
                record[VALUE_AT] = value_at
                record[VALUE_BYTES] = value_bytes
                record[HEADERS_AT] = headers_at
                record[HEADERS] = headers
                found += 1
        if pos != batch_end:
            return found, index
    return found, -1


@compiled
def copy_spans(data: Bytes, records: Int64s, at: int, offsets: Int32s, out: Bytes) -> int:
    """Copies one field of all records into `out`; `at` is the column of its position, the next that of its length.

    Fills `offsets` with the start of each, one more than there are records; returns how many are null.
    """
    end = _int64(0)
    nulls = 0
    offsets[0] = 0
    for index in range(records.shape[0]):
        start, length = records[index, at], records[index, at + 1]
        if length < 0:
            nulls += 1
        else:
            # Unsigned indexes cannot count from the end, so the loop becomes a copy of whole words, 10 times faster.
            to, source = _uint64(end), _uint64(start)
            for i in range(_uint64(length)):
                out[to + i] = data[source + i]
            end += length
        offsets[index + 1] = end
    return nulls


@compiled
def locate_headers(data: Bytes, records: Int64s, data_end: int, lists: Int32s, headers: Int64s) -> None:
    """Fills `lists` with the start of each record's headers, and `headers` with the spans of names and values."""
    found = 0
    lists[0] = 0
    for index in range(records.shape[0]):
        pos = records[index, HEADERS_AT]
        for _ in range(records[index, HEADERS]):
            headers[found, 0], headers[found, 1], pos = _span(data, pos, data_end)
            headers[found, 2], headers[found, 3], pos = _span(data, pos, data_end)
            found += 1
        lists[index + 1] = found

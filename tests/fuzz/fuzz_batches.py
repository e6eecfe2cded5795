"""Fuzz target: whatever the bytes, a batch is decoded or refused with one of our errors, within bounds.

`run` is the whole property. The test next to this file drives it with Hypothesis; by hand, with atheris installed:

    python -m tests.fuzz.fuzz_batches [corpus directory]
"""

import contextlib
import importlib
import struct
import sys
from typing import Any

from headrace.wire.batch import (
    HEADER_BYTES,
    check_produced,
    crc_of,
    end_offset,
    fit,
    iter_headers,
    read_header,
    slice_from,
    stamp_append_time,
)
from headrace.wire.batch_errors import BatchError
from headrace.wire.records import decode_batch, encode_batch, unpack
from headrace.wire.skim import check_records, finish
from headrace.wire.times import newest_time

MAX_BYTES = 1 << 16


def run(data: bytes) -> None:
    """Feed the bytes as they are, and once more as one batch whose length, magic and CRC are right."""
    _read(data)
    if len(data) >= HEADER_BYTES:
        _read(_sealed(data))


def _sealed(data: bytes) -> bytes:
    """The same bytes behind every check that random input would never pass."""
    batch = bytearray(data)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    batch[16] = 2
    struct.pack_into(">I", batch, 17, crc_of(batch))
    return bytes(batch)


def _read(data: bytes) -> None:
    accepted = _walk(data)
    with contextlib.suppress(BatchError):
        newest_time(data, max_bytes=MAX_BYTES)
    try:
        records = decode_batch(data, max_bytes=MAX_BYTES)
    except BatchError:
        assert not accepted or not _holds(data)
        return
    held_bytes = sum(len(record.key or b"") + len(record.value or b"") for record in records)
    assert held_bytes <= MAX_BYTES
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    if records:
        newest = newest_time(data, max_bytes=MAX_BYTES)
        assert newest in (-1, max(record.timestamp for record in records))
        try:
            again = encode_batch(records, base_offset=offsets[0])
        except BatchError:
            return  # times further apart than one batch can say
        assert decode_batch(again, max_bytes=1 << 20) == records


def _walk(data: bytes) -> bool:
    """Everything that looks at headers only; whether a produce request would be accepted."""
    try:
        positions = [pos for pos, _ in iter_headers(data)]
        assert 0 <= slice_from(data, 3) <= len(data)
        assert fit(data, 0, len(data) // 2) in {*positions, len(data)}
        end_offset(data)
        stamp_append_time(bytearray(data), 0, 1)
    except BatchError:
        pass
    try:
        header = check_produced(data, MAX_BYTES)
    except BatchError:
        return False
    assert header.count == header.last_offset_delta + 1 > 0
    return True


def _holds(data: bytes) -> bool:
    """Whether the deep check accepts the records: it may not accept what reading refuses."""
    try:
        header = read_header(data)
        finish(check_records(unpack(data, header, MAX_BYTES), header, most=1))
    except BatchError:
        return False
    return True


def main() -> None:
    atheris: Any = importlib.import_module("atheris")
    atheris.Setup(sys.argv, run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

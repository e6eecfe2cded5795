"""Small batches that hold a lot: what one client can send to keep a broker busy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from headrace.wire.batch import CRC_COVERS_FROM, crc_of
from headrace.wire.compression import Compression
from headrace.wire.records import Record, encode_batch

NOW = 1_700_000_000_000
MIB = 1 << 20
TINY_RECORDS = 60_000
CODECS: tuple[Compression, ...] = ("gzip", "snappy", "lz4", "zstd")
_MAX_TIMESTAMP_AT = 35


def bombs_of(codec: Compression, max_timestamp: int = NOW + 1) -> Iterator[bytes]:
    """Batches of at most a megabyte: the largest that are taken, one that is not, and many or strange records.

    Their headers say a newest time that no record has: one above has lookups by time go over all records, with 0 the
    broker does so to find the right one.
    """
    for made in _bombs_of(codec):
        batch = bytearray(made)
        batch[_MAX_TIMESTAMP_AT : _MAX_TIMESTAMP_AT + 8] = max_timestamp.to_bytes(8, "big")
        batch[17:CRC_COVERS_FROM] = crc_of(batch).to_bytes(4, "big")
        yield bytes(batch)


@cache
def _bombs_of(codec: Compression) -> list[bytes]:
    """Made once: they take seconds."""
    noise = random.Random(1).randbytes(600_000)
    made = [_batch(codec, Record(0, NOW, b"k", bytes(15 * MIB)))]
    if codec != "snappy":  # it packs no more than 22 times
        made.append(_batch(codec, Record(0, NOW, b"k", noise + bytes(50 * MIB))))
        made.append(_batch(codec, Record(0, NOW, b"k", bytes(120 * MIB))))
    made.append(_batch(codec, *(Record(n, NOW, b"k", None) for n in range(TINY_RECORDS))))
    made.append(_batch(codec, *(Record(n, NOW, None, None) for n in range(TINY_RECORDS))))
    made.append(_batch(codec, Record(0, NOW, b"k", None, [("", None)] * 500_000)))
    return made


def _batch(codec: Compression, *records: Record) -> bytes:
    return bytes(encode_batch(records, compression=codec))

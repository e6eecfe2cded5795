"""Batches of transactions, and the markers that end them, as they lie in a log."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from headrace.wire.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, crc_of, pack_header, read_header
from headrace.wire.compression import Compression
from headrace.wire.records import Header, Record, encode_batch


def transactional(
    base_offset: int,
    count: int,
    producer_id: int,
    *,
    codec: Compression = "none",
    headers: Sequence[Header] = (),
) -> bytes:
    """Records of a transaction, each with the producer's id as its value."""
    made = encode_batch(
        [Record(base_offset + i, 0, None, b"%d" % producer_id, list(headers)) for i in range(count)],
        base_offset=base_offset,
        compression=codec,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    return with_attributes(made, TRANSACTIONAL)


def marker(offset: int, producer_id: int, *, commits: bool) -> bytes:
    """The end of a producer's transaction."""
    key = struct.pack(">hh", 0, int(commits))
    made = encode_batch([Record(offset, 0, key, bytes(6))], base_offset=offset, producer_id=producer_id)
    return with_attributes(made, TRANSACTIONAL | CONTROL)


def with_attributes(batch: bytes, attributes: int) -> bytes:
    """A batch with more attributes, and the CRC that it has then."""
    header = read_header(batch)
    header = msgspec.structs.replace(header, attributes=header.attributes | attributes)
    payload = batch[HEADER_BYTES:]
    return pack_header(msgspec.structs.replace(header, crc=crc_of(pack_header(header) + payload))) + payload

"""Batches as a program wants them, the broken ones too."""

from __future__ import annotations

import struct

from headrace.wire.batch import CONTROL, TRANSACTIONAL, crc_of
from headrace.wire.records import Record, encode_batch
from tests.fuzz.program import Batch

_LENGTH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _DELTA_AT, _COUNT_AT = 8, 16, 17, 21, 23, 57
_NO_SUCH_CODEC = 7


def built(batch: Batch, now_ms: int, producer: tuple[int, int], sequence: int) -> bytes | None:
    """The bytes of one batch; `producer` is its id and epoch."""
    if batch.damage == "null":
        return None
    records = [
        Record(place, now_ms - batch.age_ms + place, b"key %d" % (place % 3) if batch.has_keys else None, value)
        for place, value in enumerate(batch.values)
    ]
    if batch.damage == "no-sequence":
        sequence = -1
    base_offset = 5 if batch.damage == "offset" else 0
    data = bytearray(
        encode_batch(
            [Record(base_offset + one.offset, one.timestamp, one.key, one.value) for one in records],
            base_offset=base_offset,
            compression=batch.codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
        )
    )
    if batch.transactional:
        data[_ATTRIBUTES_AT + 1] |= TRANSACTIONAL
    _sign(data)
    return _damaged(data, batch.damage)


def _sign(data: bytearray) -> None:
    struct.pack_into(">I", data, _CRC_AT, crc_of(data))


def _damaged(data: bytearray, damage: str) -> bytes:
    if damage == "crc":
        data[_CRC_AT] ^= 1
    elif damage == "magic":
        data[_MAGIC_AT] = 3
    elif damage == "old-magic":
        data[_MAGIC_AT] = 1
    elif damage == "cut":
        data = data[:-3]
    elif damage == "longer":
        struct.pack_into(">i", data, _LENGTH_AT, len(data))
    elif damage == "control":
        data[_ATTRIBUTES_AT + 1] |= CONTROL
    elif damage == "codec":
        data[_ATTRIBUTES_AT + 1] |= _NO_SUCH_CODEC
    elif damage in ("count", "delta"):
        struct.pack_into(">i", data, _COUNT_AT if damage == "count" else _DELTA_AT, 77)
    elif damage == "empty":
        data = bytearray()
    elif damage == "two":
        data = data * 2
    if damage in ("control", "codec", "count", "delta"):
        _sign(data)
    return bytes(data)

"""Builds record batches for consumers from entries of a stream. Pure; the per-record cost of reading is here.

With LogAppendTime a batch has one timestamp, that of its entries' ids, so it covers one millisecond: clients then see
both the right type and each record's own time. With CreateTime each record carries its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.store.stream.records import VALUE, StreamEntry, id_time, is_foreign, record_of
from headrace.wire.batch import HEADER_BYTES, LOG_APPEND_TIME, MAGIC, BatchHeader, seal
from headrace.wire.records import Header, Record
from headrace.wire.varint import encode_varint, encode_varlong

BATCH_BYTES = 256 << 10
_WIDEST_DELTA = (1 << 31) - 1
_NULL = encode_varint(-1)
_SMALL_END = 1 << 13
_SMALL = tuple(encode_varint(number) for number in range(_SMALL_END))
_INT64 = 1 << 63


class Built(NamedTuple):
    """A batch for consumers."""

    base_offset: int
    end_offset: int
    data: bytes


def batches_of(
    entries: Sequence[StreamEntry],
    offsets: Sequence[int],
    *,
    leader_epoch: int,
    max_bytes: int,
    at_least_one: bool,
    append_time: bool,
    skips_foreign: bool = False,
) -> list[Built]:
    """Entries as uncompressed batches, together at most `max_bytes`; the first record even if it is larger.

    A batch ends at BATCH_BYTES, where an offset would be too far from its base for the format, and with `append_time`
    where the millisecond does.
    """
    built: list[Built] = []
    batch: _OpenBatch | None = None
    size_bytes = 0
    for entry, offset in zip(entries, offsets, strict=True):
        raw_id, fields = entry
        is_plain = append_time and len(fields) == 2 and fields[0] == VALUE
        if skips_foreign and not is_plain and is_foreign(entry):
            continue
        if batch is None or not batch.has_room_for(offset, raw_id):
            if batch is not None:
                built.append(batch.build(leader_epoch))
            batch = _OpenBatch(entry, offset, append_time)
            size_bytes += HEADER_BYTES
        body = batch.encode_value(offset, fields[1]) if is_plain else batch.encode(record_of(entry, offset))
        size_bytes += len(body)
        if size_bytes > max_bytes and (built or batch.parts or not at_least_one):
            break
        batch.add(body, offset)
    if batch is not None and batch.parts:
        built.append(batch.build(leader_epoch))
    return built


class _OpenBatch:
    """A batch while records are added."""

    __slots__ = (
        "_append_ms",
        "_base_timestamp",
        "_max_timestamp",
        "_size_bytes",
        "base_offset",
        "last_offset",
        "parts",
    )

    def __init__(self, first: StreamEntry, base_offset: int, append_time: bool) -> None:
        self.base_offset = self.last_offset = base_offset
        ms = first[0].split(b"-", 1)[0]
        self._append_ms: bytes | None = ms + b"-" if append_time else None
        self._base_timestamp = id_time(int(ms)) if append_time else record_of(first, base_offset).timestamp
        self._max_timestamp = self._base_timestamp
        self.parts: list[bytes] = []
        self._size_bytes = 0

    def has_room_for(self, offset: int, raw_id: bytes) -> bool:
        if self._size_bytes >= BATCH_BYTES or offset - self.base_offset > _WIDEST_DELTA:
            return False
        return self._append_ms is None or raw_id.startswith(self._append_ms)

    def encode_value(self, offset: int, value: bytes) -> bytes:
        """A record with only a value, at the batch's time: the most common kind."""
        delta, length = _number(offset - self.base_offset), _number(len(value))
        size = _number(4 + len(delta) + len(length) + len(value))
        return b"".join((size, b"\0\0", delta, _NULL, length, value, b"\0"))

    def encode(self, record: Record) -> bytes:
        key, value, headers = record.key, record.value, record.headers
        time = 0
        if self._append_ms is None:
            time = record.timestamp - self._base_timestamp
            self._max_timestamp = max(self._max_timestamp, record.timestamp)
        body = b"".join(
            (
                b"\0",
                _SMALL[time] if 0 <= time < _SMALL_END else encode_varlong(_wrapped(time)),
                _number(record.offset - self.base_offset),
                _NULL if key is None else _number(len(key)) + key,
                _NULL if value is None else _number(len(value)) + value,
                _encode_headers(headers) if headers else b"\0",
            )
        )
        return _number(len(body)) + body

    def add(self, body: bytes, offset: int) -> None:
        self.parts.append(body)
        self._size_bytes += len(body)
        self.last_offset = offset

    def build(self, leader_epoch: int) -> Built:
        payload = b"".join(self.parts)
        header = BatchHeader(
            base_offset=self.base_offset,
            length=HEADER_BYTES + len(payload),
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=0 if self._append_ms is None else LOG_APPEND_TIME,
            last_offset_delta=self.last_offset - self.base_offset,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            count=len(self.parts),
        )
        return Built(self.base_offset, self.last_offset + 1, seal(header, payload))


def _number(value: int) -> bytes:
    """A length or a difference of offsets. With CreateTime those are rarely small: a millisecond is 2^bits of them."""
    if value < _SMALL_END:
        return _SMALL[value]
    if value < 1 << 20:
        return bytes((value << 1 & 0x7F | 0x80, value >> 6 & 0x7F | 0x80, value >> 13))
    if value < 1 << 27:
        low = (value << 1 & 0x7F | 0x80, value >> 6 & 0x7F | 0x80, value >> 13 & 0x7F | 0x80)
        return bytes((*low, value >> 20))
    return encode_varint(value)


def _wrapped(delta: int) -> int:
    """A difference of two times as 64 bits hold it: the reader's sum comes out right."""
    return (delta + _INT64) % (2 * _INT64) - _INT64


def _encode_headers(headers: list[Header]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        raw = name.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(raw)), raw)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)

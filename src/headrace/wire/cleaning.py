"""Removes records from a batch, as Kafka's log cleaner does.

The batch keeps its base offset, last offset, producer, sequence and compression, so that offsets, positions and
producer state do not change. Remaining records are copied without re-encoding; only if the batch gets a delete horizon
(KIP-534) are their timestamp deltas rewritten. A batch that loses all records may stay as a bare header, to keep its
producer's last sequence.

The work is split into portions of less than a millisecond, as in skim.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from headrace.wire.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    seal,
)
from headrace.wire.batch_errors import InvalidBatch
from headrace.wire.compression import compress
from headrace.wire.records import NO_TIMESTAMP, broken_record, check_promise
from headrace.wire.schema import Buffer
from headrace.wire.skim import Steps
from headrace.wire.varint import MalformedVarint, decode_varint, decode_varlong, encode_varint, encode_varlong

_PORTION: Final = 250
"""Records per portion."""

_COPIED_BYTES: Final = 1 << 20
"""Bytes are faster to parse than a view of them, but more than this is slow to copy."""

Keyed: TypeAlias = tuple[int, int, bytes | None, bool, int, int]
"""A record: offset delta, timestamp delta, key, whether it has a value, start and end position."""

Digest: TypeAlias = Callable[[bytes], bytes]
"""A key's representation in a map."""


class Sifted(NamedTuple):
    """The remaining records of a batch."""

    runs: list[tuple[int, int]]
    """Byte ranges of the remaining records; adjacent ones are joined."""
    kept: int
    newest_delta: int
    """Their largest timestamp delta; 0 if none remains."""
    has_tombstones: bool


def keyed(data: Buffer, header: BatchHeader) -> Iterator[list[Keyed]]:
    """The records of an unpacked batch with their keys, in portions; InvalidBatch if one is malformed."""
    check_promise(data, header)
    try:
        yield from _keyed(data if len(data) > _COPIED_BYTES else bytes(data), header)
    except (IndexError, MalformedVarint):
        raise broken_record() from None


def _keyed(data: Buffer, header: BatchHeader) -> Iterator[list[Keyed]]:
    """Written for speed, like the decoder in records.py; headers are skipped by the record's own length."""
    last_delta, highest_delta = -1, header.last_offset_delta
    portion: list[Keyed] = []
    pos, size = 0, len(data)
    key: bytes | None
    for _ in range(header.count):
        start = pos
        if (byte := data[pos]) < 0x80:
            length, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        else:
            length, pos = decode_varint(data, pos)
        end = pos + length
        pos += 1  # attributes, of which there are none yet
        if (byte := data[pos]) < 0x80:
            time, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        else:
            time, pos = decode_varlong(data, pos)
        if (byte := data[pos]) < 0x80:
            delta, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        else:
            delta, pos = decode_varint(data, pos)
        if (byte := data[pos]) < 0x80:
            length, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        else:
            length, pos = decode_varint(data, pos)
        key = None
        if length >= 0:
            key, pos = bytes(data[pos : pos + length]), pos + length
        # Any negative length means null; the sign of a varint is in its first byte.
        has_value = not data[pos] & 1
        if not last_delta < delta <= highest_delta or not pos < end <= size:
            raise InvalidBatch(f"The record at offset delta {delta} is malformed.")
        last_delta, pos = delta, end
        portion.append((delta, time, key, has_value, start, end))
        if len(portion) >= _PORTION:
            yield portion
            portion = []
    if pos != size:
        raise InvalidBatch(f"{size - pos} bytes follow the last record of the batch.")
    yield portion


def note_keys(data: Buffer, header: BatchHeader, latest: dict[bytes, int], digest: Digest) -> Steps[None]:
    """Records the offset of each key's last record."""
    base = header.base_offset
    for portion in keyed(data, header):
        for delta, _, key, _, _, _ in portion:
            if key is not None:
                latest[digest(key)] = base + delta
        yield


def sift(data: Buffer, header: BatchHeader, latest: Mapping[bytes, int], digest: Digest, now_ms: int) -> Steps[Sifted]:
    """The remaining records: the last one of each key, without expired tombstones and records without a key."""
    runs: list[tuple[int, int]] = []
    count, newest, has_tombstones, base = 0, 0, False, header.base_offset
    keeps_tombstones = not is_past_horizon(header, now_ms)
    for portion in keyed(data, header):
        for delta, time, key, has_value, start, end in portion:
            if key is None or latest.get(digest(key), -1) > base + delta or not (has_value or keeps_tombstones):
                continue
            newest = max(newest, time) if count else time
            count += 1
            has_tombstones = has_tombstones or not has_value
            if runs and runs[-1][1] == start:
                runs[-1] = (runs[-1][0], end)
            else:
                runs.append((start, end))
        yield
    return Sifted(runs, count, newest, has_tombstones)


def horizon_of(header: BatchHeader) -> int | None:
    """When a batch's tombstones expire; None before its first cleaning."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def is_past_horizon(header: BatchHeader, now_ms: int) -> bool:
    """Whether a batch's tombstones have expired."""
    horizon = horizon_of(header)
    return horizon is not None and horizon <= now_ms


def rebuilt(data: Buffer, header: BatchHeader, sifted: Sifted, horizon_ms: int | None) -> bytes:
    """The batch with the remaining records; `horizon_ms` is set as its delete horizon, if given.

    Compresses, so large batches must not be built on the event loop.
    """
    view = memoryview(data)
    pieces: list[Buffer] = [view[start:end] for start, end in sifted.runs]
    base_timestamp, attributes = header.base_timestamp, header.attributes
    if horizon_ms is not None:
        pieces = [_with_time_base(view[start:end], base_timestamp - horizon_ms) for start, end in sifted.runs]
        base_timestamp, attributes = horizon_ms, attributes | DELETE_HORIZON
    newest = header.max_timestamp
    if not attributes & LOG_APPEND_TIME:
        newest = max(header.base_timestamp + sifted.newest_delta, NO_TIMESTAMP)
    payload = compress(b"".join(pieces), header.compression)
    return _sealed(header, payload, sifted.kept, attributes, base_timestamp, newest)


def emptied(header: BatchHeader) -> bytes:
    """The batch without records, as Kafka writes it: producer and offsets stay."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
    return _sealed(header, b"", 0, attributes, NO_TIMESTAMP, header.max_timestamp)


def batch_of_nothing(first: int, last: int) -> bytes:
    """A batch that says that there are no records from an offset to another: consumers go on behind it."""
    return seal(
        BatchHeader(first, HEADER_BYTES, -1, 2, 0, 0, last - first, NO_TIMESTAMP, NO_TIMESTAMP, -1, -1, -1, 0), b""
    )


def _sealed(header: BatchHeader, payload: bytes, count: int, attributes: int, base_time: int, newest: int) -> bytes:
    changed = msgspec.structs.replace(
        header,
        length=HEADER_BYTES + len(payload),
        crc=0,
        attributes=attributes,
        base_timestamp=base_time,
        max_timestamp=newest,
        count=count,
    )
    return seal(changed, payload)


def _with_time_base(records: Buffer, earlier: int) -> bytes:
    """Records relative to another base timestamp: each delta grows by this much."""
    data, parts, pos = bytes(records), list[bytes](), 0
    while pos < len(data):
        length, pos = decode_varint(data, pos)
        end = pos + length
        time, behind = decode_varlong(data, pos + 1)
        body = data[pos : pos + 1] + encode_varlong(time + earlier) + data[behind:end]
        parts += (encode_varint(len(body)), body)
        pos = end
    return b"".join(parts)

"""The records inside a batch: decoding and encoding.

Rule kept here: nothing in a batch is trusted. No count, length or compressed payload makes a reader allocate more
than the input could fill or the caller allows, and any input gives either records or a `BatchError`. Separate from
batch.py because appending and fetching never need it: a broker moves whole batches. To learn something about records
without decoding them, use skim.py.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from headrace.wire.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_UNPACKED_BYTES,
    MIN_RECORD_BYTES,
    BatchHeader,
    TimestampType,
    check_crc,
    crc_of,
    pack_header,
)
from headrace.wire.batch_errors import BatchTooLarge, InvalidBatch
from headrace.wire.compression import (
    CODECS,
    Compression,
    DecompressionFailed,
    OutputTooLarge,
    compress,
    decompress,
)
from headrace.wire.schema import Buffer
from headrace.wire.varint import (
    MalformedVarint,
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
)

_PORTION: Final = 500
"""Records and headers decoded at a time."""
_PORTION_BYTES: Final = 256 * 1024
NO_TIMESTAMP: Final = -1
"""The timestamp of a record without one."""

_INT32_MAX: Final = (1 << 31) - 1
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

Header = tuple[str, bytes | None]


class Record(msgspec.Struct, gc=False):
    """One record. Header names that are not UTF-8 keep their bytes as surrogate escapes, so nothing is lost."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: list[Header] = []


def decode_batch(batch: Buffer, *, max_bytes: int = MAX_UNPACKED_BYTES) -> list[Record]:
    """Decodes one whole batch and checks its CRC. Offsets rise within the header's range."""
    header = check_crc(batch)
    return [record for portion in iter_records(unpack(batch, header, max_bytes), header) for record in portion]


def iter_records(data: Buffer, header: BatchHeader, *, max_headers: int = _INT32_MAX) -> Iterator[list[Record]]:
    """Decodes an unpacked batch a few hundred records at a time, about a millisecond's work.

    A record with more than `max_headers` headers is refused before they are decoded.
    """
    data = bytes(data)
    check_promise(data, header)
    try:
        yield from _decode_records(data, header, max_headers)
    except (IndexError, MalformedVarint):
        raise broken_record() from None


def unpack(batch: Buffer, header: BatchHeader, max_bytes: int) -> Buffer:
    """Decompresses the records; BatchTooLarge above `max_bytes`."""
    if header.count == 0:
        # A compacted log keeps an empty batch for its producer's state; there is nothing to decompress.
        return b""
    try:
        return decompress(memoryview(batch)[HEADER_BYTES:], header.compression, max_bytes)
    except DecompressionFailed as error:
        raise InvalidBatch(str(error)) from None
    except OutputTooLarge as error:
        raise BatchTooLarge(str(error)) from None


def check_promise(data: Buffer, header: BatchHeader) -> None:
    """Refuses a header that promises more records than the bytes can hold."""
    count = header.count
    if count < 0 or count * MIN_RECORD_BYTES > len(data):
        raise InvalidBatch(f"{count} records do not fit in {len(data)} bytes.")
    if header.last_offset > _INT64_MAX:
        raise InvalidBatch(f"Offset {header.last_offset} does not fit 64 bits.")


def broken_record() -> InvalidBatch:
    """The error for a read past the end of the bytes, or for a malformed number."""
    return InvalidBatch("A record runs past the end of its batch, or its structure is broken.")


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: Compression = "none",
    timestamp_type: TimestampType = "CreateTime",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
) -> bytes:
    """Encodes one batch. Offsets rise from `base_offset`, with gaps allowed.

    With LogAppendTime, readers see the newest timestamp on every record, as the format defines.
    """
    records = list(records)
    if not records:
        raise InvalidBatch("A batch holds at least one record.")
    first, newest = records[0].timestamp, max(record.timestamp for record in records)
    payload = compress(encode_records(records, base_offset, first), compression)
    length = HEADER_BYTES + len(payload)
    if length > _INT32_MAX:
        raise BatchTooLarge(f"A batch of {length} bytes exceeds what its length field can hold.")
    header = BatchHeader(
        base_offset=base_offset,
        length=length,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=CODECS.index(compression) | (LOG_APPEND_TIME if timestamp_type == "LogAppendTime" else 0),
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=first,
        max_timestamp=newest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )
    try:
        crc = crc_of(pack_header(header) + payload)
    except struct.error as error:
        raise InvalidBatch(f"A number does not fit its field of the header: {error}.") from None
    return pack_header(msgspec.structs.replace(header, crc=crc)) + payload


def encode_records(records: list[Record], base_offset: int, base_timestamp: int) -> bytes:
    parts: list[bytes] = []
    last_delta = -1
    try:
        for record in records:
            delta = record.offset - base_offset
            if delta <= last_delta:
                raise InvalidBatch(f"Offset {record.offset} is not above the one before.")
            last_delta = delta
            body = _encode_body(record, delta, base_timestamp)
            parts += (encode_varint(len(body)), body)
    except (MalformedVarint, UnicodeEncodeError) as error:
        raise InvalidBatch(f"A record does not fit the format: {error}") from None
    return b"".join(parts)


def _encode_body(record: Record, offset_delta: int, base_timestamp: int) -> bytes:
    key, value, headers = record.key, record.value, record.headers
    parts = [
        b"\0",
        encode_varlong(record.timestamp - base_timestamp),
        encode_varint(offset_delta),
        *(_NULL if key is None else (encode_varint(len(key)), key)),
        *(_NULL if value is None else (encode_varint(len(value)), value)),
        encode_varint(len(headers)),
    ]
    for name, header_value in headers:
        name_bytes = name.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(name_bytes)), name_bytes)
        parts += _NULL if header_value is None else (encode_varint(len(header_value)), header_value)
    return b"".join(parts)


_NULL: Final = (encode_varint(-1),)


def _decode_records(data: bytes, header: BatchHeader, max_headers: int) -> Iterator[list[Record]]:
    """The records, in portions.

    Written for speed: one-byte numbers, the usual case, are decoded in place. A length that points outside its record
    needs no check of its own: positions only grow, a slice stops at the end of the input, and each record must end
    exactly where its length says.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    last_delta, highest_delta = -1, header.last_offset_delta
    records: list[Record] = []
    headers: list[Header]
    pos = began = steps = 0
    for _ in range(header.count):
        if (byte := data[pos]) < 0x80:
            length, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        else:
            length, pos = decode_varint(data, pos)
        end = pos + length

        pos += 1  # attributes, of which there are none yet
        if (byte := data[pos]) < 0x80:
            timestamp, pos = base_timestamp + ((byte >> 1) ^ -(byte & 1)), pos + 1
        else:
            timestamp, pos = decode_varlong(data, pos)
            timestamp += base_timestamp
        if append_time is not None:
            timestamp = append_time
        elif not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise InvalidBatch(f"A record's timestamp {timestamp} does not fit 64 bits.")

        if (byte := data[pos]) < 0x80:
            delta, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        else:
            delta, pos = decode_varint(data, pos)
        if not last_delta < delta <= highest_delta:
            raise InvalidBatch(f"Offset delta {delta} follows {last_delta} in a batch up to {highest_delta}.")
        last_delta = delta

        key, pos = _nullable_bytes(data, pos)
        value, pos = _nullable_bytes(data, pos)
        if data[pos] == 0:
            headers, pos = [], pos + 1
        else:
            headers, pos = _headers(data, pos, max_headers)
        if pos != end:
            raise InvalidBatch(f"A record of {length} bytes does not end where its length says.")
        records.append(Record(base_offset + delta, timestamp, key, value, headers))
        steps += 1 + len(headers)
        if steps >= _PORTION or pos - began >= _PORTION_BYTES:
            yield records
            records, began, steps = [], pos, 0
    if pos != len(data):
        raise InvalidBatch(f"{len(data) - pos} bytes follow the last record of the batch.")
    yield records


def _nullable_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    """Length-prefixed bytes. Any negative length means null, as for every other reader."""
    if (byte := data[pos]) < 0x80:
        length, pos = (byte >> 1) ^ -(byte & 1), pos + 1
    else:
        length, pos = decode_varint(data, pos)
    if length < 0:
        return None, pos
    return data[pos : pos + length], pos + length


def _headers(data: bytes, pos: int, most: int) -> tuple[list[Header], int]:
    count, pos = decode_varint(data, pos)
    if count > most:
        raise InvalidBatch(f"A record has {count} headers; at most {most} are accepted.")
    # A header takes at least two bytes.
    if not 0 <= count <= (len(data) - pos) // 2:
        raise InvalidBatch(f"A record cannot have {count} headers.")
    headers: list[Header] = []
    for _ in range(count):
        name, pos = _nullable_bytes(data, pos)
        if name is None:
            raise InvalidBatch("A record has a header without a name.")
        value, pos = _nullable_bytes(data, pos)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return headers, pos

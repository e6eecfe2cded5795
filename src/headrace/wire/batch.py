"""Record batches, format v2, from outside: the 61 bytes of header, never the records.

Rule kept here: a broker cuts, counts and finds stored batches by their headers alone, so every claim in the header of
a produced batch is checked before anything relies on it. Appending and fetching need only this module; the records
are in records.py.

A header: base offset (8 bytes), length of the rest (4), leader epoch (4), magic (1), CRC-32C (4); then, covered by
that CRC, attributes (2), last offset delta (4), base timestamp (8), max timestamp (8), producer id (8), producer epoch
(2), base sequence (4), record count (4). Offset and epoch are outside the CRC, so the broker can set them without
recomputing it.
"""

import struct
from collections.abc import Iterator
from typing import Final, Literal

import msgspec
from crc32c import crc32c

from headrace.wire.batch_errors import (
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    UnsupportedCompression,
    UnsupportedFormat,
)
from headrace.wire.compression import CODECS, Compression
from headrace.wire.schema import Buffer

TimestampType = Literal["CreateTime", "LogAppendTime"]

MAGIC: Final = 2
HEADER_BYTES: Final = 61
# Base offset and length, which the length field does not include.
PREFIX_BYTES: Final = 12
# A record with neither key, value nor headers: length, attributes, two deltas, two lengths, a count.
MIN_RECORD_BYTES: Final = 7

# The most that one batch may decompress to, whatever the topic allows. A producer's default batch is 16 KiB, its
# default request 1 MiB: real data never gets near this at any compression ratio.
MAX_UNPACKED_BYTES: Final = 128 * 1024 * 1024
_TOPIC_FACTOR: Final = 16
_HONEST_RATIO: Final = 100

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")
_PRODUCER: Final = struct.Struct(">qhi")

_LENGTH_AT: Final = 8
_LEADER_EPOCH_AT: Final = 12
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
CRC_COVERS_FROM: Final = 21
_ATTRIBUTES_AT: Final = 21
_LAST_OFFSET_DELTA_AT: Final = 23
_MAX_TIMESTAMP_AT: Final = 35
_PRODUCER_AT: Final = 43

# The smallest message of the oldest format: a smaller length is invalid in any format.
_MIN_LENGTH_ANY_FORMAT: Final = 14
_MAX_SEQUENCE: Final = (1 << 31) - 1


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The header's fields, in order. `length` is the whole batch, including its first 12 bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def compression(self) -> Compression:
        codec = self.attributes & COMPRESSION_MASK
        if codec >= len(CODECS):
            raise UnsupportedCompression(f"Compression codec {codec} does not exist.")
        return CODECS[codec]

    @property
    def timestamp_type(self) -> TimestampType:
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME else "CreateTime"

    @property
    def has_plausible_times(self) -> bool:
        """Whether the max timestamp is plausible. Some clients leave it at 0 or -1, whatever the records have."""
        # With a delete horizon the base timestamp is that horizon, and the broker itself wrote the max timestamp.
        is_cleaned = self.attributes & DELETE_HORIZON
        return self.max_timestamp > 0 and (self.max_timestamp >= self.base_timestamp or bool(is_cleaned))

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; after 2^31 - 1 comes 0. -1 without a sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & _MAX_SEQUENCE


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`; checks magic and minimum length, but not that the whole batch is there."""
    try:
        header = _unpack(buf, pos)
    except struct.error:
        raise _unreadable(buf, pos) from None
    if header.magic != MAGIC or header.length < HEADER_BYTES:
        raise _unreadable(buf, pos)
    return header


def may_be_transactional(batch: memoryview) -> bool:
    """Whether the first batch is transactional: a cheap test for every produced batch."""
    return len(batch) >= HEADER_BYTES and bool(batch[_ATTRIBUTES_AT + 1] & TRANSACTIONAL)


def pack_header(header: BatchHeader) -> bytes:
    """The 61 bytes of a header, with the given CRC."""
    return _HEADER.pack(header.base_offset, header.length - PREFIX_BYTES, *msgspec.structs.astuple(header)[2:])


def crc_of(batch: Buffer) -> int:
    """The correct CRC-32C of one whole batch."""
    checksum: int = crc32c(memoryview(batch)[CRC_COVERS_FROM:])
    return checksum


def seal(header: BatchHeader, payload: bytes) -> bytes:
    """A whole batch with its correct CRC."""
    head = bytearray(pack_header(header))
    _UINT32.pack_into(head, _CRC_AT, crc32c(payload, crc32c(memoryview(head)[CRC_COVERS_FROM:])))
    return b"".join((head, payload))


def check_produced(records: Buffer, max_message_bytes: int, *, zstd: bool = True) -> BatchHeader:
    """The header of a produced partition's one batch, or the error that Kafka would answer.

    `records` is the field of the produce request; `zstd` is false below version 7 of that request. The checks and
    their order follow Kafka's broker. Stricter are: unknown codecs (an unexpected error there), bytes after the batch
    (cut off there) and attributes that only a broker may set. Whether the payload really has the promised records is
    checked by `skim.check_records`.
    """
    if len(records) < HEADER_BYTES:
        raise _not_one_batch(records)
    base_offset, length, *rest = _HEADER.unpack_from(records)
    header = BatchHeader(base_offset, length + PREFIX_BYTES, *rest)
    if header.magic != MAGIC or header.length != len(records):
        raise _not_one_batch(records)
    if header.base_offset != 0:
        raise InvalidBatch(f"A produced batch starts at base offset 0, not {header.base_offset}.")
    if header.length > max_message_bytes:
        raise BatchTooLarge(f"The batch has {header.length} bytes; this topic accepts {max_message_bytes}.")
    if header.crc != crc32c(memoryview(records)[CRC_COVERS_FROM:]):
        raise CorruptBatch("The batch's CRC-32C does not match its bytes.")
    if header.attributes:
        _check_attributes(header, zstd)
    # Asked here for every batch; what is wrong, if anything, is found out there.
    count = header.count
    if not 0 < count * MIN_RECORD_BYTES <= header.length - HEADER_BYTES or header.last_offset_delta != count - 1:
        _check_count(header, max_message_bytes)
    if header.producer_id != -1 and (header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0):
        _check_producer(header)
    return header


def unpacked_limit(batch_bytes: int, max_message_bytes: int) -> int:
    """The most that a batch may decompress to in a topic with this `max_message_bytes`.

    Sixteen times that: 16 MiB by default, which a Java producer's batch of 16 KiB reaches at gzip's best ratio of
    1,000. A large batch may have a hundred times its own size, more than any real data reaches. Never more than
    MAX_UNPACKED_BYTES, which bounds memory, unless the topic allows as much uncompressed.
    """
    by_ratio = max(_TOPIC_FACTOR * max_message_bytes, _HONEST_RATIO * batch_bytes)
    return max(max_message_bytes, min(MAX_UNPACKED_BYTES, by_ratio))


def _check_attributes(header: BatchHeader, zstd: bool) -> None:
    if header.compression == "zstd" and not zstd:
        raise UnsupportedCompression("Produce requests below version 7 may not use zstd.")
    # One test for all: a compressed one rarely has any of these.
    if not header.attributes & (CONTROL | TRANSACTIONAL | DELETE_HORIZON | LOG_APPEND_TIME):
        return
    if header.is_control:
        raise InvalidBatch("Clients may not write control records.")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidBatch("The batch is part of a transaction and has no producer id.")
    if header.attributes & DELETE_HORIZON:
        raise InvalidBatch("The batch carries a delete horizon, which only a log cleaner sets.")
    if header.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("The batch says LogAppendTime, which only the broker may set.")


def _check_count(header: BatchHeader, max_message_bytes: int) -> None:
    count = header.count
    if count <= 0:
        raise InvalidBatch(f"A produced batch must have at least one record; this one has {count}.")
    if header.last_offset_delta != count - 1:
        raise InvalidBatch(
            f"A batch of {count} records has last offset delta {count - 1}, not {header.last_offset_delta}."
        )
    needed, payload_bytes = count * MIN_RECORD_BYTES, header.length - HEADER_BYTES
    if needed > payload_bytes and not header.attributes & COMPRESSION_MASK:
        raise InvalidBatch(f"{count} records do not fit in {payload_bytes} bytes.")
    if needed > max_message_bytes and needed > (limit := unpacked_limit(header.length, max_message_bytes)):
        raise BatchTooLarge(f"{count} records need more than the {limit} bytes that the batch may decompress to.")


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id < 0:
        raise InvalidBatch(f"{header.producer_id} is not a producer id.")
    if header.producer_epoch < 0 or header.base_sequence < 0:
        raise InvalidBatch(
            f"Producer {header.producer_id} sent epoch {header.producer_epoch} and sequence"
            f" {header.base_sequence}; an idempotent producer needs both to be 0 or above."
        )


def check_crc(batch: Buffer) -> BatchHeader:
    """The header of a stored batch, checked to be exactly one whole batch with a correct CRC."""
    header = read_header(batch, 0)
    if header.length != len(batch):
        raise CorruptBatch(f"The batch says it has {header.length} bytes; there are {len(batch)}.")
    if header.crc != crc_of(batch):
        raise CorruptBatch("The batch's CRC-32C does not match its bytes.")
    return header


def stamp(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Sets base offset and leader epoch of the batch at `pos`. Both are outside the CRC."""
    _INT64.pack_into(buf, pos, base_offset)
    _INT32.pack_into(buf, pos + _LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buf: bytearray | memoryview, pos: int, now_ms: int) -> None:
    """Sets LogAppendTime with this timestamp for all records of the batch at `pos`, and the CRC."""
    header = read_header(buf, pos)
    end = pos + header.length
    if end > len(buf):
        raise _cut_off(pos)
    _INT16.pack_into(buf, pos + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    _INT64.pack_into(buf, pos + _MAX_TIMESTAMP_AT, now_ms)
    _UINT32.pack_into(buf, pos + _CRC_AT, crc_of(memoryview(buf)[pos:end]))


def stamp_max_timestamp(buf: bytearray | memoryview, max_timestamp: int) -> None:
    """Corrects the max timestamp of the one whole batch in `buf`, and the CRC."""
    _INT64.pack_into(buf, _MAX_TIMESTAMP_AT, max_timestamp)
    _UINT32.pack_into(buf, _CRC_AT, crc_of(buf))


def stamp_producer(buf: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Sets producer and sequence of the one whole batch in `buf`, and the CRC."""
    _PRODUCER.pack_into(buf, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _UINT32.pack_into(buf, _CRC_AT, crc_of(buf))


def iter_headers(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in `buf`, which must all be whole."""
    pos, end = 0, len(buf)
    while pos < end:
        header = read_header(buf, pos)
        if pos + header.length > end:
            raise _cut_off(pos)
        yield pos, header
        pos += header.length


def end_offset(entry: Buffer) -> int:
    """The offset after the last record of the last batch. Of that one's header only these fields are read."""
    size, pos, last = len(entry), 0, -1
    while pos < size:
        last, pos = pos, _batch_end(entry, pos)
    if last < 0 or entry[last + _MAGIC_AT] != MAGIC:
        raise _unreadable(entry, max(last, 0))
    base_offset: int = _INT64.unpack_from(entry, last)[0]
    last_offset_delta: int = _INT32.unpack_from(entry, last + _LAST_OFFSET_DELTA_AT)[0]
    return base_offset + last_offset_delta + 1


def slice_from(entry: Buffer, offset: int) -> int:
    """The position of the first batch that ends at or after `offset`; the entry's length if all end before it."""
    pos = 0
    while pos < len(entry):
        end = _batch_end(entry, pos)
        base_offset: int = _INT64.unpack_from(entry, pos)[0]
        last_offset_delta: int = _INT32.unpack_from(entry, pos + _LAST_OFFSET_DELTA_AT)[0]
        if base_offset + last_offset_delta >= offset:
            return pos
        pos = end
    return pos


def fit(entry: Buffer, pos: int, max_bytes: int) -> int:
    """The end of as many whole batches from `pos` as fit in `max_bytes`; possibly none."""
    limit = pos + max_bytes
    if limit >= len(entry):
        return len(entry)
    while pos < len(entry):
        end = _batch_end(entry, pos)
        if end > limit:
            break
        pos = end
    return pos


def _batch_end(buf: Buffer, pos: int) -> int:
    """The position after the batch at `pos`, by its length field alone; it never moves backwards."""
    if pos + HEADER_BYTES > len(buf):
        raise _cut_off(pos)
    length: int = _INT32.unpack_from(buf, pos + _LENGTH_AT)[0] + PREFIX_BYTES
    if length < HEADER_BYTES or pos + length > len(buf):
        raise _cut_off(pos)
    return pos + length


def _unpack(buf: Buffer, pos: int) -> BatchHeader:
    base_offset, length, *rest = _HEADER.unpack_from(buf, pos)
    return BatchHeader(base_offset, length + PREFIX_BYTES, *rest)


def _cut_off(pos: int) -> CorruptBatch:
    return CorruptBatch(f"The batch at byte {pos} is cut off, or its length is wrong.")


def _unreadable(buf: Buffer, pos: int) -> BatchError:
    """Why the bytes at `pos` are not a header of format v2."""
    if not 0 <= pos <= len(buf) - (_MAGIC_AT + 1):
        return _cut_off(pos)
    magic = _signed_byte(buf[pos + _MAGIC_AT])
    if magic in (0, 1):
        return UnsupportedFormat(f"The batch at byte {pos} has the old message format v{magic}.")
    if magic != MAGIC:
        return CorruptBatch(f"The batch at byte {pos} has magic {magic}, which no format has.")
    return _cut_off(pos)


def _not_one_batch(records: Buffer) -> BatchError:
    """Why a produced partition's bytes are not exactly one batch, in Kafka's order of checks."""
    size = len(records)
    if size < PREFIX_BYTES:
        return InvalidBatch("A produced partition needs one record batch; there is none.")
    length: int = _INT32.unpack_from(records, _LENGTH_AT)[0]
    if length < _MIN_LENGTH_ANY_FORMAT:
        return CorruptBatch(f"No batch has length {length}.")
    if size <= _MAGIC_AT:
        return InvalidBatch("A produced partition needs one record batch; this one is cut off.")
    magic = _signed_byte(records[_MAGIC_AT])
    if not 0 <= magic <= MAGIC:
        return CorruptBatch(f"No message format has magic {magic}.")
    if length + PREFIX_BYTES > size:
        return InvalidBatch(f"The batch is cut off: {length + PREFIX_BYTES} bytes announced, {size} sent.")
    if magic != MAGIC:
        return InvalidBatch(f"Message format v{magic} is too old; produce requests carry format v2.")
    if length + PREFIX_BYTES < HEADER_BYTES:
        return CorruptBatch(f"A batch of {length + PREFIX_BYTES} bytes is shorter than its header.")
    return InvalidBatch("A produced partition holds exactly one record batch; bytes follow the first.")


def _signed_byte(byte: int) -> int:
    return byte - 0x100 if byte > 0x7F else byte

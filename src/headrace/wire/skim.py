"""Scans the records of a batch without decoding them: order, timestamps, presence of keys.

Rule kept here: the work is split into portions of about a millisecond, whatever is in the batch. A kilobyte can expand
to millions of empty records, or to one record with millions of headers, and the broker has to answer other clients in
between. Keys and values are skipped, never copied, so their size costs nothing.
"""

from collections.abc import Generator, Iterator
from typing import Final, TypeAlias, TypeVar

from headrace.wire.batch import LOG_APPEND_TIME, BatchHeader
from headrace.wire.batch_errors import InvalidBatch
from headrace.wire.records import broken_record, check_promise
from headrace.wire.schema import Buffer
from headrace.wire.varint import MalformedVarint, decode_varint, decode_varlong

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work in portions, with a result at the end: the caller may do something else after each portion."""

Skimmed: TypeAlias = tuple[int, int, bool]
"""A record: offset delta, timestamp, whether it has a key."""

_PORTION: Final = 1_000
"""Records and headers per portion."""
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


def finish(steps: Steps[T]) -> T:
    """Does all the work at once and returns its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def skim(data: Buffer, header: BatchHeader) -> Iterator[list[Skimmed]]:
    """Scans an unpacked batch in portions; InvalidBatch if a record is malformed."""
    check_promise(data, header)
    try:
        yield from _skim(data, header)
    except (IndexError, MalformedVarint):
        raise broken_record() from None


def check_records(data: Buffer, header: BatchHeader, most: int) -> Steps[tuple[int, list[int]]]:
    """Checks what `batch.check_produced` cannot see; returns how many records have no key, and the first `most`.

    The unpacked batch holds exactly the promised count of well-formed records with offset deltas 0, 1, 2, ...
    Kafka's broker does this for every batch. Here it costs about 1 us per record on top of decompression, while all
    other checks cost 2 us per batch, so it is a separate call. Without it readers still refuse a bad batch themselves,
    and a header cannot lie about its offsets, only about its max timestamp.
    """
    # Rising deltas that end at the last one: this many can only be 0, 1, 2, ...
    if header.last_offset_delta != header.count - 1:
        raise InvalidBatch("The batch's offset deltas are not 0, 1, 2, ...")
    count = 0
    first: list[int] = []
    for portion in skim(data, header):
        keyless = [delta for delta, _, has_key in portion if not has_key]
        count += len(keyless)
        first += keyless[: most - len(first)]
        yield
    return count, first


def find_time(data: Buffer, header: BatchHeader, timestamp: int, start: int) -> Steps[tuple[int, int] | None]:
    """Offset and timestamp of the first record at or after both a time and an offset."""
    least_delta = start - header.base_offset
    for portion in skim(data, header):
        for delta, time, _ in portion:
            if time >= timestamp and delta >= least_delta:
                return header.base_offset + delta, time
        yield
    return None


def _skim(data: Buffer, header: BatchHeader) -> Iterator[list[Skimmed]]:
    """Written for speed, like the decoder in records.py: lengths need no check, the record's end is the check."""
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    last_delta, highest_delta = -1, header.last_offset_delta
    portion: list[Skimmed] = []
    pos = steps = 0
    for _ in range(header.count):
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
        delta, pos = decode_varint(data, pos)
        if not last_delta < delta <= highest_delta:
            raise InvalidBatch(f"Offset delta {delta} follows {last_delta} in a batch up to {highest_delta}.")
        last_delta = delta
        key_length, pos = decode_varint(data, pos)
        pos += max(key_length, 0)
        value_length, pos = decode_varint(data, pos)
        pos += max(value_length, 0)
        if data[pos] == 0:
            pos += 1
        else:
            for behind in _skip_headers(data, pos):
                pos = behind
                steps += 1
                if steps >= _PORTION:
                    yield portion
                    portion, steps = [], 0
        if pos != end:
            raise InvalidBatch(f"A record of {length} bytes does not end where its length says.")
        portion.append((delta, timestamp, key_length >= 0))
        steps += 1
        if steps >= _PORTION:
            yield portion
            portion, steps = [], 0
    if pos != len(data):
        raise InvalidBatch(f"{len(data) - pos} bytes follow the last record of the batch.")
    yield portion


def _skip_headers(data: Buffer, pos: int) -> Iterator[int]:
    """Yields the position after the header count, and after each header."""
    count, pos = decode_varint(data, pos)
    # A header takes at least two bytes.
    if not 0 <= count <= (len(data) - pos) // 2:
        raise InvalidBatch(f"A record cannot have {count} headers.")
    yield pos
    for _ in range(count):
        name_length, pos = decode_varint(data, pos)
        if name_length < 0:
            raise InvalidBatch("A record has a header without a name.")
        value_length, pos = decode_varint(data, pos + name_length)
        pos += max(value_length, 0)
        yield pos

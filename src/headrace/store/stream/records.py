"""Records as fields of stream entries, both ways. Pure. Batches of them for consumers are made in `stream/batches.py`.

An entry has the fields `key`, `value`, `timestamp` (milliseconds, where it is not the id's), `h:<name>` for each header
in its order, `n:<name>` with an empty value for a header whose value is null. What is null is absent; a record with
nothing at all has the marker field `null`. A stream's field names may repeat and hold any bytes, so nothing is lost.

Redis code may write other fields. Such an entry is delivered too: its value is a JSON object of all its fields, its
key the field `key` if there is one. A name that repeats has an array of values; a value that is not UTF-8 is an object
`{"base64": "..."}`; bytes of a name that are not UTF-8 are written as `\\xNN`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.wire.batch import BatchHeader
from headrace.wire.records import Record, iter_records
from headrace.wire.schema import Buffer
from headrace.wire.skim import Steps

KEY, VALUE, TIMESTAMP, NOTHING = b"key", b"value", b"timestamp", b"null"
_HEADER, _NULL_HEADER = b"h:", b"n:"
MOST_FIELDS = 3_500
"""Maximum fields of an entry written by the broker: a script can pass Redis about twice as many arguments."""
_MOST_HEADERS = MOST_FIELDS - 3  # beside key, value and timestamp
_INT64 = 1 << 63
_ONE_VALUE = b"\x92\xdb\0\0\0\5value\xdb"
_FIELD_BYTES = 5

StreamEntry = Sequence[Any]
"""An entry as XRANGE returns it: id, and fields with their values in one list."""


# -- records -> fields ----------------------------------------------------------------------------------------------


def record_fields(record: Record, with_time: bool) -> list[bytes]:
    """The fields of a record's entry; `with_time` if its time is its own rather than the id's."""
    fields: list[bytes] = []
    if record.key is not None:
        fields += (KEY, record.key)
    if record.value is not None:
        fields += (VALUE, record.value)
    if with_time:
        fields += (TIMESTAMP, b"%d" % record.timestamp)
    for name, value in record.headers:
        raw = name.encode("utf-8", "surrogateescape")
        fields += (_NULL_HEADER + raw, b"") if value is None else (_HEADER + raw, value)
    return fields or [NOTHING, b""]


def pack_batch(data: Buffer, header: BatchHeader, with_time: bool) -> Steps[bytes]:
    """An unpacked batch's records as `pack_entries` has them, in portions; InvalidBatch if they are malformed."""
    parts: list[bytes] = []
    for records in iter_records(data, header, max_headers=_MOST_HEADERS):
        parts.append(pack_entries(records, with_time))
        yield
    return b"".join(parts)


def pack_entries(records: Sequence[Record], with_time: bool) -> bytes:
    """The fields of each record as a MessagePack array of strings, one behind the other: how they travel to a script.

    Strings are written in the format's old form, without a type for bytes: the only one that Redis reads.
    """
    parts: list[bytes] = []
    for record in records:
        value = record.value
        if record.key is None and value is not None and not record.headers and not with_time:
            parts += (_ONE_VALUE, len(value).to_bytes(4, "big"), value)
            continue
        fields = record_fields(record, with_time)
        count = len(fields)
        parts.append(bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big"))
        for field in fields:
            parts += (b"\xdb", len(field).to_bytes(4, "big"), field)
    return b"".join(parts)


def packed_bytes(fields: Sequence[bytes]) -> int:
    """The size of an entry as an argument of a script."""
    return 1 + sum(map(len, fields)) + _FIELD_BYTES * len(fields)


# -- fields -> records ----------------------------------------------------------------------------------------------


def id_time(ms: int) -> int:
    """The time in an id; one chosen by hand may exceed the range of record times."""
    return min(ms, _INT64 - 1)


def record_of(entry: StreamEntry, offset: int) -> Record:
    """The record of an entry; one with other fields is JSON."""
    raw_id, fields = entry
    record = Record(offset, id_time(int(raw_id.split(b"-", 1)[0])), None, None, [])
    for at in range(0, len(fields), 2):
        if not _take_field(record, fields, at):
            return _foreign(record, fields)
    return record


def is_foreign(entry: StreamEntry) -> bool:
    """Whether an entry has fields of Redis code's own."""
    record = Record(0, 0, None, None, [])
    fields = entry[1]
    return not all(_take_field(record, fields, at) for at in range(0, len(fields), 2))


def _take_field(record: Record, fields: Sequence[bytes], at: int) -> bool:
    """Whether a field is one of a record's."""
    name, value = fields[at], fields[at + 1]
    if name == VALUE and record.value is None:
        record.value = value
    elif name == KEY and record.key is None:
        record.key = value
    elif name[:2] == _HEADER:
        record.headers.append((name[2:].decode("utf-8", "surrogateescape"), value))
    elif name[:2] == _NULL_HEADER and not value:
        record.headers.append((name[2:].decode("utf-8", "surrogateescape"), None))
    elif name == TIMESTAMP and TIMESTAMP not in fields[:at:2] and (time := _whole_number(value)) is not None:
        record.timestamp = time
    else:
        return name == NOTHING and not value and len(fields) == 2
    return True


def _whole_number(text: bytes) -> int | None:
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or len(digits) > 19:
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


def _foreign(record: Record, fields: Sequence[bytes]) -> Record:
    values: dict[str, list[Any]] = {}
    for at in range(0, len(fields), 2):
        values.setdefault(fields[at].decode("utf-8", "backslashreplace"), []).append(_json_value(fields[at + 1]))
    content = {name: found[0] if len(found) == 1 else found for name, found in values.items()}
    key = next((fields[at + 1] for at in range(0, len(fields), 2) if fields[at] == KEY), None)
    time = int(record.timestamp)
    return Record(record.offset, time, key, msgspec.json.encode(content), [])


def _json_value(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}

"""Records as fields: nothing is lost either way, and what Redis code writes with fields of its own is JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.store.stream.records import (
    is_foreign,
    pack_batch,
    pack_entries,
    record_fields,
    record_of,
)
from headrace.wire.batch import HEADER_BYTES, read_header
from headrace.wire.batch_errors import InvalidBatch
from headrace.wire.records import Record, encode_batch
from headrace.wire.skim import finish

ID_MS = 1_794_000_000_000
DATA = st.binary(max_size=50)
NAMES = st.binary(max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
TIMES = st.integers(0, (1 << 62) - 1)
RECORDS = st.builds(
    Record,
    offset=st.just(0),
    timestamp=TIMES,
    key=st.none() | DATA,
    value=st.none() | DATA,
    headers=st.lists(st.tuples(NAMES, st.none() | DATA), max_size=5),
)


def entry(fields: list[bytes], sequence: int = 0) -> tuple[bytes, list[bytes]]:
    return b"%d-%d" % (ID_MS, sequence), fields


@given(RECORDS)
def test_a_record_comes_back_from_its_fields(record: Record) -> None:
    assert record_of(entry(record_fields(record, with_time=True)), 0) == record


@given(RECORDS)
def test_without_a_time_of_its_own_it_has_the_ids(record: Record) -> None:
    fields = record_fields(record, with_time=False)
    assert fields
    assert record_of(entry(fields), 0) == msgspec.structs.replace(record, timestamp=ID_MS)


@given(st.lists(RECORDS, max_size=20))
def test_what_goes_to_a_script_is_the_fields(records: list[Record]) -> None:
    packed = pack_entries(records, with_time=True)
    # The strings hold any bytes, which no decoder of text accepts: the form is read by hand.
    assert _unpacked(packed) == [record_fields(record, with_time=True) for record in records]
    plain = [Record(0, 0, None, record.value, []) for record in records]
    assert _unpacked(pack_entries(plain, with_time=False)) == [record_fields(one, with_time=False) for one in plain]


def _unpacked(data: bytes) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    pos = 0
    while pos < len(data):
        if data[pos] == 0xDC:
            count, pos = int.from_bytes(data[pos + 1 : pos + 3], "big"), pos + 3
        else:
            count, pos = data[pos] & 0x0F, pos + 1
        fields = []
        for _ in range(count):
            if data[pos] == 0xDB:
                size, pos = int.from_bytes(data[pos + 1 : pos + 5], "big"), pos + 5
            else:
                size, pos = data[pos] & 0x1F, pos + 1
            fields.append(data[pos : pos + size])
            pos += size
        found.append(fields)
    return found


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ([b"temperature", b"21", b"unit", b"C"], {"temperature": "21", "unit": "C"}),
        ([b"value", b"1", b"more", b"2"], {"value": "1", "more": "2"}),
        ([b"a", b"1", b"b", b"2", b"a", b"3"], {"a": ["1", "3"], "b": "2"}),
        ([b"raw", b"\xff\x00"], {"raw": {"base64": "/wA="}}),
        ([b"\xff", b"1"], {"\\xff": "1"}),
        ([b"value", b"1", b"value", b"2"], {"value": ["1", "2"]}),
        ([b"value", b"1", b"timestamp", b"yesterday"], {"value": "1", "timestamp": "yesterday"}),
        ([b"value", b"1", b"null", b""], {"value": "1", "null": ""}),
        ([b"n:name", b"not null"], {"n:name": "not null"}),
    ],
)
def test_other_fields_become_json(fields: list[bytes], value: dict[str, Any]) -> None:
    record = record_of(entry(fields), 7)
    assert record.value is not None
    assert json.loads(record.value) == value
    assert (record.offset, record.timestamp, record.key, record.headers) == (7, ID_MS, None, [])
    assert is_foreign(entry(fields))


def test_their_key_is_the_records_key() -> None:
    record = record_of(entry([b"key", b"k", b"score", b"1"]), 0)
    assert (record.key, record.value) == (b"k", b'{"key":"k","score":"1"}')


def test_a_record_with_more_headers_than_an_entry_takes_is_refused() -> None:
    record = Record(0, 0, None, None, [("h", b"")] * 4000)
    batch = encode_batch([record])
    with pytest.raises(InvalidBatch):
        finish(pack_batch(batch[HEADER_BYTES:], read_header(batch), with_time=False))

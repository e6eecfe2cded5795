"""Hostile bytes: whatever a request claims, the decoder gives a message or a DecodeError, and stays small."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest

from headrace.wire import codec
from headrace.wire.codec import DecodeError
from headrace.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.offset_fetch import OffsetFetchRequest
from headrace.wire.schema import SCALARS, Message, MessageField, Payload, fields_of
from tests.wire.random_messages import all_requests, random_message
from tests.wire.test_codec import names

Case = tuple[type[Payload], int]


def requests_to_try() -> list[Case]:
    """All requests in all versions; with the quick profile only in the newest, since half of `make quick` is here."""
    cases = all_requests()
    return cases if os.environ.get("HYPOTHESIS_PROFILE") != "quick" else [*dict(cases).items()]


ALL_REQUESTS = pytest.mark.parametrize("case", requests_to_try(), ids=names)

FIXED_LENGTHS = "7fffffff ffffffff fffffffe 80000000 00000000 00010000 7fff ffff 8000 0000"
"""The largest, -1, -2, the smallest, zero, just beyond 16 bits; the same of 16 bits."""
COMPACT_LENGTHS = "00 ffffffff0f ffffffff7f ffffffffff7f 80808080808080"
"""Null, the largest of 32 bits, the largest of five bytes, one byte too many, no end."""
HOSTILE = [bytes.fromhex(text) for lengths in (FIXED_LENGTHS, COMPACT_LENGTHS) for text in lengths.split()]
OVERHEAD_BYTES = 64 * 1024
"""What a decode may take whatever its input: the error, small buffers, the interpreter's own."""
MOST_PER_BYTE = 48
"""A structure of two bytes on the wire is an object of up to 90: the densest that any request can be packed."""


@cache
def small_message(cls: type[Payload], version: int) -> bytes:
    """A random message that is short enough to be tried at every byte."""
    rng = random.Random(f"{cls.__name__} {version}")
    found = (codec.encode_bytes(random_message(cls, version, rng), version) for _ in range(300))
    return max((data for data in found if len(data) < 400), key=len)


def decode_or_error(cls: type[Payload], version: int, data: bytes) -> None:
    with suppress(DecodeError):
        _, pos = codec.decode(cls, version, data)
        assert pos <= len(data)


@ALL_REQUESTS
def test_a_request_cut_short_anywhere_is_an_error(case: Case) -> None:
    cls, version = case
    data = small_message(cls, version)
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            codec.decode(cls, version, data[:size])


@ALL_REQUESTS
def test_hostile_lengths_at_any_place_are_a_message_or_an_error(case: Case) -> None:
    cls, version = case
    data = small_message(cls, version)
    codec.decode(cls, version, data)
    tracemalloc.start()
    try:
        for at in range(0, len(data), 1 + len(data) // 40):
            off_by_one = [bytes([(data[at] + delta) % 256]) for delta in (-1, 1)]
            for hostile in HOSTILE + off_by_one:
                decode_or_error(cls, version, data[:at] + hostile + data[at + len(hostile) :])
        assert tracemalloc.get_traced_memory()[1] < MOST_PER_BYTE * len(data) + OVERHEAD_BYTES
    finally:
        tracemalloc.stop()


@ALL_REQUESTS
def test_random_changes_are_a_message_or_an_error(case: Case) -> None:
    cls, version = case
    data = small_message(cls, version) + bytes(4)
    rng = random.Random(version)
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 2, 127, 128, 255, rng.randrange(256)))
        decode_or_error(cls, version, bytes(changed))


def emptiest(cls: type[Message], version: int) -> Message:
    """The message that takes the fewest bytes."""
    values: dict[str, object] = {}
    for field in fields_of(cls):
        if version in field.versions and field.tag is None:
            values[field.name] = [] if field.is_array else None if version in field.nullable else tiny(field, version)
    return cls(**values)


def tiny(field: MessageField, version: int) -> object:
    if field.nested is not None:
        return emptiest(field.nested, version)
    if field.kind in SCALARS:
        return bytes(16) if field.kind == "uuid" else 0
    return "" if field.kind == "string" else b""


def crowded(cls: type[Message], version: int, count: int) -> Iterator[Message]:
    """For each array at any level: the emptiest message that has `count` of its smallest elements."""
    for field in fields_of(cls):
        if version not in field.versions or field.tag is not None:
            continue
        if field.is_array:
            message = emptiest(cls, version)
            setattr(message, field.name, [tiny(field, version)] * count)
            yield message
        if field.nested is not None:
            for inner in crowded(field.nested, version, count):
                message = emptiest(cls, version)
                setattr(message, field.name, [inner] if field.is_array else inner)
                yield message


@pytest.mark.parametrize("case", [c for c in all_requests() if c[1] == c[0].api.versions[1]], ids=names)
def test_memory_stays_near_the_size_of_the_densest_request(case: Case) -> None:
    cls, version = case
    for message in crowded(cls, version, 2_000):
        data = codec.encode_bytes(message, version)
        codec.decode(cls, version, data)
        tracemalloc.start()
        try:
            codec.decode(cls, version, data)
            assert tracemalloc.get_traced_memory()[1] < MOST_PER_BYTE * len(data) + OVERHEAD_BYTES
        finally:
            tracemalloc.stop()


def test_all_arrays_of_a_message_share_one_budget_of_elements() -> None:
    topics = [CreatableTopic(f"t{i}", assignments=[CreatableReplicaAssignment(0, [1, 2, 3])] * 4) for i in range(10)]
    data = codec.encode_bytes(CreateTopicsRequest(topics), 7)
    elements = 10 + 10 * 4 + 10 * 4 * 3
    assert codec.decode(CreateTopicsRequest, 7, data, elements_max=elements)[1] == len(data)
    with pytest.raises(DecodeError, match="more elements"):
        codec.decode(CreateTopicsRequest, 7, data, elements_max=elements - 1)


def test_the_budget_holds_however_large_the_frame_is() -> None:
    many = MetadataRequest([MetadataRequestTopic(name="")] * (codec.ELEMENTS_MAX + 1))
    for version in (1, 9):
        with pytest.raises(DecodeError, match="topics has more elements"):
            codec.decode(MetadataRequest, version, codec.encode_bytes(many, version))


@pytest.mark.parametrize(("version", "count"), [(1, b"\0\0\0\x03"), (6, b"\x04")])
def test_a_count_may_not_exceed_what_the_rest_could_hold(version: int, count: bytes) -> None:
    group = b"\0\x01g" if version == 1 else b"\x02g"
    # Three topics of six (in old versions) or three bytes at least, and one byte too few for them.
    rest = bytes(3 * 6 - 1) if version == 1 else b"\x01\x01\0" * 2 + b"\x01\x01"
    with pytest.raises(DecodeError, match="topics has more elements than the message can hold"):
        codec.decode(OffsetFetchRequest, version, group + count + rest)


def test_text_that_is_not_utf8_is_an_error() -> None:
    data = codec.encode_bytes(MetadataRequest([MetadataRequestTopic(name="ab")]), 9).replace(b"ab", b"\xc3(")
    with pytest.raises(DecodeError, match="not UTF-8"):
        codec.decode(MetadataRequest, 9, data)


NEGATIVE = [
    (DeleteGroupsRequest, 1, b"\0\0\0\x02" + b"\0\x01g" + b"\xff\xff"),
    (DeleteGroupsRequest, 1, b"\0\0\0\x02" + b"\0\x01g" + b"\xff\xfd"),
    (DeleteGroupsRequest, 2, b"\x03" + b"\x02g" + b"\0" + b"\0"),
    (OffsetFetchRequest, 1, b"\xff\xff" + b"\0\0\0\0"),
    (OffsetFetchRequest, 1, b"\0\x01g" + b"\xff\xff\xff\xff"),
    (OffsetFetchRequest, 2, b"\0\x01g" + b"\xff\xff\xff\xfe"),
    (OffsetFetchRequest, 6, b"\0" + b"\x01" + b"\0"),
]


@pytest.mark.parametrize(("cls", "version", "data"), NEGATIVE)
def test_a_length_below_zero_is_an_error_where_null_is_not_allowed(
    cls: type[Payload], version: int, data: bytes
) -> None:
    with pytest.raises(DecodeError, match=r"below zero|null element"):
        codec.decode(cls, version, data)

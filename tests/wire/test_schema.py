"""The words of a field's specification mean what `wire/schema.py` says of them."""

from __future__ import annotations

from typing import Annotated, ClassVar

import pytest
from msgspec import field

from headrace.wire import codec
from headrace.wire.schema import ANY_VERSION, Api, Message, Payload, fields_of, version_range


class Inner(Message):
    number: Annotated[int, "int16"] = 0


class Example(Payload):
    api: ClassVar[Api] = Api(999, "Example", (0, 6), 4, response=False)

    always: Annotated[int, "int8"] = 0
    later: Annotated[int, "int32 2+"] = -1
    once: Annotated[str, "string 3"] = "once"
    between: Annotated[list[Inner] | None, "[]Inner 1-2 null=2+"] = []
    text: Annotated[str | None, "string 4+ null"] = None
    tagged: Annotated[Inner, "Inner 5+ tag=3"] = field(default_factory=Inner)


class Nameless(Message):
    number: int = 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3+", range(3, ANY_VERSION.stop)), ("3-5", range(3, 6)), ("3", range(3, 4)), ("0+", ANY_VERSION)],
)
def test_versions_are_ranges(text: str, expected: range) -> None:
    assert version_range(text) == expected


def test_a_specification_says_type_versions_null_and_tag() -> None:
    always, later, once, between, text, tagged = fields_of(Example)
    assert (always.kind, always.is_array, always.versions, always.tag) == ("int8", False, ANY_VERSION, None)
    assert (later.versions.start, later.default) == (2, -1)
    assert list(once.versions) == [3]
    assert (between.nested, between.is_array) == (Inner, True)
    assert (1 in between.nullable, 2 in between.nullable) == (False, True)
    assert text.nullable == ANY_VERSION
    assert (tagged.tag, tagged.nested, tagged.default) == (3, Inner, Inner())


def test_a_field_without_a_wire_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Nameless\.number has no wire type"):
        fields_of(Nameless)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "07"),
        (1, "07 00000001 0005"),
        (2, "07 00000009 00000001 0005"),
        (3, "07 00000009 0001 78"),
        (4, "07 00000009 03 6869 00"),
        (5, "07 00000009 03 6869 01 03 03 0008 00"),
    ],
)
def test_each_version_travels_with_its_own_fields(version: int, expected: str) -> None:
    example = Example(7, 9, "x", [Inner(5)], "hi", Inner(8))
    assert codec.encode_bytes(example, version) == bytes.fromhex(expected)


def test_null_travels_as_minus_one_or_as_a_compact_zero() -> None:
    nothing = Example(7, 9, "x", None, None)
    assert codec.encode_bytes(nothing, 2) == bytes.fromhex("07 00000009 ffffffff")
    assert codec.encode_bytes(nothing, 4) == bytes.fromhex("07 00000009 00 00")


def test_null_where_the_version_does_not_allow_it_is_an_error() -> None:
    with pytest.raises(codec.DecodeError, match="between has a length below zero"):
        codec.decode(Example, 1, bytes.fromhex("07 ffffffff"))

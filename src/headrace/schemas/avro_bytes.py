"""Checks that bytes are exactly one record of an Avro schema.

Avro is not self-describing, and fastavro trusts its input: it reads enum symbol -1 as the last one, any byte as a
boolean, and crashes on a record nested a million times. So each record is checked before it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

MOST_LEVELS = 100
"""Maximum nesting of records."""

MOST_EMPTY_ITEMS = 1_000_000
"""Maximum items of an array whose items take no bytes; for others the bytes are the limit."""

_SIZES = {"float": 4, "double": 8}
_INT_BITS = 31
_LONG_BITS = 63

Walk = Callable[[bytes, int, int], int]
"""(bytes, start of a value, nesting depth) -> end of the value."""


class Unfit(ValueError):
    """The bytes do not match the schema; with the path to the mismatch."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.names: list[str] = []

    def __str__(self) -> str:
        return f"{self.why} - at `{'.'.join(['$', *reversed(self.names)])}`" if self.names else self.why


def check_of(schema: Any) -> Callable[[bytes, int], None]:
    """A function that raises `Unfit` unless the bytes from an index on are a record of a schema from `parsed_avro`."""
    walk = _walk_of(schema, {})

    def check(value: bytes, start: int) -> None:
        try:
            end = walk(value, start, 0)
        except IndexError:
            raise _too_early() from None
        except RecursionError:
            raise _too_deep() from None
        if end != len(value):
            raise Unfit(f"{len(value) - end} bytes follow the record")

    return check


def _too_early() -> Unfit:
    return Unfit("the record ends too early")


def _too_deep() -> Unfit:
    return Unfit("the record is nested too deeply")


def _walk_of(schema: Any, named: dict[str, Walk]) -> Walk:
    if isinstance(schema, list):
        return _union([_walk_of(branch, named) for branch in schema])
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        # The type may be the one under construction.
        return named[schema] if schema in named else lambda data, at, level: named[schema](data, at, level)
    match schema["type"]:
        case "record" | "error":
            walk = _record([(field["name"], _walk_of(field["type"], named)) for field in schema["fields"]])
        case "enum":
            walk = _enum(len(schema["symbols"]))
        case "fixed":
            walk = _fixed(schema["size"])
        case "array":
            return _blocks(_walk_of(schema["items"], named))
        case "map":
            return _blocks(_entry(_walk_of(schema["values"], named)))
        case inner:
            return _walk_of(inner, named)
    named[schema["name"]] = walk
    return walk


def _number(data: bytes, at: int, most_bits: int = _LONG_BITS) -> tuple[int, int]:
    """A number and its end: zigzag, seven bits per byte."""
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    found, shift = byte & 127, 7
    while byte >= 128:
        if shift > most_bits:
            raise Unfit(f"a number has more than {most_bits + 1} bits")
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        shift += 7
    if found >> (most_bits + 1):
        raise Unfit(f"a number has more than {most_bits + 1} bits")
    return (found >> 1) ^ -(found & 1), at


def _null(data: bytes, at: int, level: int) -> int:
    return at


def _boolean(data: bytes, at: int, level: int) -> int:
    if data[at] > 1:
        raise Unfit(f"a boolean is 0 or 1, not {data[at]}")
    return at + 1


def _int(data: bytes, at: int, level: int) -> int:
    return _number(data, at, _INT_BITS)[1]


def _long(data: bytes, at: int, level: int) -> int:
    return _number(data, at)[1]


def _bytes(data: bytes, at: int, level: int) -> int:
    length, at = _number(data, at)
    if length < 0:
        raise Unfit(f"a length of {length}")
    if length > len(data) - at:
        raise _too_early()
    return at + length


def _string(data: bytes, at: int, level: int) -> int:
    length, at = _number(data, at)
    if length < 0:
        raise Unfit(f"a length of {length}")
    if length > len(data) - at:
        raise _too_early()
    try:
        data[at : at + length].decode()
    except UnicodeDecodeError as error:
        raise Unfit(f"text is not UTF-8: {error.reason}") from None
    return at + length


def _fixed(size: int) -> Walk:
    def walk(data: bytes, at: int, level: int) -> int:
        if size > len(data) - at:
            raise _too_early()
        return at + size

    return walk


def _enum(symbols: int) -> Walk:
    def walk(data: bytes, at: int, level: int) -> int:
        chosen, at = _number(data, at, _INT_BITS)
        if not 0 <= chosen < symbols:
            raise Unfit(f"an enum of {symbols} symbols has no symbol {chosen}")
        return at

    return walk


def _union(branches: Sequence[Walk]) -> Walk:
    def walk(data: bytes, at: int, level: int) -> int:
        chosen, at = _number(data, at)
        if not 0 <= chosen < len(branches):
            raise Unfit(f"a union of {len(branches)} types has no type {chosen}")
        return branches[chosen](data, at, level)

    return walk


def _record(fields: Sequence[tuple[str, Walk]]) -> Walk:
    def walk(data: bytes, at: int, level: int) -> int:
        if level > MOST_LEVELS:
            raise _too_deep()
        name = ""
        try:
            for name, inner in fields:  # noqa: B007  # the name of the one that fails
                at = inner(data, at, level + 1)
        except IndexError:
            error = _too_early()
            error.names.append(name)
            raise error from None
        except Unfit as error:
            error.names.append(name)
            raise
        return at

    return walk


def _entry(value: Walk) -> Walk:
    return lambda data, at, level: value(data, _string(data, at, level), level)


def _blocks(item: Walk) -> Walk:
    """Checks an array or map: blocks with an item count; after a negative count comes the block's size."""

    def walk(data: bytes, at: int, level: int) -> int:
        total = 0
        while True:
            count, at = _number(data, at)
            if count == 0:
                return at
            end = None
            if count < 0:
                size, at = _number(data, at)
                count, end = -count, at + size
            total += count
            if total > max(len(data), MOST_EMPTY_ITEMS):
                raise Unfit(f"an array or a map of {total:,} items in {len(data):,} bytes")
            for _ in range(count):
                at = item(data, at, level)
            if end is not None and at != end:
                raise Unfit("a block of items does not end where it says")

    return walk


_PRIMITIVES: dict[str, Walk] = {
    "null": _null, "boolean": _boolean, "int": _int, "long": _long, "bytes": _bytes, "string": _string,
    **{name: _fixed(size) for name, size in _SIZES.items()},
}  # fmt: skip

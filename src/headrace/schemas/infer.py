"""Infers a JSON Schema from examples, and extends it as new records bring new fields.

Nothing is required and everything is nullable, because examples cannot show what must be. A string is a timestamp or a
date if all examples are. If examples disagree, or a number fits neither 64 bits nor a double, the field has any type
and is stored as text. A field with only null, [] or {} gets no type until more is seen. A table has a limit of
columns. A record that exceeds it alone is ignored: its fields are probably keys of a map, and would leave no room for
others.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from headrace.schemas.bounds import SchemaRefused
from headrace.schemas.fields import MOST_LEVELS, RESERVED, UNREADABLE, column_of, is_unreadable

MOST_COLUMNS = 1_000
"""Maximum columns of a table that evolves by itself, including nested ones."""

NO_ROOM = f"a table by example has at most {MOST_COLUMNS:,} columns"
TWIN = "its column would have the name of another one"
NAMELESS = "its name is empty"

Schema = dict[str, Any]

# The most common types, one shared object each, so that comparing with the next record is an identity check.
_NOTHING: Schema = {"type": ["null"]}
_NO_ITEMS: Schema = {"type": ["array", "null"], "maxItems": 0}
_NO_FIELDS: Schema = {"type": ["object", "null"], "additionalProperties": False}
_BOOLEAN: Schema = {"type": ["boolean", "null"]}
_NUMBER: Schema = {"type": ["number", "null"]}
_TEXT: Schema = {"type": ["string", "null"]}
_MOMENTS: Schema = {"type": ["string", "null"], "format": "date-time"}
_DAYS: Schema = {"type": ["string", "null"], "format": "date"}
_INTEGER: Schema = {"type": ["integer", "null"]}
_LONG = "x-long"
"""Marks integers that do not fit a double, until it is known whether their column also has doubles."""
_LONG_INTEGER: Schema = {"type": ["integer", "null"], _LONG: True}

_MOMENT = re.compile(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_DAY = re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]")
_SURE_DIGITS = 15
"""Digits of any decimal that a double preserves."""


class Examples:
    """Collects the types of records, one after another."""

    def __init__(self) -> None:
        self.shown: Schema | None = None
        self.not_json = 0
        self.too_wide = 0

    def add(self, example: bytes) -> None:
        """Adds a record; those that are not JSON or too wide are counted and skipped."""
        try:
            shown = shown_by(example)
        except NotShown:
            self.not_json += 1
            return
        try:
            check_width(shown)
        except NotShown:
            self.too_wide += 1
            return
        self.shown = shown if self.shown is None else both(self.shown, shown)


class NotShown(ValueError):
    """Why a record is ignored in inference."""


class Grown(msgspec.Struct, frozen=True):
    """A schema, and the paths of excluded fields with the reason."""

    schema: Schema
    left_out: dict[str, str]


def infer(examples: Iterable[bytes]) -> tuple[Grown, Examples]:
    """The schema of JSON records, and notes about them."""
    seen = Examples()
    for example in examples:
        seen.add(example)
    if seen.shown is None:
        raise SchemaRefused("No example is JSON with few enough fields for a table.")
    return grown(_NOTHING, seen.shown), seen


def grown(schema: Schema, shown: Schema) -> Grown:
    """Extends a schema by what records show: new fields, and types for fields without one. The rest stays."""
    growth = _Growth(MOST_COLUMNS - _columns(schema))
    after = growth.grow(schema, shown, "$", RESERVED)
    return Grown(after, growth.left_out)


def check_width(shown: Schema, schema: Schema | None = None) -> None:
    """Raises `NotShown` if a record alone has more columns than a table allows; a field kept as text is one."""
    if (wanted := _width(shown, schema) - 1) > MOST_COLUMNS:
        raise NotShown(f"Its fields are {wanted:,} columns: {NO_ROOM}")


def both(one: Schema, other: Schema) -> Schema:
    """A type that covers both."""
    if one is other:
        return one
    if not one or not other:
        return {}
    if _waits(one) or _waits(other):
        return _with_waiting(one, other)
    kinds = {_main(one), _main(other)}
    if kinds == {"integer", "number"}:
        return {} if _LONG in one or _LONG in other else _NUMBER
    if len(kinds) > 1:
        return {}
    if kinds == {"integer"}:
        return other if _LONG in other else one
    if kinds == {"string"}:
        return one if one.get("format") == other.get("format") else _TEXT
    if kinds == {"array"}:
        items = both(one["items"], other["items"])
        return one if items is one["items"] else one | {"items": items}
    if kinds == {"object"}:
        return _both_objects(one, other)
    return one


def _both_objects(one: Schema, other: Schema) -> Schema:
    known, new = one["properties"], {}
    for name, inner in other["properties"].items():
        before = known.get(name)
        after = inner if before is None else both(before, inner)
        if after is not before:
            new[name] = after
    return one | {"properties": known | new} if new else one


# The type of a record


def shown_by(example: bytes) -> Schema:
    """The type of a record; raises `NotShown` if it is not JSON."""
    try:
        return _of(_decode(example), MOST_LEVELS)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotShown(str(error)) from None


class _Inexact:
    """Placeholder for a number that does not fit a double."""


def _float(text: str) -> float | _Inexact:
    found = float(text)
    if len(text) <= _SURE_DIGITS and "e" not in text and "E" not in text:
        return found
    if found == 0 and not re.split("[eE]", text)[0].strip("-0."):
        return found
    if math.isinf(found) or found == 0:
        return _Inexact()
    # The shortest text of a double, the 17 digits that some writers use, or all digits.
    printed = (Decimal(repr(found)), Decimal(f"{found:.17g}"), Decimal(found))
    return found if Decimal(text) in printed else _Inexact()


_decode = msgspec.json.Decoder(float_hook=_float).decode


def _of(value: Any, levels: int) -> Schema:
    match value:
        case None:
            return _NOTHING
        case bool():
            return _BOOLEAN
        case int():
            return _of_integer(value)
        case float():
            return _NUMBER
        case str():
            return _MOMENTS if _is_moment(value) else _DAYS if _is_day(value) else _TEXT
        case list():
            return _of_array(value, levels)
        case dict():
            if not value:
                return _NO_FIELDS
            if not levels:
                return {}
            properties = {name: _of(inner, levels - 1) for name, inner in value.items()}
            return {"type": ["object", "null"], "properties": properties}
    return {}


def _of_integer(value: int) -> Schema:
    if not -(1 << 63) <= value < 1 << 63:
        return {}
    return _INTEGER if int(float(value)) == value else _LONG_INTEGER


def _of_array(value: list[Any], levels: int) -> Schema:
    if not value:
        return _NO_ITEMS
    if not levels:
        return {}
    items = _of(value[0], levels - 1)
    for inner in value[1:]:
        items = both(items, _of(inner, levels - 1))
    return {"type": ["array", "null"], "items": items}


def _is_moment(text: str) -> bool:
    """Whether this is a timestamp with a zone that a column stores exactly."""
    if not _MOMENT.fullmatch(text):
        return False
    try:
        msgspec.convert(text, datetime.datetime).astimezone(datetime.UTC)
    except (msgspec.ValidationError, OverflowError):
        return False
    return True


def _is_day(text: str) -> bool:
    if not _DAY.fullmatch(text):
        return False
    try:
        msgspec.convert(text, datetime.date)
    except msgspec.ValidationError:
        return False
    return True


def said_of(left_out: Mapping[str, str]) -> list[str]:
    """The fields without a column, one sentence per reason."""
    reasons: dict[str, list[str]] = {}
    for at, why in left_out.items():
        reasons.setdefault(why, []).append(at)
    return [f"no column for {_some(places)}: {why}" for why, places in reasons.items()]


def _some(places: Sequence[str]) -> str:
    shown, more = places[:3], len(places) - 3
    names = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in ", ".join(shown))
    return f"{names} and {more:,} more fields" if more > 0 else names


# How a schema grows


class _Growth:
    """Adds new fields as long as there is room for their columns."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.left_out: dict[str, str] = {}

    def grow(self, schema: Schema, shown: Schema, at: str, taken: Iterable[str] = ()) -> Schema:
        if _waits(schema):
            shown = both(schema, shown)
            if _waits(shown):
                return shown
            self._room += at != "$"  # the field had no column yet
            new = self._new(shown, at, taken)
            return schema if new is None else new
        if _main(schema) == "object" and schema.get("properties") and _main(shown) == "object":
            properties = self._with_fields(schema["properties"], shown.get("properties", {}), at, taken)
            return schema | {"properties": properties}
        if _main(schema) == "array" and "items" in schema and "items" in shown:
            return schema | {"items": self.grow(schema["items"], shown["items"], f"{at}[]")}
        return schema

    def _with_fields(
        self, properties: Mapping[str, Schema], shown: Mapping[str, Schema], at: str, taken: Iterable[str]
    ) -> dict[str, Schema]:
        """Leaves out fields whose names Delta cannot distinguish; they stay in the raw table."""
        found = dict(properties)
        columns = {name.lower() for name in (*map(column_of, found), *taken)}
        for name, inner in shown.items():
            place, column = f"{at}.{name}", column_of(name).lower()
            if name in found:
                found[name] = self.grow(found[name], inner, place)
            elif is_unreadable(name):
                self.left_out[place] = UNREADABLE
            elif not name:
                self.left_out[place] = NAMELESS
            elif column in columns:
                self.left_out[place] = TWIN
            elif (new := self._new(inner, place)) is not None:
                found[name] = new
                columns.add(column)
        return found

    def _new(self, shown: Schema, at: str, taken: Iterable[str] = ()) -> Schema | None:
        """The new fields, as far as there is room."""
        if at != "$":
            if self._room < 1:
                self.left_out[at] = NO_ROOM
                return None
            self._room -= 1
        if "properties" in shown:
            properties = self._with_fields({}, shown["properties"], at, taken)
            return shown | {"properties": properties} if properties else {}
        if "items" in shown:
            items = self._new(shown["items"], f"{at}[]")
            return _NO_ITEMS if items is None else shown | {"items": items}
        return {key: value for key, value in shown.items() if key != _LONG}


def _columns(schema: Schema) -> int:
    """The columns a schema uses."""
    return _width(schema, None) - 1


def _width(shown: Schema, schema: Schema | None) -> int:
    """Columns of a field, including nested ones; for parts already in the schema, only those with their own column."""
    if schema is not None and not _waits(schema) and "properties" not in schema and "items" not in schema:
        return 1
    inner = 0
    if "properties" in shown:
        known = (schema or {}).get("properties", {})
        inner += sum(_width(field, known.get(name)) for name, field in shown["properties"].items())
    if "items" in shown:
        inner += _width(shown["items"], (schema or {}).get("items"))
    return 1 + inner


def _with_waiting(one: Schema, other: Schema) -> Schema:
    waiting, known = (one, other) if _waits(one) else (other, one)
    if _main(waiting) is None or _main(waiting) == _main(known):
        return known
    return waiting if _main(known) is None else {}


def _main(schema: Mapping[str, Any]) -> str | None:
    """The type other than null."""
    named = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else [])
    names = [name for name in ([named] if isinstance(named, str) else named) if name != "null"]
    return names[0] if len(names) == 1 else None


def _waits(schema: Mapping[str, Any]) -> bool:
    """Whether only empty values were seen."""
    if schema.get("type") in (["null"], "null"):
        return True
    is_empty_object = schema.get("additionalProperties") is False and not schema.get("properties")
    return (_main(schema) == "array" and schema.get("maxItems") == 0) or (_main(schema) == "object" and is_empty_object)

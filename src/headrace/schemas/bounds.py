"""A JSON Schema's constraints beyond types, as msgspec checks them: bounds, lengths, patterns.

A malformed keyword is refused when the schema is set, because later it would stop every record.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

ValueBounds = tuple[tuple[str, Any], ...]

_OF_NUMBERS = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_CHECKS = {
    "string": {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"},
    "integer": _OF_NUMBERS,
    "number": _OF_NUMBERS,
    "array": {"minItems": "min_length", "maxItems": "max_length"},
}
_FORMS: dict[str, Any] = {
    "type": str | list, "properties": Mapping, "required": list, "enum": list, "allOf": list, "anyOf": list,
    "oneOf": list, "format": str, "$ref": str, "additionalProperties": bool | Mapping,
}  # fmt: skip
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_MOST_LENGTH = (1 << 31) - 1


class SchemaRefused(ValueError):
    """Why this schema cannot define a table."""


def check_forms(schema: Mapping[str, Any], at: str) -> None:
    """Raises if a keyword has an invalid value."""
    for keyword, form in _FORMS.items():
        if keyword in schema and not isinstance(schema[keyword], form):
            raise _refused(keyword, schema[keyword], at)
    for keyword in ("type", "required"):
        if isinstance(names := schema.get(keyword), list) and not all(isinstance(name, str) for name in names):
            raise _refused(keyword, names, at)


def bounds_of(name: str, schema: Mapping[str, Any], at: str) -> ValueBounds:
    """The checks for values of a type; integers must also fit 64 bits."""
    schema, found = _without_flags(schema), {}
    for keyword, check in _CHECKS.get(name, {}).items():
        if keyword in schema:
            found[check] = _bound(name, check, keyword, schema[keyword], at)
    for closed, open_, tighter in (("ge", "gt", max), ("le", "lt", min)):
        if closed in found and open_ in found:
            found.pop(closed if tighter(found[closed], found[open_]) == found[open_] else open_)
    if name == "integer":
        bits = {} if {"ge", "gt"} & found.keys() else {"ge": _LEAST}
        found = bits | ({} if {"le", "lt"} & found.keys() else {"le": _MOST}) | found
    return tuple(found.items())


def whole(check: str, bound: float) -> int:
    """Converts a bound of numbers to one of integers."""
    return math.ceil(bound) if check in ("ge", "lt") else math.floor(bound)


def _without_flags(schema: Mapping[str, Any]) -> dict[str, Any]:
    """In draft 4, flags make `minimum` and `maximum` exclusive; later drafts have separate bounds."""
    found = dict(schema)
    for keyword, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(found.get(keyword), bool) and found.pop(keyword) and plain in found:
            found[keyword] = found.pop(plain)
    return found


def _bound(name: str, check: str, keyword: str, value: Any, at: str) -> Any:
    if check == "pattern":
        return _pattern(keyword, value, at)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(keyword, value, at)
    if check in ("min_length", "max_length"):
        if value < 0 or value != int(value):
            raise _refused(keyword, value, at)
        return min(int(value), _MOST_LENGTH)
    if check == "multiple_of" and (value <= 0 or (name == "integer" and not _LEAST <= value == int(value) <= _MOST)):
        raise _refused(keyword, value, at)
    if name == "integer":
        return min(max(whole(check, value), _LEAST), _MOST)
    try:
        return value if float(value) == value else float(value)
    except OverflowError:
        raise _refused(keyword, value, at) from None


def _pattern(keyword: str, value: Any, at: str) -> str:
    if not isinstance(value, str):
        raise _refused(keyword, value, at)
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError):
        raise _refused(keyword, value, at) from None
    return value


def _refused(keyword: str, value: Any, at: str) -> SchemaRefused:
    shown = str(value)
    return SchemaRefused(f"{keyword} at {at} cannot be {shown if len(shown) < 80 else shown[:77] + '...'}.")

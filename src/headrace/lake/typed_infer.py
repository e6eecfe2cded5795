"""A JSON Schema by example: what records show of themselves, and how a schema grows by what new ones show.

Nothing is required and everything may be null: examples cannot show what must be. Text is a moment or a day if all
examples are. What examples disagree on is of any type. Nothing but null, [] or {} says nothing, and waits for more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.lake.typed_fields import RESERVED, twins

MOST_COLUMNS = 1_000
"""Of a table that evolves by itself: beyond that it is keys of a map that were taken for fields."""

Schema = dict[str, Any]

_MOMENT = re.compile(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")


def infer(examples: Iterable[bytes]) -> tuple[Schema, int]:
    """The schema of JSON records, and how many of them were none and were passed over."""
    found: Schema | None = None
    bad = 0
    for example in examples:
        try:
            shown = _of(json.loads(example))
        except (ValueError, RecursionError):
            bad += 1
            continue
        found = shown if found is None else _both(found, shown)
    if found is None:
        raise ValueError("There is no example that is JSON.")
    return _without_twins(found, RESERVED), bad


def grown(schema: Schema, shown: Schema, *, taken: Iterable[str] = RESERVED) -> Schema:
    """A schema with what it lacks of another: new fields, and types for those that waited. What it has stays."""
    if _waits(schema) or not schema.get("type"):
        return _without_twins(shown, taken) if _waits(schema) and not _waits(shown) else schema
    if _main(schema) == "object" and "properties" in schema and _main(shown) == "object":
        properties = dict(schema["properties"])
        for name, inner in shown.get("properties", {}).items():
            if name in properties:
                properties[name] = grown(properties[name], inner, taken=())
            elif not twins([*properties, name], taken):
                properties[name] = _without_twins(inner, ())
        return schema | {"properties": properties}
    if _main(schema) == "array" and "items" in schema and "items" in shown:
        return schema | {"items": grown(schema["items"], shown["items"], taken=())}
    return schema


def _of(value: Any) -> Schema:
    match value:
        case None:
            return {"type": ["null"]}
        case bool():
            return {"type": ["boolean", "null"]}
        case int():
            return {"type": ["integer", "null"]} if -(1 << 63) <= value < 1 << 63 else {"type": ["number", "null"]}
        case float():
            return {"type": ["number", "null"]}
        case str():
            form = "date-time" if _MOMENT.fullmatch(value) else "date" if _DAY.fullmatch(value) else None
            return {"type": ["string", "null"]} | ({"format": form} if form else {})
        case list():
            items: Schema | None = None
            for inner in value:
                items = _of(inner) if items is None else _both(items, _of(inner))
            return {"type": ["array", "null"], "items": items} if items else {"type": ["array", "null"], "maxItems": 0}
    properties = {name: _of(inner) for name, inner in value.items()}
    closed: Schema = {"type": ["object", "null"], "additionalProperties": False}
    return {"type": ["object", "null"], "properties": properties} if properties else closed


def _both(one: Schema, other: Schema) -> Schema:
    """What covers two."""
    if not one or not other:
        return {}
    if _waits(one) or _waits(other):
        return _with_waiting(one, other)
    kinds = {_main(one), _main(other)}
    if kinds == {"integer", "number"}:
        return {"type": ["number", "null"]}
    if len(kinds) > 1:
        return {}
    if kinds == {"string"}:
        return one if one.get("format") == other.get("format") else {"type": ["string", "null"]}
    if kinds == {"array"}:
        return one | {"items": _both(one["items"], other["items"])}
    if kinds == {"object"}:
        properties = dict(one["properties"])
        for name, inner in other["properties"].items():
            properties[name] = _both(properties[name], inner) if name in properties else inner
        return one | {"properties": properties}
    return one


def _with_waiting(one: Schema, other: Schema) -> Schema:
    waiting, known = (one, other) if _waits(one) else (other, one)
    if _main(waiting) is None or _main(waiting) == _main(known):
        return known
    return waiting if _main(known) is None else {}


def _main(schema: Mapping[str, Any]) -> str | None:
    """The type beside null."""
    named = schema.get("type", [])
    names = [name for name in ([named] if isinstance(named, str) else named) if name != "null"]
    return names[0] if len(names) == 1 else None


def _waits(schema: Mapping[str, Any]) -> bool:
    """Whether nothing but emptiness was seen."""
    if schema.get("type") in (["null"], "null"):
        return True
    is_empty_object = schema.get("additionalProperties") is False and not schema.get("properties")
    return (_main(schema) == "array" and schema.get("maxItems") == 0) or (_main(schema) == "object" and is_empty_object)


def _without_twins(schema: Schema, taken: Iterable[str]) -> Schema:
    """Fields that cannot be columns, for names that Delta does not tell apart, are left to the raw table."""
    if "items" in schema:
        return schema | {"items": _without_twins(schema["items"], ())}
    if "properties" not in schema:
        return schema
    left_out = set(twins(schema["properties"], taken))
    kept = {name: _without_twins(inner, ()) for name, inner in schema["properties"].items() if name not in left_out}
    return schema | {"properties": kept}

"""Schemas of every kind, and records of them, for property tests."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = (
    st.integers(-9, 9)
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.integers(-(1 << 80), 1 << 80)
    | st.floats(allow_nan=False, allow_infinity=False)
)
moments = st.datetimes().map(lambda at: at.isoformat() + "Z") | st.dates().map(str)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts | moments,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
"""Of every type, depth and number."""


# JSON Schema


def _fields(properties: dict[str, Any]) -> dict[str, Any]:
    """With names that columns can have."""
    return {f"{name}{number}": inner for number, (name, inner) in enumerate(properties.items())}


_field_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=32), max_size=8)


_leaves = st.sampled_from(
    [
        {}, {"type": "string", "maxLength": 5}, {"type": "integer", "minimum": -3}, {"type": ["number", "null"]},
        {"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}, {"type": "boolean"},
        {"enum": ["a", "b", None]}, {"const": 7}, {"type": "null"}, {"enum": [1 << 70]},
        {"type": "string", "pattern": "^a"}, {"type": "number", "maximum": 1.5e300},
        {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"$ref": "#/$defs/named"},
    ]
)  # fmt: skip
_inner = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda items: {"type": "object", "additionalProperties": items}),
        st.dictionaries(_field_names, inner, min_size=1, max_size=3).map(
            lambda properties: {"type": ["object", "null"], "properties": _fields(properties)}
        ),
    ),
    max_leaves=8,
)
json_schemas = st.builds(
    lambda properties, description: {
        "type": "object", "properties": _fields(properties), "$defs": {"named": {"type": "string"}},
        "description": description,
    },
    st.dictionaries(_field_names, _inner, min_size=1, max_size=4),
    texts,
)  # fmt: skip

_keywords = st.sampled_from(
    [
        "type", "properties", "items", "required", "enum", "const", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems", "format", "$ref",
        "allOf", "anyOf", "oneOf", "additionalProperties",
    ]
)  # fmt: skip
_json_types = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
_odd = st.dictionaries(_keywords, _json_types | st.booleans() | st.sampled_from(["#", "("]) | json_values, max_size=3)
odd_json_schemas = st.recursive(
    _odd,
    lambda inner: st.one_of(
        st.builds(lambda kind, odd: {**odd, "type": kind}, _json_types, _odd),
        st.builds(lambda one, odd: {**odd, "type": "object", "properties": {"a": one}}, inner, _odd),
        st.builds(lambda one, odd: {**odd, "type": "array", "items": one}, inner, _odd),
        st.lists(inner, max_size=2).map(lambda parts: {"allOf": parts}),
    ),
    max_leaves=4,
)
"""Keywords with values that they may have or not."""


# Avro


class Written(NamedTuple):
    """An Avro schema and values of it."""

    schema: Any
    values: st.SearchStrategy[Any]


_int32 = st.integers(-(1 << 31), (1 << 31) - 1)
_int64 = st.integers(-(1 << 63), (1 << 63) - 1)
_primitives = st.sampled_from(
    [
        Written("null", st.none()),
        Written("boolean", st.booleans()),
        Written("int", _int32),
        Written("long", _int64),
        Written("float", st.floats(width=32, allow_nan=False)),
        Written("double", st.floats(allow_nan=False)),
        Written("bytes", st.binary(max_size=5)),
        Written("string", texts),
        Written({"type": "int", "logicalType": "date"}, st.dates()),
        Written({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, st.decimals(-9, 9, places=2)),
        Written({"type": "bytes", "logicalType": "decimal", "precision": 50}, st.decimals(-99, 99, places=0)),
        Written({"type": "string", "logicalType": "no such"}, texts),
    ]
)
_names = (f"N{number}" for number in itertools.count())


def _record(fields: list[Written]) -> Written:
    schema = {
        "type": "record", "name": next(_names), "namespace": "space",
        "fields": [{"name": f"f{number}", "type": field.schema} for number, field in enumerate(fields)],
    }  # fmt: skip
    return Written(schema, st.fixed_dictionaries({f"f{number}": field.values for number, field in enumerate(fields)}))


def _enum(symbols: list[str]) -> Written:
    return Written({"type": "enum", "name": next(_names), "symbols": symbols}, st.sampled_from(symbols))


def _fixed(size: int) -> Written:
    return Written({"type": "fixed", "name": next(_names), "size": size}, st.binary(min_size=size, max_size=size))


_types = st.recursive(
    _primitives
    | st.just(["a", "b", "c"]).map(_enum)
    | st.integers(1, 4).map(_fixed),
    lambda inner: st.one_of(
        inner.map(lambda one: Written({"type": "array", "items": one.schema}, st.lists(one.values, max_size=3))),
        inner.map(
            lambda one: Written({"type": "map", "values": one.schema}, st.dictionaries(texts, one.values, max_size=3))
        ),
        inner.filter(lambda one: one.schema != "null" and not isinstance(one.schema, list)).map(
            lambda one: Written(["null", one.schema], st.none() | one.values)
        ),
        st.lists(inner, min_size=1, max_size=3).map(_record),
    ),
    max_leaves=6,
)  # fmt: skip
avro_records = st.lists(_types, min_size=1, max_size=4).map(_record)
"""Schemas of records, each with values."""
avro_schemas = _types.map(lambda one: one.schema) | st.just(["int", "string"])

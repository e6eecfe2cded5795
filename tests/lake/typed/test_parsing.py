"""Records parsed by a schema: types, reasons, and that one bad record harms no other."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.lake.typed.format import parser_of, table_columns
from headrace.lake.typed.json import JsonParser
from headrace.lake.typed.parser import Parsed
from headrace.schemas.bounds import SchemaRefused
from headrace.schemas.definition import Definition
from headrace.schemas.infer import TWIN, Examples, Grown, grown, infer
from headrace.schemas.json_schema import ReadSchema
from tests.schemas.strategies import json_values, odd_json_schemas

ORDER: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "item": {"type": "string", "maxLength": 10},
        "price": {"type": ["number", "null"]},
        "paid": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "due": {"type": "string", "format": "date"},
        "status": {"enum": ["new", "sent"]},
        "address": {"$ref": "#/$defs/address"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
        "extra": {},
        "unit price": {"type": "number"},
    },
    "$defs": {
        "address": {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False},
        "line": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}},
    },
}


def parse(schema: dict[str, Any], *values: bytes | None) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """The rows that parse, and the others with the reason."""
    definition = Definition("json", schema)
    return rows_of(definition, parser_of(definition).parse(values)), parser_of(definition).parse(values).rejected


def rows_of(definition: Definition, parsed: Parsed) -> list[dict[str, Any]]:
    columns = [*table_columns(definition)][4:]
    casted = [column.cast(field.type) for column, field in zip(parsed.columns, columns, strict=True)]
    rows: list[dict[str, Any]] = pa.Table.from_arrays(casted, names=[field.name for field in columns]).to_pylist()
    return rows


def test_every_kind_of_field_has_its_column_type() -> None:
    columns = {field.name: str(field.type) for field in table_columns(Definition("json", ORDER))}
    assert columns == {
        "_partition": "int32", "_offset": "int64", "_timestamp": "timestamp[us, tz=UTC]", "_key": "binary",
        "id": "int64", "item": "string", "price": "double", "paid": "bool", "at": "timestamp[us, tz=UTC]",
        "due": "date32[day]", "status": "string", "address": "struct<city: string>",
        "lines": "list<item: struct<sku: string, n: int64>>", "labels": "map<string, int64>", "extra": "string",
        "unit%20price": "double",
    }  # fmt: skip


def test_a_record_becomes_a_row() -> None:
    order = {
        "id": 7, "item": "lamp", "price": 4, "paid": True, "at": "2026-05-01T12:00:00.25+02:00", "due": "2026-06-01",
        "status": "new", "address": {"city": "Ulm"}, "lines": [{"sku": "a", "n": 1}, {"sku": "b"}], "labels": {"x": 1},
        "extra": [1, {"y": None}], "unit price": 0.5, "nobody knows": 1,
    }  # fmt: skip
    rows, rejected = parse(
        ORDER, json.dumps(order).encode(), b'{"id":8,"price":null,"lines":[],"labels":{},"extra":null}'
    )
    assert rejected == []
    assert rows == [
        {
            "id": 7, "item": "lamp", "price": 4.0, "paid": True, "at": datetime(2026, 5, 1, 10, 0, 0, 250_000, UTC),
            "due": date(2026, 6, 1), "status": "new", "address": {"city": "Ulm"},
            "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": None}], "labels": [("x", 1)],
            "extra": '[1, {"y": null}]', "unit%20price": 0.5,
        },
        {
            "id": 8, "item": None, "price": None, "paid": None, "at": None, "due": None, "status": None,
            "address": None, "lines": [], "labels": [], "extra": None, "unit%20price": None,
        },
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "Input data was truncated"),
        (b"lamp", "JSON is malformed: invalid character (byte 0)"),
        (b'{"id":1} x', "JSON is malformed: trailing characters (byte 10)"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "Object missing required field `id`"),
        (b'{"id":null}', "Expected `int`, got `null` - at `$.id`"),
        (b'{"id":-1}', "Expected `int` >= 0 - at `$.id`"),
        (b'{"id":1.5}', "Expected `int`, got `float` - at `$.id`"),
        (b'{"id":9223372036854775808}', "Expected `int` <= 9223372036854775807 - at `$.id`"),
        (b'{"id":1,"item":"%s"}' % (b"x" * 11), "Expected `str` of length <= 10 - at `$.item`"),
        (b'{"id":1,"item":"\xff"}', "Text is not UTF-8: invalid start byte"),
        (b'{"id":1,"at":"yesterday"}', "Invalid RFC3339 encoded datetime - at `$.at`"),
        (b'{"id":1,"at":"2026-05-01T10:00:00"}', "Expected `datetime` with a timezone component - at `$.at`"),
        (b'{"id":1,"at":"0001-01-01T00:00:00+05:00"}', "A time is outside the years 1 to 9999 in UTC"),
        (b'{"id":1,"status":"lost"}', "Invalid enum value 'lost' - at `$.status`"),
        (b'{"id":1,"address":{"street":"x"}}', "Object contains unknown field `street` - at `$.address`"),
        (b'{"id":1,"lines":[{"n":"x"}]}', "Expected `int`, got `str` - at `$.lines[0].n`"),
        (b'{"id":1,"lines":[null]}', "Expected `object`, got `null` - at `$.lines[0]`"),
        (b'{"id":1,"labels":{"a":"b"}}', "Expected `int`, got `str` - at `$.labels[...]`"),
        (b'{"id":1,"extra":' + b"[" * 9_999 + b"]" * 9_999 + b"}", "JSON is nested too deeply"),
    ],
)
def test_a_record_that_does_not_parse_is_told_why_and_its_neighbours_are_rows(value: bytes, reason: str) -> None:
    rows, rejected = parse(ORDER, b'{"id":1}', value, None, b'{"id":2}')
    assert [row["id"] for row in rows] == [1, None, 2]
    assert rejected == [(1, reason)]


@given(st.lists(st.binary(max_size=40) | st.none(), max_size=20))
@settings(max_examples=200, deadline=None)
def test_each_value_is_a_row_or_a_reject_whatever_its_bytes_are(values: list[bytes | None]) -> None:
    parsed = JsonParser(ReadSchema(ORDER).root).parse(values)
    assert sorted([*parsed.rows, *(row for row, _ in parsed.rejected)]) == list(range(len(values)))
    assert {len(column) for column in parsed.columns} == {len(parsed.rows)}


def test_records_that_are_no_objects_have_one_column() -> None:
    rows, rejected = parse({"type": "array", "items": {"type": "integer"}}, b"[1,2]", b"3")
    assert rows == [{"value": [1, 2]}]
    assert rejected == [(1, "Expected `array`, got `int`")]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"properties": {"Id": {}, "id": {}}}, "Field 'id' at $ cannot be a column"),
        ({"properties": {"_offset": {}}}, "Field '_offset' cannot be a column"),
        ({"properties": {'a"': {}}}, "a quotation mark, a backslash or a control character"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "points outside the document"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "has no target"),
        ({"properties": {"a": {"type": "text"}}}, "The type 'text' at $.a does not exist"),
    ],
)
def test_a_schema_that_cannot_make_a_table_is_refused(schema: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SchemaRefused, match=sentence.replace("$", r"\$")):
        ReadSchema(schema)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"type": 7}, "type at \\$ cannot be 7"),
        ({"properties": []}, "properties at \\$ cannot be \\[\\]"),
        ({"type": "string", "pattern": "("}, "pattern at \\$ cannot be \\("),
        ({"type": "string", "maxLength": -1}, "maxLength at \\$ cannot be -1"),
        ({"type": "integer", "multipleOf": 0.5}, "multipleOf at \\$ cannot be 0.5"),
        ({"type": "number", "minimum": "1"}, "minimum at \\$ cannot be 1"),
    ],
)
def test_a_keyword_that_records_would_stop_at_is_refused(schema: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SchemaRefused, match=sentence):
        ReadSchema(schema)


@given(odd_json_schemas, st.lists(json_values, max_size=3))
@settings(max_examples=500, deadline=None)
def test_any_schema_is_refused_or_parses(schema: dict[str, Any], values: list[Any]) -> None:
    with contextlib.suppress(SchemaRefused):
        definition = Definition("json", schema)
        parsed = parser_of(definition).parse([json.dumps(value).encode() for value in values])
        assert len(parsed.rows) + len(parsed.rejected) == len(values)
        assert len(table_columns(definition)) == 4 + len(parsed.columns)


@pytest.mark.parametrize(
    ("bounds", "kept", "broken"),
    [
        ({"minimum": 0.5}, ["1", "0.5"], ["0", "0.4"]),
        ({"exclusiveMinimum": 0.5}, ["1", "0.6"], ["0", "0.5"]),
        ({"maximum": 2.5}, ["2", "2.5"], ["3", "2.6"]),
        ({"minimum": 1, "exclusiveMinimum": True}, ["2", "1.5"], ["1", "1.0"]),
        ({"minimum": 1, "exclusiveMinimum": 1}, ["2"], ["1"]),
        ({"minimum": 2, "exclusiveMinimum": 1}, ["2"], ["1"]),
        ({"maximum": 1e300}, ["36893488147419103232"], ["1e301"]),
    ],
)
def test_bounds_hold_for_integers_and_fractions(bounds: dict[str, Any], kept: list[str], broken: list[str]) -> None:
    _, rejected = parse({"type": "number", **bounds}, *(number.encode() for number in (*kept, *broken)))
    assert [row for row, _ in rejected] == [*range(len(kept), len(kept) + len(broken))]
    whole = [number for number in (*kept, *broken) if number.isdecimal() and int(number) < 1 << 63]
    _, rejected = parse({"type": "integer", **bounds}, *(number.encode() for number in whole))
    assert [whole[row] for row, _ in rejected] == [number for number in whole if number in broken]


def test_what_is_not_checked_is_told_and_what_leads_into_itself_is_text() -> None:
    tree = {
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        "not": {},
    }
    assert ReadSchema(tree).not_checked[0] == "not at $"
    rows, _ = parse(tree, b'{"name":"a","children":[{"name":"b","children":[{"name":"c"}]}]}')
    assert rows[0]["children"] == [{"name": "b", "children": ['{"name":"c"}']}]


# By example


def shown(*records: bytes) -> dict[str, Any]:
    """What records show."""
    seen = Examples()
    for record in records:
        seen.add(record)
    assert seen.shown is not None
    return seen.shown


def inferred(*records: bytes) -> dict[str, Any]:
    return infer(records)[0].schema


def test_a_schema_by_example_covers_its_examples() -> None:
    examples = [
        b'{"id":1,"at":"2026-05-01T10:00:00Z","due":"2026-05-02","n":1,"mixed":1,"empty":null,"list":[],"inner":{"a":1}}',
        b'{"id":2,"at":"2026-05-01T10:00:00.5+02:00","due":null,"n":1.5,"mixed":"x","inner":{"b":"c"},"lines":[{"x":1}]}',
        b"no JSON",
    ]
    found, seen = infer(examples)
    assert (seen.not_json, seen.too_wide, found.left_out) == (1, 0, {})
    definition = Definition("json", found.schema, evolves=True)
    assert {field.name: str(field.type) for field in table_columns(definition)} == {
        "_partition": "int32", "_offset": "int64", "_timestamp": "timestamp[us, tz=UTC]", "_key": "binary",
        "id": "int64", "at": "timestamp[us, tz=UTC]", "due": "date32[day]", "n": "double", "mixed": "string",
        "inner": "struct<a: int64, b: string>", "lines": "list<item: struct<x: int64>>",
    }  # fmt: skip
    parsed = parser_of(definition).parse(examples[:2])
    assert parsed.rejected == []
    assert parsed.shown == []
    assert [row["mixed"] for row in rows_of(definition, parsed)] == ["1", '"x"']


def test_new_fields_and_types_of_what_was_empty_are_noted_and_make_the_schema_grow() -> None:
    schema = inferred(b'{"id":1,"later":null,"list":[],"inner":{"a":1}}')
    values = [
        b'{"id":2,"later":null,"list":[]}',
        b'{"id":3,"later":{"x":1},"list":["a"],"inner":{"a":2,"b":true},"new":1.5,"ID":4}',
        b'{"id":"text","new":1}',
    ]
    parsed = parser_of(Definition("json", schema, evolves=True)).parse(values)
    assert parsed.shown == [shown(values[1])]
    assert parsed.rejected == [(2, "Expected `int | null`, got `str` - at `$.id`")]
    after = Definition("json", grown(schema, parsed.shown[0]).schema, evolves=True)
    again = parser_of(after).parse(values[:2])
    assert rows_of(after, again)[1] == {
        "id": 3, "later": {"x": 1}, "list": ["a"], "inner": {"a": 2, "b": True}, "new": 1.5,
    }  # fmt: skip
    again_grown = grown(after.schema, shown(*values[:2]))
    assert again_grown == Grown(after.schema, {"$.ID": TWIN})

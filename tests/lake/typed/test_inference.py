"""Records of every type, depth, width and number through inference: nothing of them is lost in silence."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.lake.typed.format import parser_of, table_columns
from headrace.lake.typed.parser import Parsed
from headrace.schemas.definition import Definition
from headrace.schemas.documents import examples_in, from_examples
from headrace.schemas.fields import UNREADABLE, FieldType, is_unknown
from headrace.schemas.infer import MOST_COLUMNS, NAMELESS, NO_ROOM, TWIN, both, grown, infer
from tests.lake.typed.test_parsing import rows_of
from tests.schemas.strategies import json_values, texts

records = st.dictionaries(texts | st.sampled_from("abcAB"), json_values, max_size=5)


def encoded(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def parse_and_grow(definition: Definition, values: list[bytes]) -> tuple[Definition, Parsed, dict[str, str]]:
    """What an archive does with a range: it grows the schema as long as records show more."""
    left_out: dict[str, str] = {}
    while True:
        parsed = parser_of(definition).parse(values)
        if not parsed.shown:
            return definition, parsed, left_out
        found = grown(definition.schema, reduce(both, parsed.shown))
        left_out |= found.left_out
        if found.schema == definition.schema:
            return definition, parsed, left_out
        definition = Definition("json", found.schema, evolves=True)


def is_empty(value: Any) -> bool:
    """Whether it says nothing, and needs no column."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    return value is None or (isinstance(value, list) and all(map(is_empty, value)))


def check_kept(value: Any, kind: FieldType, cell: Any, at: str, left_out: dict[str, str]) -> None:
    """That a column's cell has all of a value, but for what was told to stay out."""
    if isinstance(value, dict) and kind.kind == "object":
        known = {field.name: field for field in kind.fields}
        for name, inner in value.items():
            place = f"{at}.{name}"
            if name in known:
                check_kept(inner, known[name].type, (cell or {}).get(known[name].column), place, left_out)
            else:
                assert place in left_out, place
    elif isinstance(value, list) and kind.kind == "list":
        assert kind.items is not None
        assert is_unknown(kind) or len(cell) == len(value)
        for inner, inner_cell in zip(value, cell or [None] * len(value), strict=True):
            check_kept(inner, kind.items, inner_cell, f"{at}[]", left_out)
    elif is_unknown(kind):
        assert is_empty(value), (at, value)
    elif value is None:
        assert cell is None or (at == "$" and {*cell.values()} <= {None})
    elif kind.kind == "json":
        assert json.loads(cell) == value
        assert repr(json.loads(cell, parse_float=str)) == repr(json.loads(json.dumps(value), parse_float=str))
    elif kind.kind == "timestamp":
        assert datetime.fromisoformat(value).astimezone(UTC) == cell
    elif kind.kind == "date":
        assert date.fromisoformat(value) == cell
    else:
        assert cell == value
        assert kind.kind != "number" or Decimal(cell) == Decimal(value)


def check_all_kept(values: list[Any], definition: Definition, parsed: Parsed, left_out: dict[str, str]) -> None:
    root = definition.root()
    rows = rows_of(definition, parsed) or [{}] * len(parsed.rows)
    for at, row in zip(parsed.rows, rows, strict=True):
        if root.kind == "object":
            check_kept(values[at], root, row, "$", left_out)
        else:
            check_kept(values[at], root, row.get("value"), "$", left_out)
    assert sorted([*parsed.rows, *(row for row, _ in parsed.rejected)]) == [*range(len(values))]
    assert all(reason for _, reason in parsed.rejected)


@given(st.lists(json_values, min_size=1, max_size=5) | st.lists(records, min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
@example([{"a": [1, "x"]}, {"a": []}])
@example([{"a": [[], [1, None], "x"]}])
@example([{"a": 1 << 70}, {"a": 1}])
@example([{"a": (1 << 60) + 1}, {"a": 0.5}])
@example([{"a": 10**18}, {"a": 0.5}])
@example([{"a": "2026-02-31"}, {"a": "2026-05-01T24:00:00Z"}, {"a": "0000-01-01"}])
@example([{"a": "0001-01-01T00:00:00+05:00"}, {"b": "9999-12-31T23:59:59-05:00"}])
@example([None])
@example([[], None, [[]]])
@example([{}])
@example([{"": 1, "a": {"": 2}}])
@example([{"only": {"": 2}}, {"only": {"": 2}, "b": 1}])
@example([{"_key": 1, "_OFFSET": 2, "a b": 3, "a%20b": 4}])
def test_every_example_is_a_row_that_has_all_of_it(values: list[Any]) -> None:
    found, seen = infer(encoded(*values))
    assert (seen.not_json, seen.too_wide) == (0, 0)
    definition = Definition("json", found.schema, evolves=True)
    parsed = parser_of(definition).parse(encoded(*values))
    assert parsed.rejected == []
    assert {*found.left_out.values()} <= {TWIN, UNREADABLE, NAMELESS}
    check_all_kept(values, definition, parsed, found.left_out)


@given(st.lists(records, min_size=1, max_size=3), st.lists(records | json_values, max_size=5))
@settings(max_examples=300, deadline=None)
@example([{"a": {"": 1}}], [{"a": {"x": 1}, "new": 2}])
@example([{"a": {}, "b": []}], [{"a": [1], "b": 2}])
def test_records_after_the_examples_are_rows_that_have_all_of_them_or_rejects(
    examples: list[Any], values: list[Any]
) -> None:
    definition, _ = from_examples(encoded(*examples))
    definition, parsed, left_out = parse_and_grow(definition, encoded(*examples, *values))
    check_all_kept([*examples, *values], definition, parsed, left_out)
    assert not set(range(len(examples))) & {row for row, _ in parsed.rejected}


NUMBERS = [
    ("9223372036854775807", "int64"), ("9223372036854775808", "string"), (str(1 << 500), "string"),
    ("0.1", "double"), ("3.1400000000000001", "double"), ("0.12345678901234567890123", "string"), ("1e400", "string"),
    ("1e-400", "string"), ("1e300", "double"), ("0.1000000000000000055511151231257827021181583404541015625", "double"),
    ("-0.0", "double"), ("1E5", "double"), ("0e-999999999999999999999", "double"),
]  # fmt: skip


def test_why_a_field_has_no_column_is_told_by_its_own_reason() -> None:
    found, _ = infer([b'{"": 1, "id": 2, "ID": 3, "a\\\\b": 4}'])
    assert found.left_out == {"$.": NAMELESS, "$.ID": TWIN, "$.a\\b": UNREADABLE}


@pytest.mark.parametrize(("number", "column"), NUMBERS)
def test_a_number_that_no_column_holds_is_text(number: str, column: str) -> None:
    record = b'{"n":%s}' % number.encode()
    definition, _ = from_examples([record])
    assert str(table_columns(definition).field("n").type) == column
    parsed = parser_of(definition).parse([record])
    assert parsed.rejected == []
    (row,) = rows_of(definition, parsed)
    assert str(row["n"]) == number if column == "string" else row["n"] == pytest.approx(float(number), rel=0, abs=0)


@pytest.mark.parametrize(
    ("example_number", "number", "reason"),
    [
        ("1", "9223372036854775808", "Expected `int` <= 9223372036854775807 - at `$.n`"),
        ("1", "5.0", "Expected `int | null`, got `float` - at `$.n`"),
        ("0.5", str((1 << 60) + 1), f"The number {(1 << 60) + 1} has more digits than a double"),
        ("0.5", str((1 << 90) + 1), f"The number {(1 << 90) + 1} has more digits than a double"),
        ("0.5", "1e400", "Number out of range - at `$.n`"),
        ("0.5", "1" * 5000, "Integer value out of range - at `$.n`"),
        ("null", "1" * 5000, "Integer value out of range - at `$[...]`"),
    ],
)
def test_a_number_that_its_column_does_not_hold_is_a_reject(example_number: str, number: str, reason: str) -> None:
    definition, _ = from_examples([b'{"n":%s}' % example_number.encode()])
    parsed = parser_of(definition).parse([b'{"n":%s}' % one.encode() for one in (example_number, number, "null")])
    assert parsed.rejected == [(1, reason)]
    assert parsed.rows == [0, 2]


number_texts = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@given(st.lists(number_texts, min_size=1, max_size=3), st.lists(number_texts, max_size=3))
@settings(max_examples=500, deadline=None)
def test_whatever_digits_a_number_has_a_row_keeps_them_or_it_is_a_reject(examples: list[str], later: list[str]) -> None:
    """But for a fraction that comes after the examples to a column of doubles: it is rounded, as the page says."""
    texts = [*examples, *later]
    values = [b'{"n":%s}' % text.encode() for text in texts]
    definition, _ = from_examples(values[: len(examples)])
    parsed = parser_of(definition).parse(values)
    assert parsed.shown == []
    assert all(row >= len(examples) and reason for row, reason in parsed.rejected)
    assert len(parsed.rows) + len(parsed.rejected) == len(texts)
    for at, row in zip(parsed.rows, rows_of(definition, parsed), strict=True):
        text, cell = texts[at], row["n"]
        if isinstance(cell, str):
            assert cell == text
        elif isinstance(cell, int) or text.lstrip("-").isdecimal():
            assert Decimal(cell) == Decimal(text)
        else:
            assert cell == float(text)
            printed = (Decimal(repr(cell)), Decimal(f"{cell:.17g}"), Decimal(cell))
            assert at >= len(examples) or Decimal(text) in printed


def test_a_whole_number_that_a_double_holds_is_one() -> None:
    definition, _ = from_examples(encoded({"n": 0.5, "list": [0.5]}))
    wide = {"n": 1 << 80, "list": [1 << 60, 2]}
    parsed = parser_of(definition).parse(encoded(wide))
    assert rows_of(definition, parsed) == [{"n": float(1 << 80), "list": [float(1 << 60), 2.0]}]


@pytest.mark.parametrize("levels", [5, 29, 30, 31, 40, 200])
@pytest.mark.parametrize("shape", ["objects", "arrays", "both"])
def test_what_lies_deep_is_a_column_or_text_in_one(levels: int, shape: str) -> None:
    value: Any = 7
    for level in range(levels):
        is_object = shape == "objects" or (shape == "both" and level % 2)
        value = {"a": value, "b": level} if is_object else [value]
    definition, _ = from_examples(encoded({"deep": value}))
    parsed = parser_of(definition).parse(encoded({"deep": value}))
    assert parsed.rejected == []
    check_all_kept([{"deep": value}], definition, parsed, {})


def test_text_of_more_digits_than_a_moment_has_stays_text() -> None:
    nanoseconds = {"at": "2026-05-01T10:00:00.123456789Z"}
    definition, _ = from_examples(encoded(nanoseconds))
    assert rows_of(definition, parser_of(definition).parse(encoded(nanoseconds))) == [nanoseconds]


@pytest.mark.parametrize("text", [b"NaN", b'{"a": Infinity}', b'"\\ud800"', "{}".encode("utf-16"), b"", b"[" * 5_000])
def test_what_is_no_json_is_passed_over_and_told(text: bytes) -> None:
    definition, said = from_examples([b'{"a":1}', text])
    assert said == ["1 example skipped: not JSON"]
    assert [row for row, _ in parser_of(definition).parse([text, b'{"a":1}']).rejected] == [0]


@pytest.mark.parametrize(
    ("content", "examples"),
    [
        (b'[{"n": 0.12345678901234567890123}, 2]', [b'{"n": 0.12345678901234567890123}', b"2"]),
        (b'{"n": 1}', [b'{"n": 1}']),
        (b'{"n": 1}\n\n{"n": 2}\n', [b'{"n": 1}', b'{"n": 2}']),
        (b"lamp\n1", [b"lamp", b"1"]),
    ],
)
def test_examples_of_a_file_are_as_they_stand_there(content: bytes, examples: list[bytes]) -> None:
    assert examples_in(content) == examples


# Width


def wide(columns: int, prefix: str = "w") -> dict[str, Any]:
    return {f"{prefix}{number}": number for number in range(columns)}


def test_a_record_of_too_many_fields_takes_no_column_from_its_neighbours() -> None:
    definition, _ = from_examples(encoded({"id": 1}))
    values = [{"id": 2, "new": "a"}, {"id": 3} | wide(MOST_COLUMNS), {"id": 4, "deep": {"x": [1]}}]
    definition, parsed, left_out = parse_and_grow(definition, encoded(*values))
    assert parsed.rejected == [(1, f"Its fields are {MOST_COLUMNS + 1:,} columns: {NO_ROOM}")]
    assert rows_of(definition, parsed) == [
        {"id": 2, "new": "a", "deep": None}, {"id": 4, "new": None, "deep": {"x": [1]}},
    ]  # fmt: skip
    assert left_out == {}


def test_an_example_of_too_many_fields_is_passed_over_and_told() -> None:
    definition, said = from_examples(encoded({"id": 1}, wide(MOST_COLUMNS + 1)))
    assert said == [f"1 example skipped: {NO_ROOM}"]
    assert [field.name for field in table_columns(definition)][4:] == ["id"]


def test_a_record_of_many_fields_in_a_column_of_text_is_a_row() -> None:
    definition, _ = from_examples(encoded({"any": 1}, {"any": "x"}))
    value = {"any": wide(2 * MOST_COLUMNS), "new": 1}
    definition, parsed, left_out = parse_and_grow(definition, encoded(value))
    check_all_kept([value], definition, parsed, left_out)
    assert (parsed.rejected, left_out) == ([], {})


def test_fields_that_find_no_room_are_told_and_those_before_them_are_columns() -> None:
    half = MOST_COLUMNS // 2
    definition, said = from_examples(encoded(wide(half, "a"), wide(half, "b"), wide(5, "c")))
    assert said == [f"no column for $.c0, $.c1, $.c2 and 2 more fields: {NO_ROOM}"]
    assert len(table_columns(definition)) == 4 + MOST_COLUMNS
    values = [wide(half, "a") | {"d": {"e": 1}}, {"b0": 1, "a0": 2}]
    definition, parsed, left_out = parse_and_grow(definition, encoded(*values))
    assert left_out == {"$.d": NO_ROOM}
    check_all_kept(values, definition, parsed, left_out)
    assert parsed.rejected == []


def test_room_is_taken_by_fields_inside_of_others_too() -> None:
    definition, said = from_examples(encoded({"a": wide(600)}, {"b": [wide(600)]}))
    assert said == [f"no column for $.b[].w397, $.b[].w398, $.b[].w399 and 200 more fields: {NO_ROOM}"]
    definition, _, left_out = parse_and_grow(definition, encoded({"b": [wide(600)]}))
    assert len(left_out) == 203
    assert [field.name for field in table_columns(definition)][4:] == ["a", "b"]

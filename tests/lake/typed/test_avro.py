"""Records in Avro: rows by the schema of their id, and bytes that do not fit it rejected with the reason."""

from __future__ import annotations

import contextlib
import io
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.lake.typed.avro import AvroParser
from headrace.lake.typed.format import parser_of, table_columns
from headrace.schemas.avro import parsed_avro, read_avro
from headrace.schemas.avro_bytes import MOST_EMPTY_ITEMS, Unfit, check_of
from headrace.schemas.bounds import SchemaRefused
from headrace.schemas.definition import Definition
from tests.lake.typed.test_parsing import rows_of
from tests.schemas.strategies import Written, avro_records, json_values

AVRO: dict[str, Any] = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "address", "type": {"type": "record", "name": "Town", "fields": [{"name": "city", "type": "string"}]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "either", "type": ["int", "string"]},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip
ORDER_RECORD = {
    "id": 1, "item": None, "price": Decimal("4.50"), "at": datetime(2026, 5, 1, 10, tzinfo=UTC),
    "address": {"city": "Ulm"}, "tags": ["a"], "counts": {"x": 2}, "either": "one",
    "uid": "b9b1e2c8-7f6b-4f68-9d55-0c3f4a5f9d11",
}  # fmt: skip


def avro(schema: Any, record: Any, schema_id: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue() if schema_id is None else b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def parse(schema: Any, *values: bytes | None) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """The rows of records without an id, and the others with the reason."""
    definition = Definition("avro", {"any": schema})
    parsed = parser_of(definition).parse(values)
    return rows_of(definition, parsed), parsed.rejected


def test_plain_records_become_rows() -> None:
    rows, rejected = parse(AVRO, avro(AVRO, ORDER_RECORD), b"\x02", None)
    assert rejected == [(1, "Avro: the record ends too early - at `$.item`")]
    assert rows[0] == ORDER_RECORD | {"counts": [("x", 2)], "either": '"one"'}
    assert set(rows[1].values()) == {None}


def test_a_record_with_an_id_is_not_read_by_a_schema_without_one() -> None:
    rows, rejected = parse(AVRO, avro(AVRO, ORDER_RECORD, 7))
    assert (rows, rejected) == ([], [(0, "Avro: It has schema id 7: add the schema with this id")])


def test_bytes_that_may_be_a_plain_record_or_one_with_an_id_are_rejected() -> None:
    pair = {"type": "record", "name": "P", "fields": [{"name": name, "type": "bytes"} for name in "ab"]}
    both = b"\0\x0cxyz\x02z\0"
    _, rejected = parse(pair, both)
    assert rejected == [(0, "Avro: It may be a plain record, or one with schema id 209222010")]


def test_avro_records_are_read_by_the_schema_of_their_id_and_unknown_ids_are_rejected() -> None:
    newer = AVRO | {"fields": [*AVRO["fields"], {"name": "note", "type": "string", "default": "-"}]}
    definition = Definition("avro", {"7": AVRO, "9": newer})
    values = [avro(AVRO, ORDER_RECORD, 7), avro(newer, ORDER_RECORD | {"note": "x"}, 9), avro(AVRO, ORDER_RECORD, 8)]
    parsed = parser_of(definition).parse([*values, avro(AVRO, ORDER_RECORD), values[0] + b"\0"])
    assert [row["note"] for row in rows_of(definition, parsed)] == ["-", "x"]
    assert parsed.rejected == [
        (2, "Avro: Schema id 8 is unknown, only 7, 9"),
        (3, "Avro: It has no schema id"),
        (4, "Avro: 1 bytes follow the record"),
    ]


def _one_field(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "n", "type": kind}]}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("long", "double"), ("long", "float"), ("long", ["null", "double"]), (["null", "long"], ["null", "double"]),
        ("long", {"type": "double"}), ("int", "double"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("inside", [None, "array", "map", "record"])
def test_integers_of_an_older_schema_are_doubles_of_the_newest_or_rejected_and_never_rounded(
    older: Any, newer: Any, inside: str | None
) -> None:
    wide = (1 << 60) + 1 if older != "int" else (1 << 31) - 1
    wrap: dict[str | None, Any] = {
        None: lambda kind: kind, "array": lambda kind: {"type": "array", "items": kind},
        "map": lambda kind: {"type": "map", "values": kind},
        "record": lambda kind: {"type": "record", "name": "I", "fields": [{"name": "x", "type": kind}]},
    }  # fmt: skip
    hold: dict[str | None, Any] = {
        None: lambda n: n, "array": lambda n: [n], "map": lambda n: {"k": n}, "record": lambda n: {"x": n}
    }  # fmt: skip
    schemas = {"1": _one_field(wrap[inside](older)), "2": _one_field(wrap[inside](newer))}
    values = [avro(schemas["1"], {"n": hold[inside](n)}, 1) for n in (7, wide)]
    definition = Definition("avro", schemas)
    parsed = parser_of(definition).parse([*values, avro(schemas["2"], {"n": hold[inside](0.5)}, 2)])
    found = [dict(row["n"]) if inside == "map" else row["n"] for row in rows_of(definition, parsed)]
    if older == "int":
        assert (found, parsed.rejected) == ([hold[inside](n) for n in (7.0, float(wide), 0.5)], [])
    else:
        assert found == [hold[inside](n) for n in (7.0, 0.5)]
        assert parsed.rejected == [(1, f"Avro: The number {wide} has more digits than a double")]


def test_an_older_integer_in_text_has_all_its_digits_and_a_default_stays() -> None:
    newer = _one_field(["double", "long", "string"])
    newer["fields"].append({"name": "m", "type": "double", "default": 0.5})
    definition = Definition("avro", {"1": _one_field("long"), "2": newer})
    parsed = parser_of(definition).parse([avro(_one_field("long"), {"n": (1 << 60) + 1}, 1)])
    assert rows_of(definition, parsed) == [{"n": str((1 << 60) + 1), "m": 0.5}]


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01", "an enum of 2 symbols has no symbol -1"),
        (["null", "string"], b"\x03", "a union of 2 types has no type -2"),
        (["null", "string"], b"\x04", "a union of 2 types has no type 2"),
        ("boolean", b"\x07", "a boolean is 0 or 1, not 7"),
        ("int", b"\xff\xff\xff\xff\x7f", "a number has more than 32 bits"),
        ("long", b"\xff" * 9 + b"\x7f", "a number has more than 64 bits"),
        ("long", b"\xff" * 12, "a number has more than 64 bits"),
        ("long", b"\xff", "the record ends too early"),
        ("long", b"\x02\x02", "1 bytes follow the record"),
        ("bytes", b"\x07abcd", "a length of -4"),
        ("bytes", b"\x08abc", "the record ends too early"),
        ("string", b"\x02\xff", "text is not UTF-8: invalid start byte"),
        ("double", b"abc", "the record ends too early"),
        ({"type": "fixed", "name": "F", "size": 4}, b"abc", "the record ends too early"),
        ({"type": "array", "items": "long"}, b"\x01\x04\x02\x00", "a block of items does not end where it says"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\x0f\0", "an array or a map of 16,777,215 items in 5 bytes"),
        ({"type": "map", "values": "long"}, b"\x02\x02a\x02", "the record ends too early"),
    ],
)  # fmt: skip
def test_bytes_that_do_not_fit_are_rejected(schema: Any, value: bytes, reason: str) -> None:
    with pytest.raises(Unfit, match=f"^{reason}$"):
        check_of(parsed_avro(schema))(value, 0)
    inside = {"type": "record", "name": "R", "fields": [{"name": "f", "type": {"type": "array", "items": schema}}]}
    _, rejected = parse(inside, b"\x02" + value + (b"" if "early" in reason else b"\0"))
    assert [row for row, _ in rejected] == [0]


def test_a_record_nested_a_million_times_is_a_reject_and_its_neighbours_are_rows() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    rows, rejected = parse(node, b"\x02\0", b"\x02" * 1_000_000 + b"\0", b"\0")
    assert rows == [{"next": '{"next": null}'}, {"next": None}]
    assert [(at, reason[:37]) for at, reason in rejected] == [(1, "Avro: the record is nested too deeply")]


def test_arrays_of_nothing_are_bounded() -> None:
    schema = parsed_avro({"type": "array", "items": "null"})
    check_of(schema)(avro(schema, [None] * MOST_EMPTY_ITEMS), 0)
    with pytest.raises(Unfit):
        check_of(schema)(avro(schema, [None] * (MOST_EMPTY_ITEMS + 1)), 0)


@given(avro_records, st.data())
@settings(max_examples=200, deadline=None)
def test_what_fits_is_a_row_and_a_byte_less_or_more_is_a_reject(record: Written, data: st.DataObject) -> None:
    value = avro(record.schema, data.draw(record.values), 7)
    definition = Definition("avro", {"7": record.schema})
    values = [value, value + b"\0", *(value[:end] for end in range(5, len(value)))]
    parsed = parser_of(definition).parse(values)
    assert parsed.rows == [0], parsed.rejected
    assert [row for row, _ in parsed.rejected] == [*range(1, len(values))]
    assert {len(column) for column in parsed.columns} <= {1}


@given(avro_records, st.binary(max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_row_or_a_reject_by_any_schema(record: Written, value: bytes) -> None:
    parsed = AvroParser({"7": record.schema}).parse([b"\0\0\0\0\x07" + value])
    assert len(parsed.rows) + len(parsed.rejected) == 1


@given(json_values)
@settings(max_examples=300, deadline=None)
def test_json_that_is_no_avro_schema_is_refused_in_one_sentence(document: Any) -> None:
    with contextlib.suppress(SchemaRefused):
        read_avro(document)


LOGICAL: list[tuple[Any, Any, str, Any]] = [
    ({"type": "bytes", "logicalType": "decimal", "precision": 50}, Decimal(10**45), "string", str(10**45)),
    ({"type": "string", "logicalType": "timestamp-millis"}, "now", "string", "now"),
    ({"type": "fixed", "name": "U", "size": 2, "logicalType": "uuid"}, b"ab", "binary", b"ab"),
    ({"type": "long", "logicalType": "timestamp-nanos"}, 5, "int64", 5),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, datetime(2026, 5, 1), "string", "2026-05-01T00:00:00"),
    (["null", "double", "string"], float("inf"), "string", '"inf"'),
    (["null"], None, "none", None),
    ({"type": "record", "name": "T", "fields": []}, {}, "none", None),
    ({"type": "array", "items": "null"}, [None], "none", None),
]


@pytest.mark.parametrize(("schema", "value", "column", "cell"), LOGICAL)
def test_every_type_has_its_column_and_keeps_its_value(schema: Any, value: Any, column: str, cell: Any) -> None:
    fields = [{"name": "f", "type": schema}, {"name": "g", "type": "int"}]
    whole = {"type": "record", "name": "R", "namespace": "n", "fields": fields}
    shown = {field.name: str(field.type) for field in table_columns(Definition("avro", {"any": whole}))}
    assert shown.get("f", "none") == column
    rows, rejected = parse(whole, avro(whole, {"f": value, "g": 1}))
    assert rejected == []
    assert rows == [{"g": 1} | ({"f": cell} if "f" in shown else {})]


@pytest.mark.parametrize("schema", ["null", {"type": "record", "name": "T", "fields": []}])
def test_records_of_nothing_are_rows_without_columns(schema: Any) -> None:
    definition = Definition("avro", {"7": schema})
    parsed = parser_of(definition).parse([b"\0\0\0\0\x07"])
    assert (parsed.rows, parsed.columns, len(table_columns(definition))) == ([0], [], 4)


def test_types_are_known_by_their_full_names() -> None:
    town = {"type": "record", "name": "Town", "fields": [{"name": "city", "type": "string"}]}
    fields = [{"name": "a", "type": town}, {"name": "b", "type": "shop.Town"}, {"name": "c", "type": ["null", "Town"]}]
    rows, rejected = parse(
        schema := {"type": "record", "name": "R", "namespace": "shop", "fields": fields},
        avro(schema, {name: {"city": name} for name in "abc"}),
    )
    assert rejected == []
    assert rows == [{name: {"city": name} for name in "abc"}]

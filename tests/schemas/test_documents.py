"""What `schema show` prints is taken by `schema set`, and means the same: for schemas of every kind."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.lake.typed.format import table_columns
from headrace.schemas.bounds import SchemaRefused
from headrace.schemas.definition import Definition, read_definition
from headrace.schemas.documents import document_of, from_avro, from_examples, from_json_schema
from tests.schemas.strategies import avro_schemas, json_schemas, json_values

AVRO: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEWER: dict[str, Any] = AVRO | {"fields": [{"name": "id", "type": "long"}, {"name": "n", "type": "int", "default": 0}]}


def shown_and_set(definition: Definition) -> Definition:
    """Kept, shown as the command prints it, and set from that file."""
    kept = read_definition(definition.text())
    printed = msgspec.json.format(msgspec.json.encode(document_of(kept)), indent=2)
    return from_json_schema(printed, "it")[0] if definition.format == "json" else from_avro([("", printed)])


def check_round_trip(definition: Definition) -> None:
    again = shown_and_set(definition)
    assert again == definition
    assert again.text() == definition.text(), "the last of several makes the columns"


@given(json_schemas, st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_json_schema_comes_back(schema: dict[str, Any], evolves: bool) -> None:
    check_round_trip(Definition("json", schema, evolves))


@given(st.lists(json_values, min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_a_schema_by_example_comes_back_and_still_grows(values: list[Any]) -> None:
    definition, _ = from_examples([json.dumps(value).encode() for value in values])
    assert definition.evolves
    check_round_trip(definition)


@given(avro_schemas)
@settings(max_examples=200, deadline=None)
def test_an_avro_schema_without_an_id_comes_back(schema: Any) -> None:
    check_round_trip(from_avro([("", json.dumps(schema).encode())]))


@given(st.dictionaries(st.integers(0, (1 << 32) - 1), avro_schemas, min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_avro_schemas_with_ids_come_back_in_their_order(schemas: dict[int, Any]) -> None:
    definition = from_avro([(str(key), json.dumps(schema).encode()) for key, schema in schemas.items()])
    assert [*definition.schema] == [str(key) for key in schemas]
    check_round_trip(definition)


def given_avro(*ids: int | str, schema: Any = AVRO) -> list[tuple[str, bytes]]:
    return [(str(one), json.dumps(schema).encode()) for one in ids]


def test_a_schema_is_added_as_the_newest_to_those_that_are_there() -> None:
    before = from_avro(given_avro(7, 9))
    after = from_avro(given_avro(8, schema=NEWER), before)
    assert [*after.schema.items()] == [("7", AVRO), ("9", AVRO), ("8", NEWER)]
    assert [field.name for field in table_columns(after)][4:] == ["id", "n"]
    assert [*from_avro(given_avro(7), after).schema] == ["9", "8", "7"], "what is there may be made the newest"


@pytest.mark.parametrize(
    ("given_files", "before", "sentence"),
    [
        ([*given_avro(7), *given_avro(7, schema=NEWER)], None, "Two Avro schemas have the id 7"),
        (given_avro(7, schema=NEWER), {"7": AVRO}, "Two Avro schemas have the id 7"),
        (given_avro(7), {"any": AVRO}, "an Avro schema without an id, which cannot be extended"),
        (given_avro(""), {"7": AVRO}, "Several Avro schemas need ids"),
        ([*given_avro(""), *given_avro("", schema=NEWER)], None, "Several Avro schemas need ids"),
        (given_avro(1 << 32), None, "A schema id is a 32-bit number, not 4294967296"),
        (given_avro("", schema=[{"id": "7", "schema": AVRO}]), None, "A schema id is a 32-bit number, not 7"),
        (given_avro(7, schema=[{"id": 7, "schema": AVRO}]), None, "schemas with their own ids"),
        (given_avro("", schema=[]), None, "There is no Avro schema in the file"),
        ([("7", b'{"type": "no such"}'), *given_avro(9)], None, "This is not an Avro schema"),
    ],
)
def test_schemas_that_cannot_be_together_are_refused(
    given_files: list[tuple[str, bytes]], before: dict[str, Any] | None, sentence: str
) -> None:
    with pytest.raises(SchemaRefused, match=sentence):
        from_avro(given_files, Definition("avro", before) if before else None)


@pytest.mark.parametrize("text", [b"{", b"NaN", b'{"maximum": 1e400}', b'{"a": "\\ud800"}', b"\xff", b"[" * 100_000])
def test_what_cannot_be_kept_is_refused(text: bytes) -> None:
    with pytest.raises(SchemaRefused, match="is not JSON"):
        from_json_schema(text, "it")

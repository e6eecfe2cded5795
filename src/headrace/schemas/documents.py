"""Schemas as files: `schema set` accepts what `schema show` prints.

A JSON Schema is stored as it is; one that grows with its records has `x-evolves`. An Avro schema without an id is
stored as it is; those with ids are a list of `{"id": 7, "schema": ...}`, and the last one defines the columns. In Avro
a list is a union, whose parts are types and never look like this.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.schemas.avro import ANY_ID
from headrace.schemas.bounds import SchemaRefused
from headrace.schemas.definition import Definition
from headrace.schemas.infer import NO_ROOM, infer, said_of
from headrace.schemas.json_schema import ReadSchema

EVOLVES = "x-evolves"
_MOST_ID = (1 << 32) - 1


def document_of(definition: Definition) -> Any:
    """The output of `show`."""
    if definition.format == "json":
        return {EVOLVES: True, **definition.schema} if definition.evolves else definition.schema
    if ANY_ID in definition.schema:
        return definition.schema[ANY_ID]
    return [{"id": int(key), "schema": schema} for key, schema in definition.schema.items()]


def from_json_schema(text: bytes, name: str) -> tuple[Definition, list[str]]:
    """A schema from a file, and its keywords that are not checked."""
    document = _json(text, name)
    if not isinstance(document, Mapping):
        raise SchemaRefused(f"{name} is not a JSON object.")
    schema = {key: value for key, value in document.items() if key != EVOLVES}
    if not isinstance(evolves := document.get(EVOLVES, False), bool):
        raise SchemaRefused(f"{EVOLVES} in {name} must be true or false.")
    read = ReadSchema(schema)
    return Definition("json", schema, evolves), read.not_checked


def from_avro(given: Sequence[tuple[str, bytes]], before: Definition | None = None) -> Definition:
    """Schemas from files, by id, after the existing ones in `before`; the last one defines the columns."""
    schemas = {} if before is None else _with_ids(before)
    for file_id, text in given:
        for key, schema in _avro_file(file_id, text):
            if schemas.pop(key, schema) != schema:
                raise SchemaRefused(_NEED_IDS if key == ANY_ID else f"Two Avro schemas have the id {key}.")
            schemas[key] = schema
    if ANY_ID in schemas and len(schemas) > 1:
        raise SchemaRefused(_NEED_IDS)
    if not schemas:
        raise SchemaRefused("There is no Avro schema in the file.")
    for key, schema in schemas.items():
        Definition("avro", {key: schema}).root()
    return Definition("avro", schemas)


_NEED_IDS = "Several Avro schemas need ids: --avro 7=orders-v1.avsc --avro 9=orders-v2.avsc."


def _with_ids(before: Definition) -> dict[str, Any]:
    if before.format == "avro" and ANY_ID not in before.schema:
        return dict(before.schema)
    what = "a JSON Schema" if before.format == "json" else "an Avro schema without an id"
    raise SchemaRefused(f"The topic has {what}, which cannot be extended: set all schemas, with their ids.")


def _avro_file(key: str, text: bytes) -> list[tuple[str, Any]]:
    """The schemas of a file with their ids."""
    document = _json(text, "the Avro schema")
    if isinstance(document, list) and all(isinstance(one, dict) and one.keys() == {"id", "schema"} for one in document):
        if key:
            raise SchemaRefused("The file has schemas with their own ids: give it without one.")
        return [(_id(one["id"]), one["schema"]) for one in document]
    return [(_id(int(key)) if key else ANY_ID, document)]


def _id(given: object) -> str:
    if type(given) is not int or not 0 <= given <= _MOST_ID:
        raise SchemaRefused(f"A schema id is a 32-bit number, not {given}.")
    return str(given)


def from_examples(examples: Iterable[bytes]) -> tuple[Definition, list[str]]:
    """A schema that evolves, and notes about the examples, one sentence each."""
    found, seen = infer(examples)
    said = [f"{_examples(seen.not_json)} skipped: not JSON"] if seen.not_json else []
    if seen.too_wide:
        said.append(f"{_examples(seen.too_wide)} skipped: {NO_ROOM}")
    said += said_of(found.left_out)
    return Definition("json", found.schema, evolves=True), said


def examples_in(content: bytes) -> list[bytes]:
    """The examples in a file: one JSON value, a list of them, or one per line."""
    try:
        msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [line for line in content.splitlines() if line.strip()]
    try:
        return [bytes(one) for one in msgspec.json.decode(content, type=list[msgspec.Raw])]
    except msgspec.ValidationError:
        return [content]


def _examples(count: int) -> str:
    return f"{count:,} example" + ("" if count == 1 else "s")


def _json(text: bytes, name: str) -> Any:
    """Parses a document, refusing values that cannot be stored and printed again."""
    try:
        found = json.loads(text.decode("utf-8-sig"), parse_constant=_no_number, parse_float=_number)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise SchemaRefused(f"{name} is not JSON: {error}.") from None
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _number(text: str) -> float:
    if math.isinf(found := float(text)):
        raise ValueError(f"{text} is too large")
    return found

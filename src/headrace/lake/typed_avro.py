"""Records in Avro, decoded by fastavro: plain, or in Confluent's wire format (a zero byte and the id of the schema).

One schema is for all records, or there is one for each id; the last one given makes the columns, and older records
are read into it by Avro's own rules. An id that nobody gave a schema for is a reject, not a guess: read with another's
schema its bytes could make sense and mean something else.
"""

from __future__ import annotations

import datetime
import io
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from headrace.lake.typed_columns import column, entry, field_columns
from headrace.lake.typed_fields import RESERVED, Field, FieldType, twins
from headrace.lake.typed_parser import Parsed
from headrace.lake.typed_schema import SchemaRefused

ANY_ID = "any"
_WIRE_BYTES = 5

_PRIMITIVES = {
    "boolean": "boolean", "int": "integer", "long": "integer", "float": "number", "double": "number",
    "bytes": "binary", "string": "string",
}  # fmt: skip
_LOGICAL = {"timestamp-millis": "timestamp", "timestamp-micros": "timestamp", "date": "date"}
_AS_TEXT = ("time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros", "uuid")
_MOST_DIGITS = 38


class AvroParser:
    """Turns values into columns. `schemas` are by id, as text; `any` is for records without one, or of any."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._writers = {key: _parsed(schema) for key, schema in schemas.items()}
        self._reader = [*self._writers.values()][-1]
        self.root = read_avro([*schemas.values()][-1])

    def parse(self, values: Sequence[bytes | None]) -> Parsed:
        """The columns of the values that parse, and why others do not. A null is a row of nulls."""
        parsed = Parsed()
        objects: list[Any] = []
        for at, value in enumerate(values):
            try:
                objects.append(None if value is None else self._decode(value))
                parsed.rows.append(at)
            except Exception as error:  # whatever fastavro makes of bytes that are something else
                parsed.reject(at, _reason(error))
        parsed.convert(objects, self._convert, _reason)
        return parsed

    def _decode(self, value: bytes) -> Any:
        key, start = ANY_ID, 0
        if value[:1] == b"\0" and len(value) >= _WIRE_BYTES:
            number = str(int.from_bytes(value[1:_WIRE_BYTES], "big"))
            if number in self._writers or ANY_ID not in self._writers:
                key, start = number, _WIRE_BYTES
        if key not in self._writers:
            known = ", ".join(self._writers)
            raise ValueError(f"Schema id {key} is not known, only {known}" if start else "It carries no schema's id")
        try:
            return self._read(value, start, key)
        except Exception:
            # One schema for all: whether its records have Confluent's five bytes before them, they show themselves.
            if key != ANY_ID or value[:1] != b"\0":
                raise
            return self._read(value, _WIRE_BYTES, key)

    def _read(self, value: bytes, start: int, key: str) -> Any:
        stream = io.BytesIO(value)
        stream.seek(start)
        found = fastavro.schemaless_reader(stream, self._writers[key], self._reader)
        if left := len(value) - stream.tell():
            raise ValueError(f"{left} bytes follow the record")
        return found

    def _convert(self, objects: Sequence[Any]) -> list[pa.Array]:
        if self.root.kind == "object":
            return field_columns(objects, self.root, entry, _text)
        return [column(objects, self.root, entry, _text)]


def read_avro(schema: Any) -> FieldType:
    """An Avro schema as fields with types."""
    _parsed(schema)
    root, _ = _read(schema, {}, ())
    if root.kind == "object" and (names := twins((field.name for field in root.fields), RESERVED)):
        raise SchemaRefused(f"Field {names[0]!r} cannot be a column: {', '.join(RESERVED)} are taken.")
    return root


def _parsed(schema: Any) -> Any:
    try:
        return fastavro.parse_schema(schema)
    except (SchemaParseException, KeyError, TypeError, ValueError) as error:
        raise SchemaRefused(f"This is no Avro schema: {error}.") from None


def _read(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> tuple[FieldType, bool]:
    """A schema's type, and whether null is allowed."""
    if isinstance(schema, list):
        others = [choice for choice in schema if choice != "null"]
        return (_read(others[0], named, inside)[0] if len(others) == 1 else FieldType("json")), "null" in schema
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return FieldType(_PRIMITIVES[schema]), False  # type: ignore[arg-type]
        return (FieldType("json") if schema in inside else _read(named[schema], named, inside)[0]), False
    logical, kind = schema.get("logicalType"), schema["type"]
    if "name" in schema:
        named[schema["name"]] = named[f"{schema.get('namespace', '')}.{schema['name']}".lstrip(".")] = schema
    if logical == "decimal" and schema["precision"] <= _MOST_DIGITS:
        return FieldType("decimal", precision=schema["precision"], scale=schema.get("scale", 0)), False
    if logical in _LOGICAL:
        return FieldType(_LOGICAL[logical]), False  # type: ignore[arg-type]
    if logical in _AS_TEXT:
        return FieldType("json"), False
    match kind:
        case "record":
            inner = (*inside, schema["name"], f"{schema.get('namespace', '')}.{schema['name']}".lstrip("."))
            if names := twins(field["name"] for field in schema["fields"]):
                raise SchemaRefused(f"Field {names[0]!r} cannot be a column: Delta tables do not tell capitals apart.")
            fields = [Field(field["name"], *_typed(field["type"], named, inner)) for field in schema["fields"]]
            return FieldType("object", tuple(fields)), False
        case "array":
            return FieldType("list", items=_read(schema["items"], named, inside)[0]), False
        case "map":
            return FieldType("map", items=_read(schema["values"], named, inside)[0]), False
        case "enum":
            return FieldType("string"), False
        case "fixed":
            return FieldType("binary"), False
    return _read(kind, named, inside)


def _typed(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> tuple[FieldType, bool, bool]:
    kind, is_nullable = _read(schema, named, inside)
    return kind, False, is_nullable


def _text(value: Any) -> str:
    if isinstance(value, datetime.time | datetime.datetime):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    return json.dumps(value, default=lambda inner: inner.hex() if isinstance(inner, bytes) else str(inner))


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "Avro: the record ends too early"
    said = str(error) or type(error).__name__
    return f"Avro: {said}"

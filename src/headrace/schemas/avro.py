"""Maps an Avro schema to typed fields: each type, and each logical type that fastavro knows.

Unions of more than null and one type become JSON text, and so do types without a column type: times of day,
timestamps without a zone, decimals with more digits than a column has.
"""

from __future__ import annotations

from typing import Any

import fastavro

from headrace.schemas.bounds import SchemaRefused
from headrace.schemas.fields import RESERVED, Field, FieldKind, FieldType, bounded, twins

ANY_ID = "any"
"""Used instead of an id for the schema of records without one."""

_PRIMITIVES: dict[str, FieldKind] = {
    "null": "unknown", "boolean": "boolean", "int": "integer", "long": "integer", "float": "number", "double": "number",
    "bytes": "binary", "string": "string",
}  # fmt: skip
_LOGICAL: dict[tuple[str, str], FieldKind] = {
    ("long", "timestamp-millis"): "timestamp", ("long", "timestamp-micros"): "timestamp", ("int", "date"): "date",
    ("long", "local-timestamp-millis"): "json", ("long", "local-timestamp-micros"): "json",
    ("int", "time-millis"): "json", ("long", "time-micros"): "json", ("string", "uuid"): "json",
}  # fmt: skip
"""Keyed by type, too: a logical type that does not match its type must be ignored."""
_MOST_DIGITS = 38


def parsed_avro(schema: Any) -> Any:
    """A schema with fully qualified type names, as fastavro needs it."""
    try:
        return fastavro.parse_schema(schema)
    except Exception as error:  # whatever fastavro raises for other JSON
        raise SchemaRefused(f"This is not an Avro schema: {error}.") from None


def exact_avro(schema: Any) -> Any:
    """A schema to read older records with, which keeps integers where the newer schema has doubles.

    Avro's own rules would convert them to doubles, and round those of more than 53 bits.
    """
    if isinstance(schema, list):
        flat: list[Any] = []
        for choice in map(exact_avro, schema):
            flat += [one for one in (choice if isinstance(choice, list) else [choice]) if one not in flat]
        return flat
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in ("float", "double"):
        return ["long", schema]
    if not isinstance(schema, dict):
        return schema
    match kind:
        case "record" | "error":
            return schema | {"fields": [field | {"type": exact_avro(field["type"])} for field in schema["fields"]]}
        case "array":
            return schema | {"items": exact_avro(schema["items"])}
        case "map":
            return schema | {"values": exact_avro(schema["values"])}
        case dict() | list():
            return schema | {"type": exact_avro(kind)}
    return schema


def read_avro(schema: Any) -> FieldType:
    """An Avro schema as typed fields."""
    root, _ = _read(parsed_avro(schema), {}, ())
    if root.kind == "object" and (names := twins((field.name for field in root.fields), RESERVED)):
        raise SchemaRefused(f"Field {names[0]!r} cannot be a column: {', '.join(RESERVED)} are taken.")
    return bounded(root)


def _read(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> tuple[FieldType, bool]:
    """A schema's type, and whether null is allowed."""
    if isinstance(schema, list):
        others = [choice for choice in schema if choice not in ("null", {"type": "null"})]
        kind = _read(others[0], named, inside)[0] if len(others) == 1 else FieldType("json" if others else "unknown")
        return kind, len(others) < len(schema)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return FieldType(_PRIMITIVES[schema]), schema == "null"
        return (FieldType("json") if schema in inside else _read(named[schema], named, inside)[0]), False
    logical, kind = schema.get("logicalType"), schema["type"]
    if "name" in schema:
        named[schema["name"]] = schema
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema["precision"], schema.get("scale", 0)
        return FieldType("decimal", precision=precision, scale=scale) if precision <= _MOST_DIGITS else _TEXT, False
    if isinstance(kind, str) and (kind, logical) in _LOGICAL:
        return FieldType(_LOGICAL[kind, logical]), False
    match kind:
        case "record" | "error":
            return _record(schema, named, (*inside, schema["name"])), False
        case "array":
            return FieldType("list", items=_read(schema["items"], named, inside)[0]), False
        case "map":
            return FieldType("map", items=_read(schema["values"], named, inside)[0]), False
        case "enum":
            return FieldType("string"), False
        case "fixed":
            return FieldType("binary"), False
    return _read(kind, named, inside)


def _record(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> FieldType:
    if names := twins(field["name"] for field in schema["fields"]):
        raise SchemaRefused(f"Field {names[0]!r} cannot be a column: Delta column names are case-insensitive.")
    fields = []
    for field in schema["fields"]:
        kind, is_nullable = _read(field["type"], named, inside)
        fields.append(Field(field["name"], kind, False, is_nullable))
    return FieldType("object", tuple(fields))


_TEXT = FieldType("json")

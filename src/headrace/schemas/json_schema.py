"""Maps a JSON Schema to typed fields, and reports keywords that are not checked.

Objects with `properties` become structs, those with only `additionalProperties` maps, arrays lists; `date-time` is a
timestamp and `date` a date; `integer` has 64 bits. Fields of several types, or of any, become JSON text. References
inside the document are followed until they become recursive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.schemas.bounds import SchemaRefused, bounds_of, check_forms
from headrace.schemas.fields import RESERVED, UNREADABLE, Field, FieldType, bounded, is_unreadable, twins

JSON = FieldType("json")

_NOT_CHECKED = (
    "if", "then", "else", "not", "dependentRequired", "dependentSchemas", "dependencies", "patternProperties",
    "propertyNames", "minProperties", "maxProperties", "contains", "minContains", "maxContains", "uniqueItems",
    "prefixItems", "unevaluatedProperties", "unevaluatedItems",
)  # fmt: skip


class ReadSchema:
    """A parsed JSON Schema. `not_checked` are keywords that are not enforced, with their paths."""

    def __init__(self, document: Any) -> None:
        if not isinstance(document, Mapping):
            raise SchemaRefused("A JSON Schema must be an object.")
        self._document = document
        self.not_checked: list[str] = []
        root, self.is_nullable = self._read(document, "$", ())
        if root.kind == "object" and (names := twins((f.name for f in root.fields), RESERVED)):
            raise SchemaRefused(f"Field {names[0]!r} cannot be a column: {_why(names[0])}.")
        self.root = bounded(root)

    def _read(self, schema: Any, at: str, inside: tuple[str, ...]) -> tuple[FieldType, bool]:
        """A schema's type, and whether null is allowed."""
        if isinstance(schema, bool) or not schema:
            return JSON, True
        if not isinstance(schema, Mapping):
            raise SchemaRefused(f"The schema at {at} is not an object.")
        check_forms(schema, at)
        self.not_checked += [f"{keyword} at {at}" for keyword in _NOT_CHECKED if keyword in schema]
        if isinstance(reference := schema.get("$ref"), str):
            if reference in inside:
                return JSON, True
            return self._read(self._resolve(reference, at), at, (*inside, reference))
        if "allOf" in schema:
            return self._read(_merged(schema, at), at, inside)
        if isinstance(choices := schema.get("anyOf") or schema.get("oneOf"), list):
            return self._choice(choices, at, inside)
        if "enum" in schema or "const" in schema:
            return _enum(schema["enum"] if "enum" in schema else [schema["const"]])
        return self._typed(schema, at, inside)

    def _typed(self, schema: Mapping[str, Any], at: str, inside: tuple[str, ...]) -> tuple[FieldType, bool]:
        named = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else [])
        names = [named] if isinstance(named, str) else list(named)
        is_nullable = "null" in names or not names
        names = [name for name in names if name != "null"]
        if set(names) == {"integer", "number"}:
            names = ["number"]
        if len(names) != 1:
            return JSON if names or "type" not in schema else FieldType("unknown"), is_nullable
        (name,) = names
        checks = bounds_of(name, schema, at)
        match name:
            case "string":
                kind = {"date-time": "timestamp", "date": "date"}.get(schema.get("format", ""), "string")
                return FieldType(kind, checks=checks if kind == "string" else ()), is_nullable  # type: ignore[arg-type]
            case "integer":
                return FieldType("integer", checks=checks), is_nullable
            case "number":
                return FieldType("number", checks=checks), is_nullable
            case "boolean":
                return FieldType("boolean"), is_nullable
            case "array":
                return self._array(schema, checks, at, inside), is_nullable
            case "object":
                return self._object(schema, at, inside), is_nullable
        raise SchemaRefused(f"The type {name!r} at {at} does not exist.")

    def _array(
        self, schema: Mapping[str, Any], checks: tuple[tuple[str, Any], ...], at: str, inside: tuple[str, ...]
    ) -> FieldType:
        if "items" not in schema:
            return FieldType("unknown", empty="array") if schema.get("maxItems") == 0 else JSON
        items, is_nullable = self._read(schema["items"], f"{at}[]", inside)
        return FieldType("list", items=items, has_null_items=is_nullable, checks=checks)

    def _object(self, schema: Mapping[str, Any], at: str, inside: tuple[str, ...]) -> FieldType:
        others = schema.get("additionalProperties", True)
        properties = schema.get("properties", {})
        if not properties:
            if isinstance(others, Mapping):
                items, is_nullable = self._read(others, f"{at}.*", inside)
                return FieldType("map", items=items, has_null_items=is_nullable)
            return FieldType("unknown", empty="object") if others is False else JSON
        if names := twins(properties):
            raise SchemaRefused(f"Field {names[0]!r} at {at} cannot be a column: {_why(names[0])}.")
        if names := [name for name in properties if is_unreadable(name)]:
            raise SchemaRefused(f"Field {names[0]!r} at {at} cannot be a column: {UNREADABLE}.")
        required = set(schema.get("required", ()))
        fields = []
        for name, inner in properties.items():
            kind, is_nullable = self._read(inner, f"{at}.{name}", inside)
            fields.append(Field(name, kind, name in required, is_nullable))
        return FieldType("object", tuple(fields), is_closed=others is False)

    def _choice(self, choices: list[Any], at: str, inside: tuple[str, ...]) -> tuple[FieldType, bool]:
        others = [choice for choice in choices if choice != {"type": "null"}]
        if len(others) == 1:
            kind, is_nullable = self._read(others[0], at, inside)
            return kind, is_nullable or len(others) < len(choices)
        return JSON, True

    def _resolve(self, reference: str, at: str) -> Any:
        found: Any = self._document
        if not reference.startswith("#"):
            raise SchemaRefused(
                f"The reference {reference} at {at} points outside the document; move its target inside."
            )
        for part in filter(None, reference[1:].split("/")):
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or part not in found:
                raise SchemaRefused(f"The reference {reference} at {at} has no target.")
            found = found[part]
        return found


def _merged(schema: Mapping[str, Any], at: str) -> dict[str, Any]:
    """A schema merged with its `allOf`, unless they conflict."""
    merged = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        if isinstance(part, Mapping):
            check_forms(part, at)
        if not isinstance(part, Mapping) or ("$ref" in part and (merged or len(schema["allOf"]) > 1)):
            raise SchemaRefused(
                f"The allOf at {at} combines schemas that cannot be combined here; write the fields in one place."
            )
        for key, value in part.items():
            if key == "properties":
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required":
                merged[key] = [*merged.get(key, ()), *value]
            elif merged.setdefault(key, value) != value:
                raise SchemaRefused(f"The allOf at {at} says {key} twice; write its fields in one place.")
    return merged


def _enum(values: list[Any]) -> tuple[FieldType, bool]:
    is_nullable = None in values
    rest = tuple(value for value in values if value is not None)
    if rest and all(isinstance(value, str) for value in rest):
        return FieldType("string", values=rest), is_nullable
    if rest and all(type(value) is int and abs(value) < 1 << 63 for value in rest):
        return FieldType("integer", values=rest), is_nullable
    return JSON, True


def _why(name: str) -> str:
    if not name:
        return "it has no name"
    return f"{', '.join(RESERVED)} are reserved, and Delta column names are case-insensitive"

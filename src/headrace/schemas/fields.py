"""Fields of records and their columns: shared by all formats of typed tables.

A column has its field's name. Characters that Delta does not allow (blanks and ` ,;{}()=`) are written as `%20` and
the like, and `%` as `%25`, so that two fields never share a column. Delta does not distinguish `Id` from `id`: the
second of two such fields is refused when the schema is read. A value without a matching column type becomes JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

FieldKind = Literal[
    "string", "integer", "number", "boolean", "timestamp", "date", "binary", "decimal", "json", "object", "list", "map",
    "unknown",
]  # fmt: skip
"""`unknown`: only null, [] or {} were seen; it has no column yet."""

RESERVED = ("_partition", "_offset", "_timestamp", "_key")
"""Columns of every row besides its fields."""

WHOLE = "value"
"""The column of a record that is not an object."""

MOST_LEVELS = 30
"""Nesting of structs, arrays and maps: from about 35 levels, Delta's and Parquet's readers fail."""

UNREADABLE = "its name has a quotation mark, a backslash or a control character"

_REFUSED = re.compile(r"[ ,;{}()\n\t=%\x00-\x1f]")
_ESCAPED = re.compile(r'["\\\x00-\x1f]')


class FieldType(msgspec.Struct, frozen=True):
    """A field's type. `checks`: constraints in msgspec's names; `values`: an enum."""

    kind: FieldKind
    fields: tuple[Field, ...] = ()
    items: FieldType | None = None
    has_null_items: bool = True
    is_closed: bool = False
    checks: tuple[tuple[str, int | float | str], ...] = ()
    values: tuple[str | int, ...] = ()
    precision: int = 0
    scale: int = 0
    empty: Literal["null", "array", "object"] = "null"


class Field(msgspec.Struct, frozen=True):
    """A field of an object. Its column is always nullable, because a later schema may drop the field."""

    name: str
    type: FieldType
    is_required: bool = False
    is_nullable: bool = True

    @property
    def column(self) -> str:
        return column_of(self.name)


def column_of(name: str) -> str:
    """The name of a field's column."""
    return _REFUSED.sub(lambda match: f"%{ord(match[0]):02x}", name)


def is_unreadable(name: str) -> bool:
    """Whether the name needs JSON escapes, which msgspec does not support in field names."""
    return _ESCAPED.search(name) is not None


def twins(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Names whose columns Delta could not distinguish from earlier ones."""
    seen, found = {name.lower() for name in taken}, []
    for name in names:
        column = column_of(name).lower()
        if column in seen or not name:
            found.append(name)
        seen.add(column)
    return found


def columns_of(root: FieldType) -> tuple[Field, ...]:
    """The columns of a record: one per field of an object, or one for the whole value."""
    if root.kind == "object":
        return visible(root)
    return () if is_unknown(root) else (Field(WHOLE, root),)


def visible(kind: FieldType) -> tuple[Field, ...]:
    """The fields of an object with columns."""
    return tuple(field for field in kind.fields if not is_unknown(field.type))


def is_unknown(kind: FieldType) -> bool:
    """Whether too little was seen of a field to give it a column; this includes objects without columns."""
    if kind.kind in ("list", "map"):
        return kind.items is None or is_unknown(kind.items)
    return kind.kind == "unknown" or (kind.kind == "object" and not visible(kind))


def bounded(kind: FieldType, levels: int = MOST_LEVELS) -> FieldType:
    """A type whose values become JSON text beyond the maximum nesting of tables."""
    if kind.fields:
        fields = (msgspec.structs.replace(field, type=bounded(field.type, levels - 1)) for field in kind.fields)
        return msgspec.structs.replace(kind, fields=tuple(fields)) if levels else FieldType("json")
    if kind.items is not None:
        return msgspec.structs.replace(kind, items=bounded(kind.items, levels - 1)) if levels else FieldType("json")
    return kind


def count_columns(kind: FieldType) -> int:
    """Number of columns, including nested ones."""
    inner = sum(count_columns(field.type) for field in kind.fields)
    return 1 + inner + (count_columns(kind.items) if kind.items is not None else 0)

"""The fields of records and the columns that they become: what all formats of typed tables have in common.

A field's column has its name. What Delta does not take in a name (blanks and ` ,;{}()=`) is written as `%20` and the
like, and `%` as `%25`, so that two fields never share a column. Delta does not tell `Id` from `id`: of two such fields
the second is refused by whoever reads the schema. A value that fits no column type becomes JSON text.
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
"""`unknown`: nothing but null, [] or {} was seen of it; it has no column yet."""

RESERVED = ("_partition", "_offset", "_timestamp", "_key")
"""Columns that each row has beside those of its fields."""

WHOLE = "value"
"""The column of a record that is no object."""

MOST_LEVELS = 30
"""Of structs, arrays and maps inside of each other: from about 35 on Delta's and Parquet's readers give up."""

UNREADABLE = "its name has a quotation mark, a backslash or a control character"

_REFUSED = re.compile(r"[ ,;{}()\n\t=%\x00-\x1f]")
_ESCAPED = re.compile(r'["\\\x00-\x1f]')


class FieldType(msgspec.Struct, frozen=True):
    """What a field holds. `checks`: what a value must keep beside its type, as msgspec names it; `values`: an enum."""

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
    """A field of an object. Its column may always be null: a later schema may leave the field out."""

    name: str
    type: FieldType
    is_required: bool = False
    is_nullable: bool = True

    @property
    def column(self) -> str:
        return column_of(self.name)


def column_of(name: str) -> str:
    """The column's name of a field."""
    return _REFUSED.sub(lambda match: f"%{ord(match[0]):02x}", name)


def is_unreadable(name: str) -> bool:
    """Whether JSON has to escape the name, which msgspec does not take for a field."""
    return _ESCAPED.search(name) is not None


def twins(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Names whose columns Delta would not tell from those of names before them."""
    seen, found = {name.lower() for name in taken}, []
    for name in names:
        column = column_of(name).lower()
        if column in seen or not name:
            found.append(name)
        seen.add(column)
    return found


def columns_of(root: FieldType) -> tuple[Field, ...]:
    """The columns of a record: those of an object's fields, or one for the whole of it."""
    if root.kind == "object":
        return visible(root)
    return () if is_unknown(root) else (Field(WHOLE, root),)


def visible(kind: FieldType) -> tuple[Field, ...]:
    """The fields of an object that have columns."""
    return tuple(field for field in kind.fields if not is_unknown(field.type))


def is_unknown(kind: FieldType) -> bool:
    """Whether too little was seen of a field to give it a column; an object without columns is one of these."""
    if kind.kind in ("list", "map"):
        return kind.items is None or is_unknown(kind.items)
    return kind.kind == "unknown" or (kind.kind == "object" and not visible(kind))


def bounded(kind: FieldType, levels: int = MOST_LEVELS) -> FieldType:
    """A type whose values are JSON text where they lie deeper than tables go."""
    if kind.fields:
        fields = (msgspec.structs.replace(field, type=bounded(field.type, levels - 1)) for field in kind.fields)
        return msgspec.structs.replace(kind, fields=tuple(fields)) if levels else FieldType("json")
    if kind.items is not None:
        return msgspec.structs.replace(kind, items=bounded(kind.items, levels - 1)) if levels else FieldType("json")
    return kind


def count_columns(kind: FieldType) -> int:
    """Columns with those inside of them."""
    inner = sum(count_columns(field.type) for field in kind.fields)
    return 1 + inner + (count_columns(kind.items) if kind.items is not None else 0)

"""Converts parsed records to Arrow columns: field by field over all records, never record by record.

Objects are msgspec structs or dicts, which `of` distinguishes. A struct in a list in a struct becomes three passes over
flat lists of values, which makes it fast.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.typed.arrow import arrow_type
from headrace.schemas.fields import Field, FieldType, visible

Of = Callable[[FieldType, int], Callable[[Any], Any]]
"""Returns a getter for a field, by the object's type and the field's index."""

_FLAT = ("string", "integer", "boolean", "date", "binary", "decimal")
_FIRST, _LAST = (pa.scalar(at, pa.timestamp("us", "UTC")) for at in (-62_135_596_800_000_000, 253_402_300_799_999_999))


def attribute(kind: FieldType, number: int) -> Callable[[Any], Any]:
    """For structs decoded from JSON."""
    return operator.attrgetter(f"f{number}")


def entry(kind: FieldType, number: int) -> Callable[[Any], Any]:
    """For dicts."""
    name = kind.fields[number].name
    return lambda found: found.get(name)


def column(values: Sequence[Any], kind: FieldType, of: Of, text: Callable[[Any], str | None]) -> pa.Array:
    """The column of a field's values; `text` encodes values without a type as JSON."""
    match kind.kind:
        case "object":
            return _struct(values, kind, of, text)
        case "list" if kind.items is not None:
            if kind.items.kind in _FLAT:
                return pa.array(values, arrow_type(kind))
            flat = list(chain.from_iterable(value for value in values if value is not None))
            return pa.ListArray.from_arrays(_offsets(values), column(flat, kind.items, of, text)).cast(arrow_type(kind))
        case "map" if kind.items is not None:
            held = [value for value in values if value is not None]
            keys = pa.array(list(chain.from_iterable(held)), pa.string())
            flat = list(chain.from_iterable(value.values() for value in held))
            return pa.MapArray.from_arrays(_offsets(values), keys, column(flat, kind.items, of, text))
        case "number":
            return _doubles(values)
        case "json":
            return pa.array([None if value is None else text(value) for value in values], pa.string())
    made = pa.array(values, arrow_type(kind))
    if kind.kind == "timestamp" and pc.any(pc.or_(pc.less(made, _FIRST), pc.greater(made, _LAST))).as_py():
        raise ValueError("A time is outside the years 1 to 9999 in UTC")
    return made


def _doubles(values: Sequence[Any]) -> pa.Array:
    """Numbers as doubles; Arrow refuses all integers of more than 53 bits, although some fit a double."""
    try:
        return pa.array(values, pa.float64())
    except (pa.ArrowInvalid, OverflowError):
        return pa.array([_double(value) if type(value) is int else value for value in values], pa.float64())


def _double(value: int) -> float:
    try:
        found = float(value)
    except OverflowError:
        found = 0.0
    if int(found) != value:
        raise ValueError(f"The number {value} has more digits than a double")
    return found


def field_columns(values: Sequence[Any], kind: FieldType, of: Of, text: Callable[[Any], str | None]) -> list[pa.Array]:
    """The columns of an object's fields; all null if there is no object."""
    shown = {id(field) for field in visible(kind)}
    has_null = any(value is None for value in values)
    found = []
    for number, field in enumerate(kind.fields):
        if id(field) in shown:
            take = of(kind, number)
            taken = (
                [None if value is None else take(value) for value in values] if has_null else list(map(take, values))
            )
            found.append(column(taken, field.type, of, text))
    return found


def _struct(values: Sequence[Any], kind: FieldType, of: Of, text: Callable[[Any], str | None]) -> pa.Array:
    fields: list[Field] = [*visible(kind)]
    children = field_columns(values, kind, of, text)
    named = [pa.field(field.column, child.type) for field, child in zip(fields, children, strict=True)]
    missing = np.fromiter((value is None for value in values), dtype=bool, count=len(values))
    return pa.StructArray.from_arrays(children, fields=named, mask=pa.array(missing) if missing.any() else None)


def _offsets(values: Sequence[Any]) -> pa.Array:
    """The start of each list; null if there is none."""
    lengths = np.fromiter((0 if value is None else len(value) for value in values), dtype=np.int32, count=len(values))
    ends = np.concatenate((np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)))
    missing = [value is None for value in values]
    return pa.array(ends, mask=np.array([*missing, False])) if any(missing) else pa.array(ends)

"""Parses JSON records: decoded and checked by msgspec against types generated from the schema, one by one.

msgspec checks while it decodes and reports where a value is wrong. If the schema evolves, records are first decoded
strictly; one that fails there but passes when unknown fields are ignored has new fields. An integer in a column of
doubles stays an integer until then: one that does not fit a double is rejected, not rounded.
"""

from __future__ import annotations

import datetime
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Union

import msgspec
import pyarrow as pa

from headrace.lake.typed.columns import attribute, column, field_columns
from headrace.lake.typed.parser import Parsed
from headrace.schemas.bounds import whole
from headrace.schemas.fields import FieldType, is_unknown

Failure = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_MOST = 1 << 63
_SIMPLE: dict[str, Any] = {
    "integer": int,
    "boolean": bool,
    "string": str,
    "json": msgspec.Raw,
    "date": datetime.date,
    "timestamp": Annotated[datetime.datetime, msgspec.Meta(tz=True)],
}


class JsonParser:
    """Parses values to columns. If the schema evolves, `show` returns the schema of a record with new fields.

    It raises `ValueError` for a record that cannot become a row.
    """

    def __init__(
        self,
        root: FieldType,
        *,
        is_nullable: bool = False,
        show: Callable[[bytes], dict[str, Any]] | None = None,
    ) -> None:
        self._root, self._show = root, show
        known, wanted = (_python_type(root, strict=strict) for strict in (False, show is not None))
        self._decode = msgspec.json.Decoder(_or_null(wanted) if is_nullable else wanted).decode
        self._decode_known = msgspec.json.Decoder(_or_null(known) if is_nullable else known).decode

    def parse(self, values: Sequence[bytes | None]) -> Parsed:
        """The columns of parsed values, and the errors of the others. A null becomes a row of nulls."""
        parsed = Parsed()
        objects: list[Any] = []
        for at, value in enumerate(values):
            try:
                objects.append(None if value is None else self._decode(value))
                parsed.rows.append(at)
            except Failure as error:
                self._failed(parsed, objects, at, value or b"", error)
        parsed.convert(objects, self._convert, _reason)
        return parsed

    def _failed(self, parsed: Parsed, objects: list[Any], at: int, value: bytes, error: Exception) -> None:
        if self._show is None:
            parsed.reject(at, _reason(error))
            return
        try:
            known, shown = self._decode_known(value), self._show(value)
        except (*Failure, ValueError) as still:
            parsed.reject(at, _reason(still))
            return
        objects.append(known)
        parsed.rows.append(at)
        parsed.shown.append(shown)

    def _convert(self, objects: Sequence[Any]) -> list[pa.Array]:
        if self._root.kind == "object":
            return field_columns(objects, self._root, attribute, _text)
        return [] if is_unknown(self._root) else [column(objects, self._root, attribute, _text)]


def _text(raw: msgspec.Raw) -> str | None:
    content = bytes(raw)
    return None if content == b"null" else content.decode()


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "JSON is nested too deeply"
    if isinstance(error, UnicodeError):
        return f"Text is not UTF-8: {error.reason}"  # type: ignore[attr-defined]
    return str(error)


def _python_type(kind: FieldType, *, strict: bool) -> Any:
    """The type that msgspec decodes into. `strict`: unknown fields are errors everywhere."""
    if kind.values:
        return Literal[kind.values]
    match kind.kind:
        case "object":
            return _struct(kind, strict)
        case "list" if kind.items is not None:
            return _checked(types.GenericAlias(list, (_items(kind, strict),)), kind)
        case "map" if kind.items is not None:
            return types.GenericAlias(dict, (str, _items(kind, strict)))
        case "unknown":
            return _nothing(kind, strict)
        case "number":
            return _number(kind)
    return _checked(_SIMPLE[kind.kind], kind)


def _items(kind: FieldType, strict: bool) -> Any:
    assert kind.items is not None
    items = _python_type(kind.items, strict=strict)
    return _or_null(items) if kind.has_null_items else items


def _struct(kind: FieldType, strict: bool) -> Any:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for number, field in enumerate(kind.fields):
        inner = _python_type(field.type, strict=strict)
        inner = _or_null(inner) if field.is_nullable or is_unknown(field.type) else inner
        fields.append((f"f{number}", inner) if field.is_required else (f"f{number}", inner, None))
    return msgspec.defstruct(
        "Record",
        fields,
        rename={f"f{number}": field.name for number, field in enumerate(kind.fields)},
        kw_only=True,
        gc=False,
        forbid_unknown_fields=strict or kind.is_closed,
    )


def _nothing(kind: FieldType, strict: bool) -> Any:
    """The type of a field that only had empty values: the same empty value, or anything."""
    if not strict:
        return msgspec.Raw
    if kind.empty == "array":
        return Annotated[list[Any], msgspec.Meta(max_length=0)]
    return msgspec.defstruct("Empty", [], forbid_unknown_fields=True) if kind.empty == "object" else None


def _number(kind: FieldType) -> Any:
    """Keeps integers: only the column shows whether they fit a double."""
    checks: dict[str, Any] = dict(kind.checks)
    if not float(checks.get("multiple_of", 1)).is_integer():
        return _meta(float, checks)  # multipleOf a fraction is checked on doubles
    integers = {check: whole(check, bound) for check, bound in checks.items() if abs(bound) < _MOST}
    return Union[_meta(int, integers), _meta(float, checks)]  # noqa: UP007  # no syntax for types known so late


def _or_null(inner: Any) -> Any:
    # A raw value may already be null, and cannot be in a union.
    return inner if inner is msgspec.Raw else Union[inner, None]  # noqa: UP007  # no syntax for types known so late


def _checked(inner: Any, kind: FieldType) -> Any:
    return _meta(inner, dict(kind.checks))


def _meta(inner: Any, checks: dict[str, Any]) -> Any:
    return Annotated[inner, msgspec.Meta(**checks)] if checks else inner

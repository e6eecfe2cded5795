"""Records in Avro, decoded by fastavro: plain, or in Confluent's wire format (a zero byte and the id of the schema).

There is either one schema without an id, for plain records, or one per id. The last one defines the columns, and older
records are converted to it by Avro's own rules. A record with an unknown id is rejected, because read with another
schema its bytes could make sense and mean something else.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa

from headrace.lake.typed.columns import column, entry, field_columns
from headrace.lake.typed.parser import Parsed
from headrace.schemas.avro import ANY_ID, exact_avro, parsed_avro, read_avro
from headrace.schemas.avro_bytes import Unfit, check_of
from headrace.schemas.fields import is_unknown

_WIRE_BYTES = 5
_LONGEST_REASON = 300


class AvroParser:
    """Parses values to columns. `schemas` are by id, as text; `any` stands alone, for records without an id."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._writers = {key: parsed_avro(schema) for key, schema in schemas.items()}
        self._checks = {key: check_of(schema) for key, schema in self._writers.items()}
        *_, (self._newest, newest) = schemas.items()
        self._reader = parsed_avro(exact_avro(newest))
        self.root = read_avro(newest)

    def parse(self, values: Sequence[bytes | None]) -> Parsed:
        """The columns of parsed values, and the errors of the others. A null becomes a row of nulls."""
        parsed = Parsed()
        objects: list[Any] = []
        for at, value in enumerate(values):
            try:
                objects.append(None if value is None else self._decode(value))
                parsed.rows.append(at)
            except Exception as error:  # whatever fastavro raises for other bytes
                parsed.reject(at, _reason(error))
        parsed.convert(objects, self._convert, _reason)
        return parsed

    def _decode(self, value: bytes) -> Any:
        carried = str(int.from_bytes(value[1:_WIRE_BYTES], "big")) if _is_wire(value) else None
        if ANY_ID in self._writers:
            self._check_plain(value, carried)
            return self._read(value, 0, ANY_ID)
        if carried is None:
            raise ValueError("It has no schema id")
        if carried not in self._writers:
            raise ValueError(f"Schema id {carried} is unknown, only {', '.join(self._writers)}")
        self._checks[carried](value, _WIRE_BYTES)
        return self._read(value, _WIRE_BYTES, carried)

    def _check_plain(self, value: bytes, carried: str | None) -> None:
        """Refuses bytes that could also be a record with an id: the id may belong to another schema."""
        check = self._checks[ANY_ID]
        try:
            check(value, 0)
        except Unfit:
            if carried is None or not _fits(check, value):
                raise
            raise ValueError(f"It has schema id {carried}: add the schema with this id") from None
        if carried is not None and _fits(check, value):
            raise ValueError(f"It may be a plain record, or one with schema id {carried}")

    def _read(self, value: bytes, start: int, key: str) -> Any:
        stream = io.BytesIO(value)
        stream.seek(start)
        reader = None if key == self._newest else self._reader
        return fastavro.schemaless_reader(stream, self._writers[key], reader)

    def _convert(self, objects: Sequence[Any]) -> list[pa.Array]:
        if self.root.kind == "object":
            return field_columns(objects, self.root, entry, _text)
        return [] if is_unknown(self.root) else [column(objects, self.root, entry, _text)]


def _is_wire(value: bytes) -> bool:
    return value[:1] == b"\0" and len(value) >= _WIRE_BYTES


def _fits(check: Any, value: bytes) -> bool:
    try:
        check(value, _WIRE_BYTES)
    except Unfit:
        return False
    return True


def _text(value: Any) -> str:
    if isinstance(value, datetime.time | datetime.date | uuid.UUID | decimal.Decimal):
        return _in_text(value)
    try:
        return json.dumps(value, default=_in_text, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_in_text)


def _finite(value: Any) -> Any:
    """Encodes JSON with names for NaN and the infinities."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _in_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat()) if isinstance(value, datetime.time | datetime.date) else str(value)


def _reason(error: Exception) -> str:
    said = str(error) or type(error).__name__
    return f"Avro: {said}"[:_LONGEST_REASON]

"""Random messages of any class and version, drawn from the schema itself."""

from __future__ import annotations

import random
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode as KioErrorCode

from headrace.wire.apis import APIS, request_class, response_class
from headrace.wire.schema import Message, MessageField, Payload, fields_of

M = TypeVar("M", bound=Message)

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "a", "orders", "x" * 126, "y" * 127, "z" * 300, "größe", "流", "\0", "🎏" * 40)

# What kio reads as a time or an enumeration holds fewer values than the number that travels.
_CODES = tuple(code.value for code in KioErrorCode)
_MOMENTS = (0, 1, 1_700_000_000_000)
_PERIODS = (-1, 0, 86_400_000)
NARROWED = {
    "error_code": _CODES,
    "partition_error_code": _CODES,
    "log_append_time_ms": (-1, *_MOMENTS),
    "issue_timestamp": _MOMENTS,
    "expiry_timestamp": _MOMENTS,
    "max_timestamp": _MOMENTS,
    "transaction_start_time": _MOMENTS,
    "retention_time_ms": _PERIODS,
    "max_lifetime_ms": _PERIODS,
    "renew_period_ms": _PERIODS,
    "expiry_time_period_ms": _PERIODS,
    "session_lifetime_ms": _PERIODS,
}


def all_versions() -> list[tuple[type[Payload], int]]:
    """Every request and response that we have, in each of its versions."""
    classes = [of(key) for key in APIS for of in (request_class, response_class)]
    return [(cls, v) for cls in classes for v in range(cls.api.versions[0], cls.api.versions[1] + 1)]


def all_requests() -> list[tuple[type[Payload], int]]:
    """Every request in each of its versions."""
    return [(cls, version) for cls, version in all_versions() if not cls.api.response]


def random_message(cls: type[M], version: int, rng: random.Random) -> M:
    """A message with every field of this version set at random, and the others left at their default."""
    values = {f.name: _value(f, version, rng) for f in fields_of(cls) if version in f.versions}
    return cls(**values)


def _value(field: MessageField, version: int, rng: random.Random) -> Any:
    if field.tag is not None and rng.random() < 0.3:
        return field.default
    if version in field.nullable and rng.random() < 0.2:
        return None
    if field.is_array:
        return [_element(field, version, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return _element(field, version, rng)


def _element(field: MessageField, version: int, rng: random.Random) -> Any:
    if field.nested is not None:
        return random_message(field.nested, version, rng)
    if field.name in NARROWED:
        return rng.choice(NARROWED[field.name])
    return _scalar(field.kind, rng)


def _scalar(kind: str, rng: random.Random) -> Any:
    if kind in BITS:
        top = 1 << (BITS[kind] - 1)
        return rng.choice((-top, -1, 0, 1, 127, top - 1, rng.randrange(-top, top)))
    if kind == "uint16":
        return rng.choice((0, 1, 65535, rng.randrange(65536)))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.uniform(-1e9, 1e9)
    if kind == "uuid":
        return rng.choice((bytes(16), rng.randbytes(16)))
    if kind == "string":
        return rng.choice(TEXTS)
    return rng.randbytes(rng.choice((0, 1, 61, 127, 128, 2_000)))

"""The layout of messages in each version: the schema that codecs are compiled from.

A message is data: one class per Kafka message with the fields of all its versions, so that a handler serves every
version with the same code. A field's encoding is a short specification in its annotation:

    records: Annotated[Records | None, "records null"] = None
    node_id: Annotated[int, "int32 5+"] = -1
    cluster_id: Annotated[str | None, "string 12+ tag=0 null"] = None

The words are: the Kafka type (`[]` before it for an array; a class name for a nested message), the versions with the
field (all, if left out), `null` or `null=2+` for the versions in which it may be null, `tag=N` for a tagged field of
flexible versions. The classes in `messages/` are generated; this module interprets the annotations.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

ZERO_UUID = bytes(16)
ANY_VERSION = range(32768)

Buffer: TypeAlias = bytes | bytearray | memoryview
Records: TypeAlias = Buffer | Sequence[Buffer]
"""Record batches back to back: one buffer, or several that are sent in order."""

SCALARS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Types of a fixed size, and how the struct module writes them."""

VARIABLE = ("string", "bytes", "records")


class Message(msgspec.Struct, gc=False):
    """Base of every message and of every structure inside one."""


class Api(msgspec.Struct, frozen=True):
    """API key and versions, on the top-level class of a request or response."""

    key: int
    name: str
    versions: tuple[int, int]
    flexible_since: int
    response: bool


class Payload(Message):
    """Base of whole requests and responses."""

    api: ClassVar[Api]


class MessageField(msgspec.Struct, frozen=True):
    """The encoding of one field."""

    name: str
    kind: str
    is_array: bool
    nested: type[Message] | None
    versions: range
    nullable: range
    tag: int | None
    default: Any


_fields_by_class: dict[type[Message], tuple[MessageField, ...]] = {}


def fields_of(cls: type[Message]) -> tuple[MessageField, ...]:
    """The fields of a message class, in wire order."""
    found = _fields_by_class.get(cls)
    if found is None:
        hints = get_type_hints(cls, vars(sys.modules[cls.__module__]), include_extras=True)
        found = tuple(_field(cls, info, hints[info.name]) for info in msgspec.structs.fields(cls) if info.name in hints)
        _fields_by_class[cls] = found
    return found


def _field(cls: type[Message], info: msgspec.structs.FieldInfo, hint: Any) -> MessageField:
    if get_origin(hint) is not Annotated:
        raise TypeError(f"{cls.__name__}.{info.name} has no wire type")
    kind, *words = get_args(hint)[1].split()
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    versions, nullable, tag = ANY_VERSION, range(0), None
    for word in words:
        name, _, value = word.partition("=")
        if name == "tag":
            tag = int(value)
        elif name == "null":
            nullable = version_range(value) if value else ANY_VERSION
        else:
            versions = version_range(name)
    nested = None
    if kind not in SCALARS and kind not in VARIABLE:
        nested = getattr(sys.modules[cls.__module__], kind)
    default = info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
    return MessageField(info.name, kind, is_array, nested, versions, nullable, tag, default)


def version_range(text: str) -> range:
    """`3+`, `3-5` or `3` as a range of versions."""
    if text.endswith("+"):
        return range(int(text[:-1]), ANY_VERSION.stop)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)

"""What a message looks like in each version: the schema that the codecs are compiled from.

A message is data: one class per Kafka message with the fields of all its versions, so that a handler serves every
version with one piece of code. How a field travels stands beside it, as a short specification in its annotation:

    records: Annotated[Records | None, "records null"] = None
    node_id: Annotated[int, "int32 5+"] = -1
    cluster_id: Annotated[str | None, "string 12+ tag=0 null"] = None

The words are: the Kafka type (`[]` before it for an array; a class name for a nested message), the versions that
have the field (all, if left out), `null` or `null=2+` for the versions in which it may be null, `tag=N` for a tagged
field of the flexible versions. The classes in `messages/` are generated; this module gives the words their meaning.
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
"""Record batches back to back: one buffer, or several that are sent as they are, one after the other."""

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
    """What the top-level class of a request or response says of its API."""

    key: int
    name: str
    versions: tuple[int, int]
    flexible_since: int
    response: bool


class Payload(Message):
    """Base of whole requests and responses."""

    api: ClassVar[Api]


class MessageField(msgspec.Struct, frozen=True):
    """How one field of a message travels."""

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
    """The fields of a message class in the order in which they travel."""
    found = _fields_by_class.get(cls)
    if found is None:
        hints = get_type_hints(cls, vars(sys.modules[cls.__module__]), include_extras=True)
        found = tuple(_field(cls, info, hints[info.name]) for info in msgspec.structs.fields(cls) if info.name in hints)
        _fields_by_class[cls] = found
    return found


def _field(cls: type[Message], info: msgspec.structs.FieldInfo, hint: Any) -> MessageField:
    if get_origin(hint) is not Annotated:
        raise TypeError(f"{cls.__name__}.{info.name} says no wire type")
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

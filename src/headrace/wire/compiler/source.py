"""Shared by the two code writers: the text of a function under construction, and the sizes of its fields.

The writers turn the schema of one message and version into the source of one straight-line function. They are separate
from `codec.py`, so that its readers need not know how the functions are generated.
"""

from __future__ import annotations

import struct
from typing import Any

from headrace.wire.schema import SCALARS, Message, MessageField, fields_of


class Source:
    """Lines of a function under construction, and the constants it uses."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {}
        self.count = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, stem: str, value: Any) -> str:
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def finish(self, signature: str, cls: type[Message]) -> Any:
        source = signature + "\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, f"<{cls.__name__} v{self.version}>", "exec"), self.names)
        return self.names["run"]

    def present(self, cls: type[Message]) -> tuple[list[MessageField], list[MessageField]]:
        """The fields of this version: those in the body, and the tagged ones."""
        found = [f for f in fields_of(cls) if self.version in f.versions]
        tagged = sorted((f for f in found if f.tag is not None), key=lambda f: f.tag or 0)
        return [f for f in found if f.tag is None], tagged


def smallest_size(cls: type[Message], version: int, flexible: bool) -> int:
    """The minimum size of a structure in this version, which bounds the count of an array of it."""
    total = 1 if flexible else 0
    for field in fields_of(cls):
        if version in field.versions and field.tag is None:
            total += _smallest_field(field, version, flexible)
    return max(total, 1)


def _smallest_field(field: MessageField, version: int, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.nested is not None:
        return 1 if version in field.nullable else smallest_size(field.nested, version, flexible)
    if field.kind in SCALARS:
        return struct.calcsize(">" + SCALARS[field.kind])
    return 1 if flexible else (2 if field.kind == "string" else 4)

"""Writes the source of a decoder: straight-line code for one message and version.

The rule it keeps: nothing is read, sliced or allocated before it is known to be inside the message. Lengths are
checked against the remaining bytes, counts against the remaining bytes divided by the smallest element and against a
budget that all arrays of the message share, tagged fields against that budget and their announced size.
"""

from __future__ import annotations

import struct
from typing import Any

from headrace.wire.compiler.primitives import DecodeError, read_unsigned_varint
from headrace.wire.compiler.source import Source, smallest_size
from headrace.wire.schema import SCALARS, Message, MessageField, fields_of


class DecoderSource(Source):
    """Writes a decoder. `pos` moves over `buf`, `end` is its length, `left` the remaining element budget."""

    hands_out_views = False

    def build(self, cls: type[Message]) -> Any:
        self.names |= {
            "DecodeError": DecodeError,
            "varint": read_unsigned_varint,
            "unpack_from": struct.unpack_from,
        }
        self.emit("end = len(buf)")
        self.emit("view = memoryview(buf)")
        value = self.structure(cls)
        if not self.hands_out_views:
            self.lines.remove("    view = memoryview(buf)")
        self.emit(f"return {value}, pos")
        return self.finish("def run(buf, pos, left):", cls)

    def structure(self, cls: type[Message]) -> str:
        """Emits code that reads a structure; returns the expression that constructs it."""
        body, tagged = self.present(cls)
        values: dict[str, str] = {}
        run: list[tuple[str, str]] = []
        for field in body:
            variable = values[field.name] = self.fresh("v")
            if not field.is_array and field.kind in SCALARS:
                run.append((SCALARS[field.kind], variable))
                continue
            if not self.flexible and (field.is_array or field.nested is None):
                # Old versions have fixed-size lengths, which are read together with the scalars before them.
                run.append(("h" if field.kind == "string" and not field.is_array else "i", "n"))
            self.scalars(run)
            self.field(field, variable)
        self.scalars(run)
        if self.flexible:
            self.tags(tagged, values)
        arguments = [values.get(f.name) or self.default(f) for f in fields_of(cls)]
        return f"{self.constant('C', cls)}({', '.join(arguments)})"

    def scalars(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        layout = struct.Struct(">" + "".join(code for code, _ in run))
        targets = ", ".join(name for _, name in run) + ","
        self.emit(f"{targets} = {self.constant('u', layout.unpack_from)}(buf, pos)")
        self.emit(f"pos += {layout.size}")
        run.clear()

    def default(self, field: MessageField) -> str:
        if isinstance(field.default, list):
            return "[]"
        if field.default is None or isinstance(field.default, bool | int | str):
            return repr(field.default)
        return self.constant("d", field.default)

    def compact_length(self) -> None:
        self.emit("n = buf[pos] - 1")
        self.emit("pos += 1")
        self.emit("if n > 126:")
        self.emit("    n, pos = varint(buf, pos - 1)")
        self.emit("    n -= 1")

    def field(self, field: MessageField, variable: str) -> None:
        """Emits code that reads an array, a nested structure or a variable-length value into `variable`."""
        if field.nested is not None and not field.is_array:
            self.nested(field, variable)
            return
        if self.flexible:
            self.compact_length()
        if self.version in field.nullable:
            self.emit("if n == -1:")
            self.emit(f"    {variable} = None")
            self.emit("else:")
            self.depth += 1
            self.sized(field, variable)
            self.depth -= 1
        else:
            self.sized(field, variable)

    def sized(self, field: MessageField, variable: str) -> None:
        self.emit("if n < 0:")
        self.emit(f"    raise DecodeError('{field.name} has a length below zero')")
        if field.is_array:
            self.array(field, variable)
        else:
            self.cut(field.kind, variable)

    def cut(self, kind: str, variable: str) -> None:
        self.emit("to = pos + n")
        self.emit("if to > end:")
        self.emit("    raise DecodeError('a length goes beyond the message')")
        self.hands_out_views |= kind == "records"
        text = {"string": "str(buf[pos:to], 'utf-8')", "bytes": "bytes(buf[pos:to])", "records": "view[pos:to]"}[kind]
        self.emit(f"{variable} = {text}")
        self.emit("pos = to")

    def array(self, field: MessageField, variable: str) -> None:
        smallest = self.smallest_element(field)
        self.emit(f"if n > left or n * {smallest} > end - pos:")
        self.emit(f"    raise DecodeError('{field.name} has more elements than the message can hold')")
        self.emit("left -= n")
        if field.nested is None and field.kind in SCALARS:
            self.emit(f"{variable} = list(unpack_from(f'>{{n}}{SCALARS[field.kind]}', buf, pos))")
            if field.kind == "uuid":
                self.lines.pop()
                self.emit(f"{variable} = [bytes(buf[at:at + 16]) for at in range(pos, pos + 16 * n, 16)]")
            self.emit(f"pos += n * {smallest}")
            return
        element = self.fresh("v")
        self.emit(f"{variable} = []")
        self.emit("for _ in range(n):")
        self.depth += 1
        if field.nested is not None:
            self.emit(f"{variable}.append({self.structure(field.nested)})")
        else:
            self.element(field.kind, element)
            self.emit(f"{variable}.append({element})")
        self.depth -= 1

    def element(self, kind: str, variable: str) -> None:
        if self.flexible:
            self.compact_length()
        else:
            self.scalars([("h" if kind == "string" else "i", "n")])
        self.emit("if n < 0:")
        self.emit("    raise DecodeError('an array has a null element')")
        self.cut(kind, variable)

    def smallest_element(self, field: MessageField) -> int:
        if field.nested is not None:
            return smallest_size(field.nested, self.version, self.flexible)
        if field.kind in SCALARS:
            return struct.calcsize(">" + SCALARS[field.kind])
        return 1 if self.flexible else 2

    def nested(self, field: MessageField, variable: str) -> None:
        assert field.nested is not None
        if self.version not in field.nullable:
            self.emit(f"{variable} = {self.structure(field.nested)}")
            return
        # A nullable structure has a byte before it: below zero means null.
        self.emit("n = buf[pos]")
        self.emit("pos += 1")
        self.emit("if n > 127:")
        self.emit(f"    {variable} = None")
        self.emit("else:")
        self.depth += 1
        self.emit(f"{variable} = {self.structure(field.nested)}")
        self.depth -= 1

    def tags(self, tagged: list[MessageField], values: dict[str, str]) -> None:
        for field in tagged:
            values[field.name] = self.fresh("v")
            self.emit(f"{values[field.name]} = {self.default(field)}")
        count, tag, after = self.fresh("t"), self.fresh("tag"), self.fresh("after")
        self.emit(f"{count} = buf[pos]")
        self.emit("pos += 1")
        self.emit(f"if {count}:")
        self.depth += 1
        self.emit(f"{count}, pos = varint(buf, pos - 1)")
        self.emit(f"if {count} > left:")
        self.emit("    raise DecodeError('there are more tagged fields than a message may have')")
        self.emit(f"left -= {count}")
        self.emit(f"for _ in range({count}):")
        self.depth += 1
        self.emit(f"{tag}, pos = varint(buf, pos)")
        self.emit("n, pos = varint(buf, pos)")
        self.emit(f"{after} = pos + n")
        self.emit(f"if {after} > end:")
        self.emit("    raise DecodeError('a tagged field goes beyond the message')")
        for field in tagged:
            self.emit(f"if {tag} == {field.tag}:")
            self.depth += 1
            if field.kind in SCALARS and not field.is_array:
                self.scalars([(SCALARS[field.kind], values[field.name])])
            else:
                self.field(field, values[field.name])
            # A value that ends elsewhere could make the same bytes be read again and again.
            self.emit(f"if pos != {after}:")
            self.emit(f"    raise DecodeError('{field.name} does not fill its tagged field')")
            self.depth -= 1
        self.emit(f"pos = {after}")
        self.depth -= 2

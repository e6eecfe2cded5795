"""Writes the source of an encoder: straight-line code for one message and version.

Adjacent fixed-size values are packed by one struct call; record batches are sent as the caller's own buffers.
"""

from __future__ import annotations

import struct
from typing import Any

from headrace.wire.compiler.primitives import SMALL_VARINTS, unsigned_varint
from headrace.wire.compiler.source import Source
from headrace.wire.schema import SCALARS, Message, MessageField


class EncoderSource(Source):
    """Writes an encoder that appends to `out`; adjacent fixed-size values share one piece."""

    def build(self, cls: type[Message]) -> Any:
        self.names |= {
            "varint": unsigned_varint,
            "small": SMALL_VARINTS,
            "pack": struct.pack,
            "one_buffer": (bytes, bytearray, memoryview),
        }
        self.emit("put = out.append")
        self.structure(cls, "m")
        return self.finish("def run(m, out):", cls)

    def structure(self, cls: type[Message], source: str) -> None:
        body, tagged = self.present(cls)
        run: list[tuple[str, str]] = []
        for field in body:
            value = f"{source}.{field.name}"
            if not field.is_array and field.kind in SCALARS:
                run.append((SCALARS[field.kind], value))
            else:
                self.field(field, value, run)
        if self.flexible:
            self.tags(tagged, source, run)
        self.scalars(run)

    def scalars(self, run: list[tuple[str, str]]) -> None:
        if run:
            layout = struct.Struct(">" + "".join(code for code, _ in run))
            self.emit(f"put({self.constant('p', layout.pack)}({', '.join(value for _, value in run)}))")
            run.clear()

    def length(self, code: str, value: str, run: list[tuple[str, str]]) -> None:
        """A length: part of the run in old versions, a separate varint in flexible ones."""
        if self.flexible:
            self.scalars(run)
            self.emit(f"put(small[n] if (n := {value} + 1) < 0x80 else varint(n))")
        else:
            run.append((code, value))
            self.scalars(run)

    def field(self, field: MessageField, value: str, run: list[tuple[str, str]]) -> None:
        if self.version not in field.nullable:
            self.present_field(field, value, run)
            return
        self.scalars(run)
        variable = self.fresh("x")
        self.emit(f"{variable} = {value}")
        self.emit(f"if {variable} is None:")
        structure = field.nested is not None and not field.is_array
        null = b"\xff" if structure else b"\0" if self.flexible else b"\xff" * self.length_size(field)
        self.emit(f"    put({null!r})")
        self.emit("else:")
        self.depth += 1
        if structure:
            self.emit("put(b'\\x01')")
        self.present_field(field, variable, run)
        self.scalars(run)
        self.depth -= 1

    def length_size(self, field: MessageField) -> int:
        return 2 if field.kind == "string" and not field.is_array else 4

    def present_field(self, field: MessageField, value: str, run: list[tuple[str, str]]) -> None:
        if field.is_array:
            self.array(field, value, run)
        elif field.nested is not None:
            self.scalars(run)
            variable = self.fresh("x")
            self.emit(f"{variable} = {value}")
            self.structure(field.nested, variable)
        else:
            self.blob(field.kind, value, run)

    def blob(self, kind: str, value: str, run: list[tuple[str, str]]) -> None:
        variable = self.fresh("b")
        if kind == "string":
            self.emit(f"{variable} = {value}.encode()")
            self.length("h", f"len({variable})", run)
            self.emit(f"put({variable})")
        elif kind == "bytes":
            self.emit(f"{variable} = {value}")
            self.length("i", f"len({variable})", run)
            self.emit(f"put({variable})")
        else:
            self.emit(f"{variable} = {value}")
            self.emit(f"if {variable} is None:")
            self.emit(f"    {variable} = ()")
            self.emit(f"elif isinstance({variable}, one_buffer):")
            self.emit(f"    {variable} = ({variable},)")
            self.length("i", f"sum(map(len, {variable}))", run)
            self.emit(f"out.extend({variable})")

    def array(self, field: MessageField, value: str, run: list[tuple[str, str]]) -> None:
        variable = self.fresh("x")
        self.emit(f"{variable} = {value}")
        self.length("i", f"len({variable})", run)
        if field.nested is None and field.kind in SCALARS:
            if field.kind == "uuid":
                self.emit(f"put(b''.join({variable}))")
            else:
                self.emit(f"put(pack(f'>{{len({variable})}}{SCALARS[field.kind]}', *{variable}))")
            return
        element = self.fresh("e")
        self.emit(f"for {element} in {variable}:")
        self.depth += 1
        if field.nested is not None:
            self.structure(field.nested, element)
        else:
            inner: list[tuple[str, str]] = []
            self.blob(field.kind, element, inner)
            self.scalars(inner)
        self.depth -= 1

    def tags(self, tagged: list[MessageField], source: str, run: list[tuple[str, str]]) -> None:
        """Tagged fields are sent only if they differ from their default."""
        if not tagged:
            run.append(("b", "0"))
            return
        self.scalars(run)
        listed, keep = self.fresh("tags"), self.fresh("keep")
        self.emit(f"{listed} = []")
        for field in tagged:
            value = self.fresh("x")
            self.emit(f"{value} = {source}.{field.name}")
            self.emit(f"if {value} != {self.constant('d', field.default)}:")
            self.depth += 1
            self.emit(f"{keep}, out = out, []; put = out.append; {listed}.append(({field.tag}, out))")
            inner: list[tuple[str, str]] = []
            if field.kind in SCALARS and not field.is_array:
                inner.append((SCALARS[field.kind], value))
            else:
                self.field(field, value, inner)
            self.scalars(inner)
            self.emit(f"out = {keep}; put = out.append")
            self.depth -= 1
        self.emit(f"put(varint(len({listed})))")
        self.emit(f"for tag, parts in {listed}:")
        self.emit("    put(varint(tag)); put(varint(sum(map(len, parts)))); out.extend(parts)")

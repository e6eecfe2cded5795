"""Codecs, compiled from the schema: one function per message, version and direction, built at its first use.

The function is straight-line code for exactly that version: neighbouring fields of a fixed size are read or written
with one struct call, structures inside are inlined as loops. Record batches are never copied: a decoder hands out
views of the frame, an encoder puts the caller's buffers between its own pieces.

Decoding is bounded. A length is checked against what is left of the frame before anything is cut out, a count
against what is left divided by the smallest element, and all arrays of one message share a budget of elements. An
unknown tagged field is skipped. Whatever is wrong with the bytes, the caller sees one DecodeError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar

from headrace.wire.schema import SCALARS, Buffer, Field, Message, Payload, fields_of

ELEMENTS_MAX = 1_000_000
"""Array elements in one message, nested ones included: far above real use, it bounds what small elements cost."""

Pieces: TypeAlias = list[Buffer]
Decoder: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any, Pieces], None]
M = TypeVar("M", bound=Message)


class DecodeError(ValueError):
    """The bytes are not a message of this kind and version."""


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0, elements_max: int = ELEMENTS_MAX) -> tuple[M, int]:
    """The message at `pos`, and the position after it."""
    try:
        return decoder(cls, version)(buf, pos, elements_max)
    except DecodeError:
        raise
    except (struct.error, IndexError):
        raise DecodeError(f"{cls.__name__} v{version} ends too early") from None
    except UnicodeDecodeError:
        raise DecodeError(f"{cls.__name__} v{version} has a string that is not UTF-8") from None


def encode(message: Message, version: int) -> Pieces:
    """The message as buffers to be sent one after the other."""
    pieces: Pieces = []
    encoder(type(message), version)(message, pieces)
    return pieces


def encode_bytes(message: Message, version: int) -> bytes:
    """The message as one copy."""
    return b"".join(encode(message, version))


def is_flexible(cls: type[Message], version: int) -> bool:
    """Whether this version of a request or response uses compact lengths and tagged fields."""
    return issubclass(cls, Payload) and version >= cls.api.flexible_since


@cache
def decoder(cls: type[Message], version: int) -> Decoder:
    """The compiled decoder of one version: (buffer, position, element budget) -> (message, position after it)."""
    return _DecoderSource(version, is_flexible(cls, version)).build(cls)


@cache
def encoder(cls: type[Message], version: int) -> Encoder:
    """The compiled encoder of one version: (message, pieces to append to)."""
    return _EncoderSource(version, is_flexible(cls, version)).build(cls)


def read_unsigned_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes, and the position after it."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
        if shift > 28:
            raise DecodeError("a varint is longer than five bytes")


def unsigned_varint(value: int) -> bytes:
    """An unsigned varint as bytes."""
    if value < 0x80:
        return _SMALL_VARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL_VARINTS = [bytes([n]) for n in range(128)]


def smallest_size(cls: type[Message], version: int, flexible: bool) -> int:
    """The fewest bytes that a structure takes in this version: what bounds the count of an array of it."""
    total = 1 if flexible else 0
    for field in fields_of(cls):
        if version in field.versions and field.tag is None:
            total += _smallest_field(field, version, flexible)
    return max(total, 1)


def _smallest_field(field: Field, version: int, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.nested is not None:
        return 1 if version in field.nullable else smallest_size(field.nested, version, flexible)
    if field.kind in SCALARS:
        return struct.calcsize(">" + SCALARS[field.kind])
    return 1 if flexible else (2 if field.kind == "string" else 4)


class _Source:
    """Lines of a function under construction, with the constants that it refers to."""

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

    def present(self, cls: type[Message]) -> tuple[list[Field], list[Field]]:
        """The fields of this version: those in the body, and the tagged ones."""
        found = [f for f in fields_of(cls) if self.version in f.versions]
        tagged = sorted((f for f in found if f.tag is not None), key=lambda f: f.tag or 0)
        return [f for f in found if f.tag is None], tagged


class _DecoderSource(_Source):
    """Writes a decoder. `pos` walks over `buf`; `end` is its length; `left` the elements that may still come."""

    def build(self, cls: type[Message]) -> Decoder:
        self.names |= {
            "DecodeError": DecodeError,
            "varint": read_unsigned_varint,
            "unpack_from": struct.unpack_from,
        }
        self.emit("end = len(buf)")
        value = self.structure(cls)
        self.emit(f"return {value}, pos")
        built: Decoder = self.finish("def run(buf, pos, left):", cls)
        return built

    def structure(self, cls: type[Message]) -> str:
        """Emits the reading of a structure; returns the expression that makes it."""
        body, tagged = self.present(cls)
        values: dict[str, str] = {}
        run: list[tuple[str, str]] = []
        for field in body:
            variable = values[field.name] = self.fresh("v")
            if not field.is_array and field.kind in SCALARS:
                run.append((SCALARS[field.kind], variable))
                continue
            if not self.flexible and (field.is_array or field.nested is None):
                # Old versions have lengths of a fixed size: they are read along with the scalars before them.
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

    def default(self, field: Field) -> str:
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

    def field(self, field: Field, variable: str) -> None:
        """Emits the reading of an array, a nested structure or a value of variable length into `variable`."""
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

    def sized(self, field: Field, variable: str) -> None:
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
        source = "memoryview(buf)[pos:to]" if kind == "records" else "buf[pos:to]"
        text = {"string": f"str({source}, 'utf-8')", "bytes": f"bytes({source})", "records": source}[kind]
        self.emit(f"{variable} = {text}")
        self.emit("pos = to")

    def array(self, field: Field, variable: str) -> None:
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

    def smallest_element(self, field: Field) -> int:
        if field.nested is not None:
            return smallest_size(field.nested, self.version, self.flexible)
        if field.kind in SCALARS:
            return struct.calcsize(">" + SCALARS[field.kind])
        return 1 if self.flexible else 2

    def nested(self, field: Field, variable: str) -> None:
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

    def tags(self, tagged: list[Field], values: dict[str, str]) -> None:
        for field in tagged:
            values[field.name] = self.fresh("v")
            self.emit(f"{values[field.name]} = {self.default(field)}")
        count, tag, after = self.fresh("t"), self.fresh("tag"), self.fresh("after")
        self.emit(f"{count} = buf[pos]")
        self.emit("pos += 1")
        self.emit(f"if {count}:")
        self.depth += 1
        self.emit(f"{count}, pos = varint(buf, pos - 1)")
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
            self.depth -= 1
        self.emit(f"pos = {after}")
        self.depth -= 2


class _EncoderSource(_Source):
    """Writes an encoder that appends to `out`; neighbouring values of a fixed size share one piece."""

    def build(self, cls: type[Message]) -> Encoder:
        self.names |= {"varint": unsigned_varint, "pack": struct.pack}
        self.emit("put = out.append")
        self.structure(cls, "m")
        built: Encoder = self.finish("def run(m, out):", cls)
        return built

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
        """A length: part of the run in old versions, a varint of its own in flexible ones."""
        if self.flexible:
            self.scalars(run)
            self.emit(f"put(varint({value} + 1))")
        else:
            run.append((code, value))
            self.scalars(run)

    def field(self, field: Field, value: str, run: list[tuple[str, str]]) -> None:
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

    def length_size(self, field: Field) -> int:
        return 2 if field.kind == "string" and not field.is_array else 4

    def present_field(self, field: Field, value: str, run: list[tuple[str, str]]) -> None:
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
            self.emit(f"if type({variable}) is not list:")
            self.emit(f"    {variable} = () if {variable} is None else ({variable},)")
            self.length("i", f"sum(map(len, {variable}))", run)
            self.emit(f"out.extend({variable})")

    def array(self, field: Field, value: str, run: list[tuple[str, str]]) -> None:
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

    def tags(self, tagged: list[Field], source: str, run: list[tuple[str, str]]) -> None:
        """Tagged fields travel only where they differ from their default."""
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

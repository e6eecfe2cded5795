"""Answers without what only one broker could know: its ids become names, its times whether there is one."""

from __future__ import annotations

import re
import struct
from typing import Any

from headrace.wire.batch import LOG_APPEND_TIME, read_header
from headrace.wire.records import decode_batch
from headrace.wire.schema import Message

_UNSEEN = frozenset({"throttle_time_ms", "port", "transaction_start_time"})
_ALIASED = frozenset({"producer_id", "topic_id", "member_id", "leader", "topic", "name"})
_OFFSETS = frozenset({"base_offset", "high_watermark", "last_stable_offset", "log_start_offset", "low_watermark"})
_OF_STREAM = 1 << 40
"""Offsets of the format `stream` are made of times: no two brokers give out the same."""
_DIGITS_OF_TIME = 13
_SET_OR_NOT = frozenset({"session_id", "log_append_time_ms"})


class Names:
    """What a broker gave out, and the program's names for it."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}

    def give(self, known: object, name: str) -> None:
        self._names[known] = name

    def of(self, known: object) -> object:
        return self._names.get(known, known)

    def normalised(self, value: Any) -> Any:
        """Comparable data, however deep."""
        if isinstance(value, Message):
            return {"": type(value).__name__} | {
                field: self._field(field, getattr(value, field))
                for field in value.__struct_fields__
                if field not in _UNSEEN
            }
        if isinstance(value, list):
            found = [self.normalised(one) for one in value]
            return sorted(found, key=str) if value and type(value[0]).__name__ == "JoinGroupResponseMember" else found
        return bytes(value) if isinstance(value, bytearray | memoryview) else value

    def _field(self, field: str, value: Any) -> Any:
        if field in _ALIASED:
            return self.of(bytes(value) if isinstance(value, memoryview) else value)
        if field in _SET_OR_NOT:
            return value > 0
        if field in _OFFSETS:
            return shown(value)
        if field == "records":
            return self.batches(bytes(value or b""))
        if field.endswith("message") and isinstance(value, str):
            return re.sub(r"[\w.-]*\w", lambda word: str(self._in_text(word.group())), value)
        return self.normalised(value)

    def _in_text(self, word: str) -> object:
        if word.isdigit():
            return "a time" if len(word) == _DIGITS_OF_TIME else self.of(int(word))
        name, dash, number = word.rpartition("-")
        return self.of(name) if dash and number.isdigit() else self.of(word)

    def batches(self, data: bytes) -> list[Any]:
        """The batches of a log, times left out where the broker gave them; of streams the records alone."""
        found: list[Any] = []
        while data:
            (length,) = struct.unpack_from(">i", data, 8)
            batch, data = data[: 12 + length], data[12 + length :]
            head = read_header(batch)
            has_time = not head.attributes & LOG_APPEND_TIME and not head.is_control
            records = [
                (shown(one.offset), one.timestamp if has_time else 0, one.key, one.value) for one in decode_batch(batch)
            ]
            if head.base_offset >= _OF_STREAM:
                found += records
                continue
            producer = (self.of(head.producer_id), head.producer_epoch, head.base_sequence)
            found.append((head.base_offset, head.attributes, head.leader_epoch, *producer, records))
        return found


def shown(offset: int) -> int | str:
    """An offset as far as two brokers have it in common."""
    return offset if offset < _OF_STREAM else "of a stream"


def next_offset(data: bytes) -> int:
    """The offset behind the last whole batch."""
    found = -1
    while data:
        (length,) = struct.unpack_from(">i", data, 8)
        found, data = read_header(data).next_offset, data[12 + length :]
    return found


def difference(one: Any, other: Any, path: str = "") -> str:
    """Where two answers differ first, in short; empty if they do not."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next((found for key in one if (found := difference(one[key], other[key], f"{path}.{key}"))), "")
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for at, pair in pairs if (found := difference(*pair, f"{path}[{at}]"))), "")
    return "" if one == other else f"{path}: {one!r:.600} and {other!r:.600}"

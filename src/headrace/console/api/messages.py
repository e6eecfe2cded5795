"""Messages: read them page by page, download one, send one.

Content goes to the browser as text or base64 in JSON, never as anything that a browser would render.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from headrace.client import Admin, Cluster, Producer
from headrace.client.admin import Missing
from headrace.console.endpoints import ApiQuestion
from headrace.console.errors import bad
from headrace.console.reading import Found, Match, read_newest, read_on, words_for
from headrace.wire.records import Record
from headrace.wire.special_times import EARLIEST, LATEST

LIMIT_MAX = 200
SHOWN_MAX_BYTES = 16 << 10
WAIT_MAX_MS = 5_000
_SEARCH_MAX = 1_000
_PARTS = ("key", "value", "headers")
_OFFSET_MAX = (1 << 63) - 1


class Content(msgspec.Struct, frozen=True):
    """A key or value: text if it is UTF-8, else base64; truncated if it is too long to show."""

    size: int
    text: str | None = None
    base64: str | None = None
    is_cut: bool = False


class HeaderShown(msgspec.Struct, frozen=True):
    name: str
    value: Content | None


class MessageShown(msgspec.Struct, frozen=True):
    """Offsets are text, because those of format `stream` exceed JavaScript's largest integer, 2^53."""

    partition: int
    offset: str
    timestamp: int
    key: Content | None
    value: Content | None
    headers: list[HeaderShown]


class MessagePiece(msgspec.Struct, frozen=True):
    """Records in timestamp order, and the cursor for the next page."""

    messages: list[MessageShown]
    cursor: str
    at_end: bool
    scanned: int
    scanned_bytes: int
    trouble: str


class NewMessage(msgspec.Struct, frozen=True):
    """A record to send, as text, or as base64 if `base64` is set. Without a value it is a tombstone."""

    value: str | None = None
    key: str | None = None
    headers: list[tuple[str, str | None]] = []
    partition: int | None = None
    base64: bool = False


class SentMessage(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: str


class Download(msgspec.Struct, frozen=True):
    """The content of a download, and its file name."""

    name: str
    content: bytes


def read_messages(cluster: Cluster, question: ApiQuestion) -> MessagePiece:
    """One page, from a position or from the cursor of the page before."""
    topic = question.path["topic"]
    limit = question.number("limit", 50, 1, LIMIT_MAX)
    wait_ms = question.number("wait_ms", 0, 0, WAIT_MAX_MS)
    match = _match(question)
    if cursor := question.text("cursor"):
        found = read_on(cluster, topic, _positions(cursor), limit, match, wait_ms)
    else:
        partitions = _partitions(cluster, topic, question)
        place = question.text("from") or "newest"
        if place == "newest" and match is None:
            found = read_newest(cluster, topic, partitions, limit)
        else:
            start, missing = _start(cluster, topic, partitions, place, question)
            found = read_on(cluster, topic, start, limit, match, wait_ms)
            found.trouble = found.trouble or words_for(missing)
    return _piece(found)


def _piece(found: Found) -> MessagePiece:
    cursor = ",".join(f"{partition}:{at}" for partition, at in sorted(found.positions.items()))
    messages = [show(partition, record) for partition, record in found.records]
    return MessagePiece(messages, cursor, found.is_at_end, found.scanned, found.scanned_bytes, found.trouble)


def _match(question: ApiQuestion) -> Match | None:
    text = question.text("search")
    if not text:
        return None
    if len(text) > _SEARCH_MAX:
        raise bad(f"A search can have at most {_SEARCH_MAX} characters.")
    within = tuple(part for part in _PARTS if part in question.text("in").split(",")) or _PARTS
    return Match(text, within, not question.flag("exact_case"))


def _positions(cursor: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for part in cursor.split(","):
        partition, _, offset = part.partition(":")
        if not (partition.isdecimal() and offset.isdecimal()) or len(part) > 32:
            raise bad("This cursor is invalid.")
        found[int(partition)] = int(offset)
    return found


def _partitions(cluster: Cluster, topic: str, question: ApiQuestion) -> list[int]:
    there = [p.index for p in Admin(cluster).describe_topic(topic).partitions]
    if not question.text("partition"):
        return there
    wanted = question.number("partition", 0, 0, 1 << 31)
    if wanted not in there:
        raise bad(f"{topic} has no partition {wanted}.")
    return [wanted]


def _start(
    cluster: Cluster, topic: str, partitions: list[int], place: str, question: ApiQuestion
) -> tuple[dict[int, int], Missing]:
    """The first offset per partition, always within its range, and the partitions that are away."""
    admin = Admin(cluster)
    keys = [(topic, partition) for partition in partitions]
    first, missing = admin.known_offsets(dict.fromkeys(keys, EARLIEST))
    last, without_end = admin.known_offsets(dict.fromkeys(keys, LATEST))
    missing |= without_end
    partitions = [partition for partition in partitions if (topic, partition) not in missing]
    starts, ends = ({p: known[topic, p].offset for p in partitions} for known in (first, last))
    match place:
        case "oldest" | "newest":
            return starts, missing
        case "end":
            return ends, missing
        case "offset":
            at = question.number("offset", 0, 0, _OFFSET_MAX)
            return {p: min(max(at, starts[p]), ends[p]) for p in partitions}, missing
        case "time":
            moment = question.number("time", 0, 0, _OFFSET_MAX)
            found, without_time = admin.known_offsets({(topic, partition): moment for partition in partitions})
            start = {key[1]: at.offset if at.offset >= 0 else ends[key[1]] for key, at in found.items()}
            return start, missing | without_time
    raise bad("from must be newest, oldest, end, offset or time.")


def show(partition: int, record: Record) -> MessageShown:
    headers = [HeaderShown(_printable(name), shown_content(value)) for name, value in record.headers[:100]]
    key, value = shown_content(record.key), shown_content(record.value)
    return MessageShown(partition, str(record.offset), record.timestamp, key, value, headers)


def shown_content(content: bytes | None) -> Content | None:
    if content is None:
        return None
    shown = content[:SHOWN_MAX_BYTES]
    is_cut = len(shown) < len(content)
    text = _text_of(shown, is_cut)
    if text is not None:
        return Content(len(content), text=text, is_cut=is_cut)
    return Content(len(content), base64=base64.b64encode(shown).decode(), is_cut=is_cut)


def _text_of(content: bytes, is_cut: bool) -> str | None:
    """Whether this is UTF-8 text without unusual control characters; truncation may have split a character."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(content) - 3:
            return None
        text = content[: error.start].decode()
    return None if any(c < " " and c not in "\t\n\r" for c in text[:4096]) else text


def _printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode(errors="replace")


def download_message(cluster: Cluster, question: ApiQuestion) -> Download:
    """The whole key or value of one record, as a file."""
    topic = question.path["topic"]
    partition = question.number("partition", 0, 0, 1 << 31)
    offset = question.number("offset", 0, 0, _OFFSET_MAX)
    part = question.text("part") or "value"
    if part not in ("key", "value"):
        raise bad("part must be key or value.")
    found = read_on(cluster, topic, {partition: offset}, 1, None, 0)
    record = next((record for _, record in found.records if record.offset == offset), None)
    content = None if record is None else record.key if part == "key" else record.value
    if content is None:
        raise bad(f"There is no {part} at {partition}/{offset}.")
    return Download(f"{topic}-{partition}-{offset}-{part}.bin", content)


def send_message(cluster: Cluster, question: ApiQuestion) -> SentMessage:
    new: NewMessage = question.body
    topic = question.path["topic"]
    Admin(cluster).describe_topic(topic)  # a mistyped name must not create a topic
    headers = [(name, _content(value, new.base64)) for name, value in new.headers]
    producer = Producer(cluster)
    sent = producer.send(topic, _content(new.value, new.base64), _content(new.key, new.base64), headers, new.partition)
    producer.flush()
    return SentMessage(topic, sent.partition, str(sent.offset))


def _content(given: str | None, is_base64: bool) -> bytes | None:
    if given is None or not is_base64:
        return None if given is None else given.encode()
    try:
        return base64.b64decode(given, validate=True)
    except binascii.Error:
        raise bad("This is not base64.") from None

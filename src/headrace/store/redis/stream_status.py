"""The status of a stream's key for display: XINFO of the stream and its groups, and pending entries.

Redis code has its own consumer groups on the key, next to those of Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.store.redis.errors import RedisError
from headrace.store.redis.route import Route

_GROUPS_MAX = 20
_PENDING_MAX = 20


class PendingEntry(msgspec.Struct, frozen=True):
    """An entry that a consumer was given and has not confirmed."""

    id: str
    consumer: str
    idle_ms: int
    deliveries: int


class StreamGroup(msgspec.Struct, frozen=True):
    """A consumer group of Redis."""

    name: str
    consumers: int
    pending: int
    last_delivered: str
    lag: int | None
    oldest: list[PendingEntry]
    """The oldest pending entries."""


class StreamStatus(msgspec.Struct, frozen=True):
    """One partition's key."""

    partition: int
    key: str
    entries: int
    entries_added: int | None
    first_id: str | None
    last_id: str | None
    size_bytes: int | None
    groups: list[StreamGroup]


async def stream_status(partition: int, key: str, link: Route) -> StreamStatus:
    """The stream's current status; a key that was never written has no entries."""
    try:
        info = _as_dict(await link.call("XINFO", "STREAM", key))
        size = await link.call("MEMORY", "USAGE", key, "SAMPLES", "5")
        groups = [_as_dict(row) for row in (await link.call("XINFO", "GROUPS", key))[:_GROUPS_MAX]]
    except RedisError:
        return StreamStatus(partition, key, 0, None, None, None, None, [])
    pending = [
        await link.call("XPENDING", key, group["name"], "-", "+", _PENDING_MAX) if group["pending"] else []
        for group in groups
    ]
    return StreamStatus(
        partition,
        key,
        info["length"],
        info.get("entries-added"),
        _first_of(info.get("first-entry")),
        _first_of(info.get("last-entry")) or _text(info["last-generated-id"]),
        size,
        [_group(group, rows) for group, rows in zip(groups, pending, strict=True)],
    )


def _group(group: dict[str, Any], pending: Sequence[Any]) -> StreamGroup:
    return StreamGroup(
        _text(group["name"]),
        group["consumers"],
        group["pending"],
        _text(group["last-delivered-id"]),
        group.get("lag"),
        [PendingEntry(_text(row[0]), _text(row[1]), int(row[2]), int(row[3])) for row in pending],
    )


def _as_dict(reply: Any) -> dict[str, Any]:
    """Names and values, which RESP2 has in one list."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {_text(name): value for name, value in pairs}


def _first_of(entry: Any) -> str | None:
    return _text(entry[0]) if entry else None


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value

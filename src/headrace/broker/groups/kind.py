"""Groups as a kind of owned state: how a group is stored, its slug claimed, and its offsets mirrored in Redis."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.broker.groups.offsets_feed import OffsetsFeed
from headrace.broker.owned.contract import Name
from headrace.clock import Clock
from headrace.groups.classic import ClassicMachine, Group, snapshot
from headrace.groups.classic.answers import refusal
from headrace.groups.settings import GroupSettings
from headrace.store.cluster.identity import new_id, ulid
from headrace.store.cluster.nodes.time_away import HARDLY_LOST_S
from headrace.store.cluster.owned.groups import (
    Committed,
    GroupStore,
    PendingCommit,
    PendingOffset,
    Row,
    commit_field,
    pack_commit,
    unpack_row,
)
from headrace.store.cluster.owned.mirror import Mirror
from headrace.wire.errors import ErrorCode, KafkaError


def coordinator_error(error: KafkaError) -> ErrorCode:
    """A store that is away is a coordinator that is: clients look for it again and retry."""
    not_ours = error.code == ErrorCode.NOT_COORDINATOR
    return ErrorCode.NOT_COORDINATOR if not_ours else ErrorCode.COORDINATOR_NOT_AVAILABLE


class _Ids:
    """Names for the machine."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def unique(self) -> str:
        """A random UUID, version 4. By hand: `uuid.UUID` takes ten times as long, and every new member gets one."""
        drawn = bytearray(os.urandom(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        text = drawn.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def ulid(self) -> str:
        return ulid(new_id(self._clock.wall_ms()))


class GroupKind:
    """Groups of the classic protocol."""

    title = "group"

    def __init__(
        self, store: GroupStore, mirror: Mirror, feed: OffsetsFeed, settings: GroupSettings, clock: Clock
    ) -> None:
        self._store = store
        self._mirror = mirror
        self._feed = feed
        self._settings = settings
        self._clock = clock
        self._ids = _Ids(clock)
        self.pending: set[Name] = set()
        """Groups that have offsets pending in transactions, since this node stored one; some may have none any more."""

    def machine(self, name: Name) -> ClassicMachine:
        return ClassicMachine(self._settings, self._ids, name.org)

    def refusal(self, event: Any, error: KafkaError) -> Any:
        return refusal(event, coordinator_error(error))

    # -- the group and its commits as they are stored -----------------------------------------------------------

    def pack_field(self, field: str, value: Any) -> bytes:
        return snapshot.pack(value)

    def unpack_field(self, field: str, raw: bytes) -> Any:
        return snapshot.unpack(field, raw)

    def row_field(self, row: Row) -> str:
        return commit_field(row)

    def pack_row(self, value: Committed | PendingCommit) -> bytes:
        return pack_commit(value)

    def unpack_row(self, field: str, raw: bytes) -> tuple[Row, Committed | PendingCommit]:
        return unpack_row(field, raw)

    def is_recent(self, value: Committed | PendingCommit) -> bool:
        return isinstance(value, Committed) and self._clock.wall_ms() - value.commit_ms < HARDLY_LOST_S * 1000

    def is_newer(self, value: Committed | PendingCommit, than: Committed | PendingCommit) -> bool:
        if not (isinstance(value, Committed) and isinstance(than, Committed)):
            return False
        return self.is_recent(value) and value.commit_ms > than.commit_ms

    # -- slugs --------------------------------------------------------------------------------------------------

    def claimed(self, state: Group) -> str | None:
        return state.identity.slug if state.identity is not None else None

    async def claim(self, name: Name, claimed: str) -> bool:
        return await self._store.reserve_slug(name.org, name.id, claimed)

    async def give_back(self, name: Name, claimed: str) -> None:
        await self._store.free_slug(name.org, name.id, claimed)

    # -- mirrors, and the topic of offsets ----------------------------------------------------------------------

    async def before_rows_go(self, name: Name, rows: Iterable[Row]) -> None:
        if places := [row for row in rows if not isinstance(row, PendingOffset)]:
            await self._mirror.destroy(*name, places)

    def rows_stored(self, name: Name, rows: Mapping[Row, Committed | PendingCommit | None]) -> None:
        for row, committed in rows.items():
            if isinstance(committed, PendingCommit):
                self.pending.add(name)
            elif committed is not None and not isinstance(row, PendingOffset):
                self._mirror.committed(*name, row, committed.offset)
        if self._feed.is_open(name.org):
            self._feed.committed(name, rows)

    def buried(self, name: Name, rows: Mapping[Row, Committed | PendingCommit]) -> None:
        self._feed.buried(name, rows)

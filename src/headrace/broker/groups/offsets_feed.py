"""What is about to be written to `__consumer_offsets`: the newest of each key, appended in the background.

Commits are noted here after they were stored, and only while the topic is read (`offsets_topic.py`). Nobody waits for
the append, and a lost one is made up for when the node next writes all it has.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.broker.owned.contract import Name
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.owned.groups import Committed, PendingCommit, PendingOffset, Row
from headrace.store.lasting import Lasting
from headrace.store.redis.errors import PartitionGone, StoreAway
from headrace.wire.batch import read_header
from headrace.wire.errors import KafkaError
from headrace.wire.offsets_topic import (
    OFFSETS_TOPIC,
    ShownGroup,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from headrace.wire.records import Record, encode_batch

if TYPE_CHECKING:
    from headrace.store.organisation import Organisation
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_ROUND_S: Final = 0.05
_RETRY_S: Final = 1.0
_APPEND_S: Final = 5.0
_BATCH_RECORDS: Final = 200
_BATCH_BYTES: Final = 256 * 1024
_VALUE_MAX_BYTES: Final = 1024 * 1024
"""Of a group's members."""


class FeedKey(NamedTuple):
    """What a record is about: a commit, or, with no topic, a group's members."""

    group_id: str
    topic: str = ""
    partition: int = -1


Shown = Committed | ShownGroup | None
"""None: a tombstone."""


class OffsetsFeed:
    """What is due, by organisation; those whose topic nobody reads have no queue."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: dict[str, dict[FeedKey, Shown]] = {}
        self.is_open = self._due.__contains__
        """Whether an organisation's topic is read: asked with every commit."""
        self._appending: set[str] = set()
        self._postponed = Lasting(
            log,
            "writing to __consumer_offsets is postponed",
            "writing to __consumer_offsets is no longer postponed",
            logging.INFO,
        )

    def open(self, org: str) -> None:
        """From now on commits are noted."""
        self._due.setdefault(org, {})

    def close(self, org: str) -> bool:
        """Nobody reads any more; whether somebody did."""
        return self._due.pop(org, None) is not None

    def committed(self, name: Name, rows: Mapping[Row, Committed | PendingCommit | None]) -> None:
        """Commits were stored, or deleted."""
        self.note(name.org, _keyed(name, rows))

    def buried(self, name: Name, rows: Mapping[Row, Committed | PendingCommit]) -> None:
        """A group was deleted with these commits."""
        if name.org in self._due:
            self.note(name.org, {FeedKey(name.id): None, **dict.fromkeys(_keyed(name, rows))})

    def note(self, org: str, shown: Mapping[FeedKey, Shown]) -> None:
        """Adds records; of each key the newest counts."""
        due = self._due.get(org)
        if due is None or not shown:
            return
        due.update(shown)
        if org not in self._appending:
            self._appending.add(org)
            self._store.spawn(self._append_all(org))

    async def _append_all(self, org: str) -> None:
        try:
            while due := self._due.get(org):
                taken, records = _take(due, self._store.clock.wall_ms())
                pause_s = _ROUND_S
                try:
                    if records:
                        await self._append(org, encode_batch(records))
                        self._postponed.over(org)
                except PartitionGone:
                    self.close(org)
                except KafkaError as error:
                    self._postponed.met(org, why=str(error))
                    for key, shown in taken.items():
                        due.setdefault(key, shown)
                    pause_s = _RETRY_S
                await asyncio.sleep(pause_s)
        finally:
            self._appending.discard(org)
            self._postponed.over(org)

    async def _append(self, org: str, batch: bytes) -> None:
        """At the end of the log, whoever leads it."""
        organisation = self._store.organisations.get(org)
        topic = organisation.catalogue.by_name.get(OFFSETS_TOPIC) if organisation is not None else None
        if organisation is None or topic is None:
            raise PartitionGone(OFFSETS_TOPIC)
        if self._store.topology.slot_of(topic.keys(organisation.keys, 0).log).shard.memory.is_full:
            raise StoreAway("the store is nearly full")
        if self._store.nodes.leads(topic, 0):
            await _append_here(organisation, topic, batch)
        else:
            await organisation.append_elsewhere(topic, 0, batch, _always)


def _keyed(
    name: Name, rows: Mapping[Row, Committed | PendingCommit | None] | Mapping[Row, Committed | PendingCommit]
) -> dict[FeedKey, Shown]:
    """The commits among a group's rows; those of open transactions do not count yet."""
    return {
        FeedKey(name.id, *row): committed
        for row, committed in rows.items()
        if not isinstance(row, PendingOffset) and not isinstance(committed, PendingCommit)
    }


def _take(due: dict[FeedKey, Shown], now_ms: int) -> tuple[dict[FeedKey, Shown], list[Record]]:
    """As many as go into a batch."""
    taken: dict[FeedKey, Shown] = {}
    records: list[Record] = []
    size = 0
    for key in list(islice(due, _BATCH_RECORDS)):
        if size > _BATCH_BYTES:
            break
        taken[key] = shown = due.pop(key)
        try:
            record = Record(len(records), now_ms, *_packed(key, shown))
        except struct.error:
            continue  # a name that Kafka's format has no room for
        records.append(record)
        size += len(record.value or b"")
    return taken, records


def _packed(key: FeedKey, shown: Shown) -> tuple[bytes, bytes | None]:
    name = offset_key(*key) if key.topic else group_key(key.group_id)
    if shown is None:
        return name, None
    if isinstance(shown, ShownGroup):
        # Larger than any reader expects: better no members than those of before.
        return name, group_value(shown) if shown.size_bytes <= _VALUE_MAX_BYTES else None
    return name, offset_value(shown.offset, shown.leader_epoch, shown.metadata, shown.commit_ms)


async def _append_here(organisation: Organisation, topic: Topic, batch: bytes) -> None:
    partition = await organisation.partition(topic, 0)
    await partition.confirm()
    appended = partition.writer.submit(memoryview(bytearray(batch)), read_header(batch), _APPEND_S)
    await partition.copies.until_confirmed(appended)


async def _always() -> None:
    """It is always wanted: whoever owns the group by now writes all of it again, and that comes later."""

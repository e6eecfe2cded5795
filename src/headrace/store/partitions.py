"""What a partition is to the broker, whichever format it has, and what both formats share.

What a node knows of a partition (`end`, `log_start`, producers, index) is only as good as the last sign of trouble:
after a reconnect, a refusal or doubt, nothing is answered from memory until `confirm()` has looked at the store again.
The formats say what a look is, how records are read, and how old ones go: `partition.py` is the format `log`,
`stream_partition.py` the format `stream`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from headrace.cold_log import ColdPartition
from headrace.store.catalogue import Topic
from headrace.store.entries import Taken
from headrace.store.errors import PartitionGone, StoreAway
from headrace.store.formats import is_tiered
from headrace.store.index import Index
from headrace.store.losses import EpochStart, Gap
from headrace.store.producers import Producers
from headrace.store.tail import Tail
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.appending import Appender
    from headrace.store.store import Store

_UNSEEN = -1
"""The timeline of no server."""


class AnyPartition(ABC):
    """What this node knows of one partition."""

    writer: Appender[Any]
    log_start: int
    end: int
    index: Index
    producers: Producers

    def __init__(self, store: Store, topic: Topic, number: int) -> None:
        self.store = store
        self.topic = topic
        self.number = number
        self.keys = topic.keys(store.keys, number)
        self.epochs = [EpochStart(0, 0)]
        self.gaps: list[Gap] = []
        self.floor = 0
        """The end is not below this: records up to here were given out, and lost."""
        self.trimmed_to = 0
        """Below this Redis has no records any more, whatever the log start is: they are cold."""
        self.trouble: str | None = None
        """What this node noted last of why records stay in Redis; None if it has not noted anything."""
        self.tail = Tail(store.tails)
        self.watchers: set[Callable[[AnyPartition], None]] = set()
        """Called after the end moved: long polls."""
        self.is_gone = False
        self.is_loaded = False
        self.seen_timeline = store.link.timeline
        self._confirmed_generation = -1
        self._confirmed_term = -1
        self._doubts = 0
        self._confirming: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.number}"

    async def close(self) -> None:
        """Answers whoever still waits, and ends what goes on in the background."""
        if self._confirming is not None:
            self._confirming.cancel()
        await self.writer.close()

    @property
    def leader_epoch(self) -> int:
        """The epoch that is written into batches."""
        return self.epochs[-1].epoch

    # -- being sure ---------------------------------------------------------------------------------------------

    @property
    def is_in_step(self) -> bool:
        """Whether what is known was seen in the store on this connection, with no refusal since."""
        link = self.store.link
        return self._confirmed_generation == link.generation and link.is_up

    @property
    def is_confirmed(self) -> bool:
        """Whether what is known was seen in the store since the last sign of trouble, a lease in doubt included."""
        nodes = self.store.nodes
        return self.is_in_step and self._confirmed_term == nodes.term and nodes.lease_is_valid

    @property
    def may_append(self) -> bool:
        """Whether the end that is known is one to append at."""
        return self.is_confirmed

    async def confirm_end(self) -> None:
        """Confirms, and is sure that records were not given out behind the end that is known."""
        await self.confirm()

    @property
    def is_stale(self) -> bool:
        """Whether the store has to be asked before anything is answered."""
        return not self.is_confirmed

    def doubt(self) -> None:
        """Notes a sign of trouble: the next answer asks the store first."""
        self._confirmed_generation = -1
        self._doubts += 1

    async def confirm(self) -> None:
        """Returns once what is known was seen in the store; everybody who waits shares one look."""
        while not self.is_confirmed:
            await self._share_look()
            if self.is_in_step and not self.store.nodes.lease_is_valid:
                return  # a fresh look is as sure as it gets

    async def confirm_up_to(self, offset: int) -> None:
        """Confirms; an offset beyond the end is looked for: another node may lead too, for a moment, and have it."""
        if offset > self.end:
            self.doubt()
        if self.is_stale:
            await self.confirm()

    async def _share_look(self) -> None:
        if self.is_gone:
            raise PartitionGone(repr(self))
        if self._confirming is None or self._confirming.done():
            self._confirming = asyncio.create_task(self._look(), name=f"confirm {self!r}")
            self._confirming.add_done_callback(_retrieve)
        await asyncio.shield(self._confirming)

    async def _look(self) -> None:
        link = self.store.link
        if not link.is_up:
            raise StoreAway
        generation, term, doubts = link.generation, self.store.nodes.term, self._doubts
        await self.look()
        if self._doubts == doubts:
            self._confirmed_generation, self._confirmed_term = generation, term

    async def look(self) -> None:
        """Brings what is known up to what is in the store, and the store up to what was promised.

        If the server is another one than before (a restart, a fail-over), the store may have gone back in time.
        """
        timeline = self.store.link.timeline
        await self.store.catalogue.settle()
        if not self.is_loaded:
            await self.load()
        elif self.seen_timeline != timeline:
            await self.recover()
        self.is_loaded, self.seen_timeline = True, timeline
        await self.catch_up()

    @abstractmethod
    async def load(self) -> None:
        """The first look: reads what the store knows of the partition."""

    @abstractmethod
    async def recover(self) -> None:
        """Compares another server's log with what was acknowledged, and appends again what is missing."""

    @abstractmethod
    async def catch_up(self) -> None:
        """Takes in what somebody else appended, or what we did without learning of it."""

    @contextlib.asynccontextmanager
    async def remaking(self) -> AsyncIterator[None]:
        """The log is not there. If the topic is, the store evicted or lost it: it is made again behind its old end.

        Should something come between, the next look goes on with restoring.
        """
        timeline, self.seen_timeline = self.seen_timeline, _UNSEEN
        await self.make_again(self.end)
        yield
        self.seen_timeline = timeline

    async def make_again(self, end: int) -> None:
        """Makes the keys that are missing; PartitionGone if the topic is not there any more."""
        if not await self.store.catalogue.remake_partition(self.topic, self.number, end):
            self.vanish()
            raise PartitionGone(repr(self))

    def check_there(self, reply: int) -> None:
        """Raises PartitionGone if a script found that the partition is not there."""
        if reply < 0:
            self.doubt()
            raise PartitionGone(repr(self))

    def vanish(self) -> None:
        """The partition was deleted: nothing of it is answered any more, and long polls go."""
        self.is_gone = True
        self.doubt()
        self.tail.clear()
        self.tell_watchers()

    # -- long polls ---------------------------------------------------------------------------------------------

    def watch(self, watcher: Callable[[AnyPartition], None]) -> None:
        """`watcher` is called after the end moved, until `unwatch`."""
        self.watchers.add(watcher)

    def unwatch(self, watcher: Callable[[AnyPartition], None]) -> None:
        self.watchers.discard(watcher)

    def tell_watchers(self) -> None:
        """Wakes the long polls."""
        for watcher in list(self.watchers):
            watcher(self)

    # -- reading ------------------------------------------------------------------------------------------------

    def check_offset(self, offset: int) -> None:
        """Raises OFFSET_OUT_OF_RANGE; call it on a confirmed partition only."""
        if not self.log_start <= offset <= self.end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self!r} is outside {self.log_start} to {self.end}.",
            )

    @property
    def local_start(self) -> int:
        """From here on records are in Redis; from the log start to here they are cold."""
        return max(self.log_start, self.trimmed_to)

    def is_cold(self, offset: int) -> bool:
        """Whether a reader at this offset has to be served from the cold log."""
        return offset < self.trimmed_to and not self.tail.holds(offset)

    @property
    def is_tiered(self) -> bool:
        """Whether the topic's configs, as they are now, leave old records to the lake."""
        return is_tiered(self.store.catalogue.by_uuid.get(self.topic.uuid, self.topic).configs)

    @property
    def cold_name(self) -> ColdPartition:
        """What the cold log knows it by."""
        return ColdPartition(self.topic.name, self.topic.uuid, self.number)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote an offset."""
        return next((one.epoch for one in reversed(self.epochs) if one.start <= offset), self.epochs[0].epoch)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to the one asked for, and where it ends; (-1, -1) if unknown (KIP-320)."""
        if epoch > self.leader_epoch or epoch < self.epochs[0].epoch:
            return -1, -1
        if epoch == self.leader_epoch:
            return epoch, self.end
        for this, following in zip(self.epochs, self.epochs[1:], strict=False):
            if this.epoch <= epoch < following.epoch:
                return this.epoch, following.start
        return -1, -1

    @abstractmethod
    def read_cached(self, offset: int, max_bytes: int, at_least_one: bool) -> Taken | None:
        """Batches from memory; None if Redis has to be read."""

    @abstractmethod
    async def read(self, offset: int, max_bytes: int, at_least_one: bool) -> Taken:
        """Batches from Redis: from the one that holds the offset on, up to about `max_bytes`."""

    @abstractmethod
    async def find_earliest(self) -> int:
        """The offset from which on everything that is left is read."""

    @abstractmethod
    async def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after a time; None if there is none."""

    @abstractmethod
    async def find_newest(self) -> tuple[int, int] | None:
        """Offset and timestamp of the record with the largest timestamp; None if there are no records."""

    @abstractmethod
    async def mirror_position(self, offset: int) -> tuple[str, int]:
        """The id of the last entry wholly below an offset, and how many entries there were up to it."""

    # -- old records --------------------------------------------------------------------------------------------

    @abstractmethod
    async def delete_before(self, offset: int) -> None:
        """Makes `offset` the log start and frees what lies before it; OFFSET_OUT_OF_RANGE past the end."""

    @abstractmethod
    async def enforce_retention(self, retention_ms: int, retention_bytes: int) -> None:
        """Removes what a topic's configs no longer keep."""

    @abstractmethod
    async def save_producers(self) -> None:
        """Stores what makes reading the producers' state again cheap."""

    async def save_start(self, offset: int) -> None:
        """Moves the log start up, in the store and then here."""
        reply = await self.store.scripts.run("save_start", [self.keys.meta, self.keys.there], [offset])
        self.check_there(reply)
        self.log_start = max(self.log_start, offset)

    async def save_local_start(self, offset: int) -> None:
        """Says that records below an offset are cold, in the store and then here; they may be removed after that."""
        reply = await self.store.scripts.run("save_local_start", [self.keys.meta, self.keys.there], [offset])
        self.check_there(reply)
        self.trimmed_to = max(self.trimmed_to, offset)

    async def save_trouble(self, why: str) -> None:
        """Notes, for all nodes to show, why records that should be cold stay in Redis; empty if all is well."""
        if why != self.trouble:
            reply = await self.store.scripts.run("save_trouble", [self.keys.meta, self.keys.there], [why])
            self.check_there(reply)
            self.trouble = why

    @property
    def size_bytes(self) -> int:
        """How large the records are that the partition holds in Redis."""
        return self.index.bytes_since(self.local_start) if self.local_start < self.end else 0


def _retrieve(task: asyncio.Task[None]) -> None:
    """Takes note of a failure, so that one that nobody waits for any more is no unhandled one."""
    if not task.cancelled():
        task.exception()

"""A partition as the broker sees it: the interface and shared code of both formats.

A node's cached state of a partition (`end`, `log_start`, producers, index) is only as good as the last sign of trouble
(`store/confidence.py`): after one, nothing is answered from memory until `confirm()` has read the store again. The
formats define how: `log/partition.py` for the format `log`, `stream/partition.py` for `stream`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from headrace.cold_log import ColdLog, ColdPartition
from headrace.store.cluster.catalogue import Topic
from headrace.store.confidence import Confidence, Level
from headrace.store.partition import losses, origin
from headrace.store.partition.context import PartitionContext
from headrace.store.partition.copies import Copies
from headrace.store.partition.entries import Batches
from headrace.store.partition.losses import EpochStart, Gap
from headrace.store.partition.old_records import CompactionPolicy, Compactions, Limits, Trouble
from headrace.store.partition.readable import Readable
from headrace.store.partition.sequences.gaps import SequenceGaps
from headrace.store.partition.tail import Tail
from headrace.store.redis.errors import LeftToLeader, PartitionGone, StoreAway
from headrace.store.redis.shard import Shard
from headrace.store.shared_work import retrieve
from headrace.store.topic_configs.policy import TopicPolicy
from headrace.wire.control import skip_marker
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.partition.appending import Appender


class Partition(Readable):
    """One partition, as cached by this node."""

    writer: Appender[Any]

    def __init__(self, context: PartitionContext, topic: Topic, number: int) -> None:
        super().__init__()
        self.context = context
        self.nodes = context.nodes
        self.options = context.options
        self.now_ms = context.clock.wall_ms
        self.topic = topic
        self.uuid = topic.uuid
        self.number = number
        self.keys = topic.keys(context.keys, number)
        slot = context.slot_of(self.keys.log)
        self.link, self.reads, self.scripts = slot.link, slot.reads, slot.scripts
        self.outlook = context.outlook_of(slot)
        self.slot = slot
        self.epochs = [EpochStart(0, 0)]
        self.sequence_gaps = SequenceGaps(self.nodes.after_requests)
        self.gaps: list[Gap] = []
        self.replaced: list[Gap] = []
        """Where this node's acknowledged records were lost and may be another node's now; known here only."""
        self.unreported_gaps: set[Gap] = set()
        """Those that this node found and may not have stored, or that one stored which may have died right then."""
        self.floor = 0
        """The end is not below this: records up to here were given out, and lost."""
        self.trimmed_to = 0
        """Below this Redis has no records any more, whatever the log start is: they are cold."""
        self.taken_up = ""
        """By which node, on which server, as the store says (`origin.py`)."""
        self.left: int | None = None
        """Where the log ended when it was last left in good order; None once somebody took it up again."""
        self.was_replaced = False
        """Whether another node may have led, unseen by this one, before another server answered."""
        self.is_being_remade = False
        """Whether a node began to make the log again, and did not come to the end: it may have died."""
        self.trouble: str | None = None
        """The last recorded reason why records stay in Redis; None if nothing was recorded."""
        self.tail = Tail(context.tails)
        self.bytes_in = self.records_in = self.bytes_out = 0
        """Appended and fetched through this node."""
        self.compactions = Compactions()
        self.is_gone = False
        self.confidence = Confidence()
        self.copies = Copies(self)
        self._confirming: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.number}"

    async def close(self) -> None:
        """Answers all waiters and stops background work."""
        if self._confirming is not None:
            self._confirming.cancel()
        await self.writer.close()

    @property
    def shard(self) -> Shard:
        """The server that has its keys now."""
        return self.slot.shard

    # -- being sure ---------------------------------------------------------------------------------------------

    @property
    def is_in_step(self) -> bool:
        """Whether the cached state was read on this connection, with no refused append since."""
        return self.link.is_up and self.confidence.level(self.outlook.view) >= Level.SHARED

    @property
    def is_confirmed(self) -> bool:
        """Whether the cached state was read after the last sign of trouble, including a doubtful lease."""
        # `seen == outlook.view` part by part: every append asks, and each property on the way is a call.
        seen, link, moves = self.confidence.seen, self.link.link, self.link.moves
        return (
            seen is not None
            and seen.generation == link.generation + moves
            and seen.timeline == link.timeline + moves
            and seen.term == self.nodes.term
            and link.is_up
            and self.nodes.lease_is_valid
        )

    def may_append(self) -> bool:
        """Whether the end that is known is one to append at."""
        return self.is_confirmed

    @property
    def is_settled(self) -> bool:
        """Whether the partition can be taken over without asking other nodes or the lake."""
        return True

    async def confirm_end(self) -> None:
        """Asks the store, and is sure that records were not given out behind the end that is known.

        Who led until a moment ago may have appended behind the look by which this node took over, and its consumers
        may have read that.
        """
        self.doubt()
        await self.confirm()

    @property
    def is_stale(self) -> bool:
        """Whether the store has to be asked before anything is answered."""
        return not self.is_confirmed

    def doubt(self) -> None:
        """Notes a sign of trouble: the next answer asks the store first."""
        self.confidence.doubt()

    async def confirm(self) -> None:
        """Returns once the cached state is confirmed by the store; concurrent callers share one read."""
        began_before = self._confirming is not None and not self._confirming.done()
        while not self.is_confirmed:
            await self._share_look()
            if self.is_in_step and not self.nodes.lease_is_valid and not began_before:
                return  # a look that began after the call is as sure as it gets: another node may lead
            began_before = False

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
            self._confirming.add_done_callback(retrieve)
        await asyncio.shield(self._confirming)

    async def _look(self) -> None:
        """Brings the cached state up to date, and the store up to everything acknowledged."""
        if not self.link.is_up:
            raise StoreAway
        view, seen = self.outlook.view, self.confidence.seen
        self.was_replaced = self.was_replaced or origin.was_replaced(self)
        look, level = self.confidence.begin(view), self.confidence.level(view)
        await self.context.catalogue.settle()
        told = self.leader_epoch if seen is not None else None
        if level <= Level.ASTRAY:
            await (self.load() if level is Level.UNREAD else self.recover())
            self.confidence.loaded(look)
        await self.catch_up()
        await losses.finish_remaking(self)
        await losses.begin_behind_end(self, told)
        await origin.take_up(self)
        if seen is None or seen.term != view.term:
            self.trouble = None  # another node may have led meanwhile, and noted something else
        self.confidence.end(look)

    @abstractmethod
    async def load(self) -> None:
        """The first load from the store."""

    @abstractmethod
    async def recover(self) -> None:
        """Compares another server's log with the acknowledged one, and appends again what is missing."""

    @abstractmethod
    async def catch_up(self) -> None:
        """Reads entries that others appended, or that we appended without seeing the reply."""

    @abstractmethod
    async def remake_rest(self) -> None:
        """Finishes a restore that another node began and did not finish; what cannot be restored is a gap."""

    @abstractmethod
    async def go_behind_lost(self) -> None:
        """Raises the leader epoch, and moves the end behind every offset that was given out and lost unnoticed."""

    @abstractmethod
    def end_unseen(self) -> int:
        """Behind every offset that other nodes can have given out since this one last looked."""

    @contextlib.asynccontextmanager
    async def remaking(self) -> AsyncIterator[int]:
        """The log is not there. If the topic is, the store evicted or lost it: it is made again behind its old end.

        Yields the end to go on at, which lies further on if the cache is outdated. It is the floor of the new log from
        the first moment on: another node may have to finish it.

        Should something come between, the next look goes on with restoring. Nothing of ours may be what comes: appends
        that are under way find no log, and none begins before another look has seen the log as it is afterwards.
        The leader alone does so: another node's empty log would be in the way of the records in its cache.
        """
        self.doubt()
        if not origin.leads(self):
            raise LeftToLeader(repr(self))
        lost = self.confidence.lose_track()
        end = max(self.end, self.end_unseen()) if await origin.is_outdated(self) else self.end
        await self.make_again(end)
        yield end
        await losses.note_remade(self)
        self.confidence.find_track(lost)

    async def make_again(self, end: int) -> None:
        """Makes the keys that are missing; PartitionGone if the topic is not there any more."""
        if not await self.context.catalogue.remake_partition(self.topic, self.number, end):
            self.vanish()
            raise PartitionGone(repr(self))

    def check_there(self, reply: int) -> None:
        """Raises PartitionGone if a script found that the partition is not there."""
        if reply < 0:
            self.doubt()
            raise PartitionGone(repr(self))

    def vanish(self) -> None:
        """The partition was deleted: stops answering, and ends its long polls."""
        self.is_gone = True
        self.doubt()
        self.tail.clear()
        self.tell_watchers()

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
    def policy(self) -> TopicPolicy:
        """The policy from the topic's current configs."""
        context = self.context
        return context.policies.of(context.catalogue.by_uuid.get(self.uuid, self.topic))

    @property
    def current_topic(self) -> Topic:
        """The topic's record as it is now: its configs may have changed."""
        return self.context.catalogue.by_uuid.get(self.uuid, self.topic)

    @property
    def cold(self) -> ColdLog:
        """Where its records are that left Redis."""
        return self.context.cold()

    def count_event(self, name: str, number: int) -> None:
        """Counts an event for the metrics."""
        self.context.events[name] += number

    @property
    def cold_name(self) -> ColdPartition:
        """Its identity for the cold log."""
        return ColdPartition(self.topic.name, self.topic.uuid, self.number, self.context.keys.organisation)

    @abstractmethod
    def read_cached(self, offset: int, max_bytes: int, at_least_one: bool) -> Batches | None:
        """Batches from memory; None if Redis has to be read."""

    @abstractmethod
    async def read(self, offset: int, max_bytes: int, at_least_one: bool) -> Batches:
        """Batches from Redis: from the one that holds the offset on, up to about `max_bytes`."""

    @abstractmethod
    async def has_records_from(self, offset: int) -> bool:
        """Whether the store has a record at an offset or behind it."""

    async def skip_to_end(self, offset: int) -> Batches:
        """Carries a reader over the offsets before the end that have no records.

        They were lost, or removed by Redis code. Without this a reader that stops at the end would never get there.
        """
        await self.confirm()
        end = self.end  # whatever is appended after this moment lies behind it
        if await self.has_records_from(offset) or not self.is_in_step:
            return Batches([], 0)
        return self.skip_to(end)

    def skip_to(self, offset: int) -> Batches:
        """A batch without records that moves a reader's position to an offset."""
        marker = skip_marker(offset - 1, self.leader_epoch, self.now_ms())
        return Batches([marker], len(marker))

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
        """Makes `offset` the log start and deletes everything before it; OFFSET_OUT_OF_RANGE past the end."""

    @abstractmethod
    async def enforce_retention(self, retention_ms: int, retention_bytes: int) -> None:
        """Applies the retention configs of the topic."""

    async def leave_to_lake(self, limits: Limits) -> Trouble | None:
        """Drops records from Redis as far as limits and lake allow; returns the obstacle, if any.

        Of a format that is never tiered nothing leaves.
        """
        return None

    @abstractmethod
    async def compact_if_due(self, policy: CompactionPolicy, unknown_ms: int) -> None:
        """Keeps the last record of each key, if it is time to.

        What became of an append is known after `unknown_ms`, or nobody will ask any more.
        """

    async def records_from(self, offset: int) -> int | None:
        """The number of records from an offset on; None if it is unknown or too expensive to count."""
        return None

    @abstractmethod
    async def save_producers(self) -> None:
        """Stores a snapshot of the producers, which makes the next load cheap."""

    async def save_start(self, offset: int) -> None:
        """Moves the log start up, in the store and then here."""
        reply = await self.scripts.run("save_start", [self.keys.meta, self.keys.there], [offset])
        self.check_there(reply)
        self.log_start = max(self.log_start, offset)

    async def save_local_start(self, offset: int) -> None:
        """Says that records below an offset are cold, in the store and then here; they may be removed after that."""
        reply = await self.scripts.run("save_local_start", [self.keys.meta, self.keys.there], [offset])
        self.check_there(reply)
        self.trimmed_to = max(self.trimmed_to, offset)

    async def save_trouble(self, why: str) -> None:
        """Notes, for all nodes to show, why records that should be cold stay in Redis; empty if all is well."""
        if why != self.trouble:
            reply = await self.scripts.run("save_trouble", [self.keys.meta, self.keys.there], [why])
            self.check_there(reply)
            self.trouble = why

    @property
    def size_bytes(self) -> int:
        """How large the records are that the partition holds in Redis."""
        return self.index.bytes_since(self.local_start) if self.local_start < self.end else 0

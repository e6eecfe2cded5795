"""A Fetch on its way: what it wants, what memory has of it, and whether that is enough.

Both roads make their passes with this. One in memory answers completely or not at all: whatever needs the store, and
every error, is left to the road that may wait (`handlers/fetch.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.fetching.isolation import aborted_among
from headrace.broker.fetching.sessions import NO_SESSION, Session, Wanted, wanted_by
from headrace.broker.topics.current_leaders import CurrentLeaders
from headrace.security.acls import Operation, ResourceType
from headrace.store.partition import origin
from headrace.store.partition.base import Partition
from headrace.store.partition.entries import Batches, before
from headrace.store.partition.readable import Ends
from headrace.wire.batch import end_offset
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from headrace.broker.call import Call

IDS_SINCE = 13
READ_COMMITTED = 1
NOTHING = Batches([], 0)
UNKNOWN = Ends(-1, -1, 0)


class FetchedPart(NamedTuple):
    """What a pass found for one of the wanted: batches, or why there are none."""

    wanted: Wanted
    partition: Partition | None
    ends: Ends
    """Where the partition ended when the batches were taken."""
    taken: Batches
    error: ErrorCode = ErrorCode.NONE


class Fetch:
    """One request: its limits, and its partitions as they were found."""

    __slots__ = ("_incremental", "_min_bytes", "_session", "by_id", "call", "committed", "deadline", "max_bytes",
                 "partitions", "wanted")  # fmt: skip

    def __init__(self, call: Call, request: FetchRequest, session: Session | None, now_s: float) -> None:
        self.call = call
        self._session = session
        self._incremental = session is not None and request.session_epoch > 0
        self.by_id = call.version >= IDS_SINCE
        self.wanted = list(session.wanted.values() if session else wanted_by(request))
        self.max_bytes = min(max(request.max_bytes, 0), call.broker.options.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self.max_bytes)  # no answer has more, so none has to wait for it
        self.committed = request.isolation_level == READ_COMMITTED
        self.deadline = now_s + max(request.max_wait_ms, 0) / 1000
        self.partitions: dict[int, Partition] = {}
        """Those that were found, by their place among the wanted."""

    @property
    def room_bytes(self) -> int:
        """How much an answer may hold now: others take of it too."""
        return min(self.max_bytes, self.call.connection.answer_room.left_bytes)

    # -- a pass in memory ---------------------------------------------------------------------------------------

    def pass_in_memory(self) -> list[FetchedPart] | None:
        """What every partition has for the reader; None if for one of them the store has to be asked."""
        found: list[FetchedPart] = []
        most = left = self.room_bytes
        for place, wanted in enumerate(self.wanted):
            partition = self._in_memory(place, wanted)
            if partition is None:
                return None
            ends = partition.ends
            taken = self.read_cached(partition, ends, wanted, left, first=left == most)
            if taken is None:
                return None
            left -= taken.size_bytes
            found.append(FetchedPart(wanted, partition, ends, taken))
        self.call.broker.cache_hits += len(found)
        return found

    def _in_memory(self, place: int, wanted: Wanted) -> Partition | None:
        """A partition that this node leads and is sure of, and that has the offset."""
        call = self.call
        partition = self.partitions.get(place)
        if partition is None:
            topic = call.topic_in_memory(Operation.READ, wanted.topic, wanted.topic_id, by_id=self.by_id)
            partition = call.led_in_memory(topic, wanted.partition) if topic is not None else None
            if partition is None:
                return None
            self.partitions[place] = partition
        elif (
            partition.is_gone
            or not origin.leads(partition)
            or not call.may(Operation.READ, ResourceType.TOPIC, partition.topic.name)  # it may be less by now
        ):
            return None
        offset, epoch = wanted.fetch_offset, wanted.leader_epoch
        is_within = partition.log_start <= offset <= partition.end and (epoch < 0 or epoch == partition.leader_epoch)
        return partition if is_within and partition.is_confirmed and not partition.is_cold(offset) else None

    def read_cached(
        self, partition: Partition, ends: Ends, wanted: Wanted, left: int, *, first: bool
    ) -> Batches | None:
        """What a reader may have of what is in memory; None if Redis has to be read."""
        offset, stop = wanted.fetch_offset, self.stop(ends)
        if offset >= stop:
            return NOTHING
        taken = partition.read_cached(offset, min(left, wanted.max_bytes), first)
        return before(taken, stop) if taken is not None and stop < partition.end else taken

    def stop(self, ends: Ends) -> int:
        """Where a reader stops: at the high watermark, one of what is committed at the last stable offset."""
        return ends.stable_end if self.committed else ends.high_watermark

    # -- the answer ---------------------------------------------------------------------------------------------

    def is_enough(self, found: list[FetchedPart]) -> bool:
        """Whether it can be answered before its time is over."""
        return self.missing_bytes(found) <= 0 or not found or any(one.error for one in found)

    def missing_bytes(self, found: list[FetchedPart]) -> int:
        return self._min_bytes - sum(self._counted_bytes(one) for one in found)

    def _counted_bytes(self, one: FetchedPart) -> int:
        """A partition that has more than it may give counts as Kafka's, which fills its share with a part of a batch.

        A consumer that is behind and whose minimum is its maximum would wait at every batch that does not fit.
        """
        size_bytes, chunks = one.taken.size_bytes, one.taken.chunks
        if 0 < size_bytes < self._min_bytes and end_offset(chunks[-1]) < self.stop(one.ends):
            return max(size_bytes, min(one.wanted.max_bytes, self.max_bytes))
        return size_bytes

    def response(self, found: list[FetchedPart]) -> FetchResponse:
        """In a session, a partition without news is left out."""
        session = self._session
        response = FetchResponse(session_id=session.id if session else NO_SESSION)
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        has_errors = False
        for one in found:
            wanted = one.wanted
            data = self._data(one)
            if data is None:
                continue
            if session is not None and one.taken.size_bytes:
                session.served(wanted)
            key = (wanted.topic, wanted.topic_id)
            if key not in topics:
                topics[key] = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
                response.responses.append(topics[key])
            topics[key].partitions.append(data)
            has_errors = has_errors or data.error_code != 0
        if has_errors:
            self._name_leaders(response)
        return response

    def _name_leaders(self, response: FetchResponse) -> None:
        """Says who leads what cannot be read here, of topics that the caller may still read."""
        leaders = CurrentLeaders(self.call)
        for answer in response.responses:
            topic = self.call.topic_in_memory(Operation.READ, answer.topic, answer.topic_id, by_id=self.by_id)
            if topic is None:
                continue
            for data in answer.partitions:
                leaders.name_in_fetch(topic, data)
        response.node_endpoints = leaders.endpoints(NodeEndpoint)

    def _data(self, one: FetchedPart) -> PartitionData | None:
        """What is said of a partition; None if a session's client knows all of it."""
        wanted, partition, ends, taken, error = one
        if partition is None:
            wanted.tell(-1, -1)
            return PartitionData(
                partition_index=wanted.partition,
                error_code=error,
                high_watermark=-1,
                log_start_offset=-1,
                records=b"",
                aborted_transactions=None,
            )
        log_start = partition.log_start
        is_news = wanted.tell(ends.high_watermark, log_start)
        if self._incremental and not is_news and not taken.chunks:
            return None
        partition.bytes_out += taken.size_bytes
        # Of cold records too: where the lake has none left, hot ones follow.
        aborted = aborted_among(partition, wanted.fetch_offset, taken) if self.committed else None
        return PartitionData(
            partition_index=wanted.partition,
            high_watermark=ends.high_watermark,
            last_stable_offset=ends.stable_end,
            log_start_offset=log_start,
            aborted_transactions=aborted,
            records=taken.chunks,
        )

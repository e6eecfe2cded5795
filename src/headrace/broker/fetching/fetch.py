"""A Fetch in progress: the partitions it wants, their cached records, and whether those are enough.

Both roads make their passes with this. One in memory answers completely or not at all: whatever needs the store, and
every error, is left to the road that may wait (`handlers/fetch.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headrace.broker.fetching.sessions import NO_SESSION, Session, Wanted, wanted_by
from headrace.broker.topics.current_leaders import CurrentLeaders
from headrace.security.acls import Operation
from headrace.store.partition.base import Partition
from headrace.store.partition.entries import Batches, before
from headrace.store.partition.readable import Ends
from headrace.wire.batch import end_offset, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.fetch_answer import FetchedPartition, FetchedTopic
from headrace.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from headrace.broker.call import Call
    from headrace.store.cluster.catalogue import Topic
    from headrace.store.confidence import Outlook, View

IDS_SINCE = 13
_NOT_AVAILABLE_SINCE = 11
"""KIP-392: readers know that an offset may not be available yet. Older ones look for the leader again."""
READ_COMMITTED = 1
NOTHING = Batches([], 0)
UNKNOWN = Ends(-1, -1, 0)


class FetchedPart(msgspec.Struct, frozen=True):
    """The result of a pass for one partition: batches, or the error."""

    wanted: Wanted
    partition: Partition | None
    """None if it was refused."""
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
        """The cached records of every partition; None if one of them needs the store.

        All of it is of one moment. So what many partitions share is asked for once: the lease, the topic with the
        right to it and its policy, the server.
        """
        call, nodes = self.call, self.call.broker.store.nodes
        if not nodes.lease_is_valid:
            return None
        is_alone = nodes.is_alone
        found: list[FetchedPart] = []
        room = call.connection.answer_room
        most = left = max(0, min(self.max_bytes, room.limit_bytes - room.used_bytes))
        topic: Topic | None = None
        named: tuple[str, bytes] | None = None
        outlook: Outlook | None = None
        view: View | None = None
        for place, wanted in enumerate(self.wanted):
            if topic is None or (wanted.topic, wanted.topic_id) != named:
                named = wanted.topic, wanted.topic_id
                topic = call.topic_in_memory(Operation.READ, wanted.topic, wanted.topic_id, by_id=self.by_id)
                if topic is None:
                    return None
                policy = call.broker.store.policies.of(topic)
            partition = self.partitions.get(place)
            if partition is None:
                find = call.known_partition if is_alone else call.led_in_memory
                partition = find(topic, wanted.partition)
            elif partition.topic.id != topic.id or not (is_alone or nodes.leads(topic, wanted.partition)):
                return None
            if partition is None or partition.is_gone:
                return None
            self.partitions[place] = partition
            if partition.outlook is not outlook:
                outlook = partition.outlook
                view = outlook.view if partition.link.is_up else None
            if view is None or partition.confidence.seen != view:
                return None
            offset, epoch = wanted.fetch_offset, wanted.leader_epoch
            if (
                not partition.log_start <= offset <= partition.end
                or (epoch >= 0 and epoch != partition.epochs[-1].epoch)
                or (offset < partition.trimmed_to and partition.is_cold(offset))
            ):
                return None
            taken, ends = NOTHING, partition.ends_under(policy)
            if offset < (ends.stable_end if self.committed else ends.high_watermark):
                cached = self.read_cached(partition, ends, wanted, left, first=left == most)
                if cached is None:
                    return None
                taken = cached
                left -= taken.size_bytes
            elif policy.replicas and partition.copies.may_be_behind():
                return None
            found.append(FetchedPart(wanted, partition, ends, taken))
        call.broker.cache_hits += len(found)
        return found

    def read_cached(
        self, partition: Partition, ends: Ends, wanted: Wanted, left: int, *, first: bool
    ) -> Batches | None:
        """The readable part of the cached records; None if Redis has to be read."""
        offset, stop = wanted.fetch_offset, ends.stable_end if self.committed else ends.high_watermark
        if offset >= stop:
            return NOTHING
        taken = partition.read_cached(offset, min(left, wanted.max_bytes), first)
        return before(taken, stop) if taken is not None and stop < partition.end else taken

    def stop(self, ends: Ends) -> int:
        """The end for a reader: the high watermark, or with read_committed the last stable offset."""
        return ends.stable_end if self.committed else ends.high_watermark

    def not_available(self, wanted: Wanted, partition: Partition) -> FetchedPart:
        """For a reader at an end that is not known yet: after a take-over the one before may have told a later one."""
        is_known = self.call.version >= _NOT_AVAILABLE_SINCE
        error = ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return FetchedPart(wanted, partition, UNKNOWN, NOTHING, error)

    # -- the answer ---------------------------------------------------------------------------------------------

    def is_enough(self, found: list[FetchedPart]) -> bool:
        """Whether it can be answered before its time is over: an end that is not known yet is waited for."""
        return self.missing_bytes(found) <= 0 or not found or any(one.partition is None for one in found)

    def missing_bytes(self, found: list[FetchedPart]) -> int:
        least = missing_bytes = self._min_bytes
        for one in found:
            size_bytes = one.taken.size_bytes
            if size_bytes:
                missing_bytes -= size_bytes if size_bytes >= least else self._counted_bytes(one)
        return missing_bytes

    def _counted_bytes(self, one: FetchedPart) -> int:
        """A partition that has more than it may give counts as Kafka's, which fills its share with a part of a batch.

        A consumer that is behind and whose minimum is its maximum would wait at every batch that does not fit.
        """
        size_bytes, chunks = one.taken.size_bytes, one.taken.chunks
        if end_offset(chunks[-1]) < self.stop(one.ends):
            return max(size_bytes, min(one.wanted.max_bytes, self.max_bytes))
        return size_bytes

    def news(self, found: list[FetchedPart]) -> list[FetchedTopic]:
        """What an answer without errors says, to be packed by hand; the same as `response`."""
        session = self._session
        topics: dict[tuple[str, bytes], list[FetchedPartition]] = {}
        for one in found:
            wanted, partition, ends, taken = one.wanted, one.partition, one.ends, one.taken
            assert partition is not None
            log_start, high_watermark, size_bytes = partition.log_start, ends.high_watermark, taken.size_bytes
            if size_bytes:
                partition.bytes_out += size_bytes
                partition.answered(wanted.fetch_offset, wanted.max_bytes, taken)
                if session is not None:
                    session.served(wanted)
            elif self._is_known(one):
                continue
            wanted.told_high_watermark, wanted.told_log_start = high_watermark, log_start
            aborted: list[AbortedTransaction] | None = None
            if self.committed:
                is_any = partition.producers.aborted.rows
                aborted = aborted_among(partition, wanted.fetch_offset, taken) if is_any else []
            told = (wanted.partition, high_watermark, ends.stable_end, log_start, aborted, taken.chunks, size_bytes)
            topics.setdefault((wanted.topic, wanted.topic_id), []).append(told)
        return [(*name, parts) for name, parts in topics.items()]

    @property
    def session_id(self) -> int:
        return self._session.id if self._session is not None else NO_SESSION

    def response(self, found: list[FetchedPart]) -> FetchResponse:
        """In a session, a partition without news is left out."""
        session = self._session
        response = FetchResponse(session_id=self.session_id)
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        has_errors = False
        for one in found:
            wanted = one.wanted
            if self._is_known(one):
                continue
            data = self._data(one)
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

    def _is_known(self, one: FetchedPart) -> bool:
        """Whether a session's client knows all that there is to say of a partition."""
        wanted, partition = one.wanted, one.partition
        return (
            self._incremental
            and partition is not None
            and not one.error
            and not one.taken.chunks
            and wanted.told_high_watermark == one.ends.high_watermark
            and wanted.told_log_start == partition.log_start
        )

    def _data(self, one: FetchedPart) -> PartitionData:
        """What is said of a partition."""
        wanted, partition, ends, taken = one.wanted, one.partition, one.ends, one.taken
        if partition is None or one.error:
            wanted.tell(-1, -1)
            return PartitionData(
                partition_index=wanted.partition,
                error_code=one.error,
                high_watermark=-1,
                log_start_offset=-1,
                records=b"",
                aborted_transactions=None,
            )
        log_start = partition.log_start
        wanted.tell(ends.high_watermark, log_start)
        if taken.size_bytes:
            partition.bytes_out += taken.size_bytes
            partition.answered(wanted.fetch_offset, wanted.max_bytes, taken)
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


def aborted_among(partition: Partition, offset: int, taken: Batches) -> list[AbortedTransaction]:
    """The aborted transactions that have records among some batches, for clients that read committed ones alone.

    Aborted records are sent too, and the client skips them: batches are sent as stored, whoever reads them.
    """
    aborted = partition.producers.aborted
    if not taken.chunks or not len(aborted):
        return []
    # One whose marker lies before the first batch is left out: without the marker, which may be cold and is not sent
    # then, a client would skip what the same producer wrote next.
    start = max(offset, read_header(taken.chunks[0]).base_offset)
    end = end_offset(taken.chunks[-1])
    return [AbortedTransaction(row.producer_id, row.first) for row in aborted.between(start, end)]

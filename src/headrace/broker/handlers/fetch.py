"""Fetch: batches from the log, at once or as soon as there are enough.

A pass over the requested partitions takes what the tail cache has and reads the rest from Redis, within the request's
limits. If that is too little, the request waits for appends; an append through this node wakes it at once.

Records that have left Redis are read in the background (`store/cold/reads.py`): a pass takes those that have arrived,
and the others do not delay partitions that have records. The next fetch finds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from headrace.broker.call import Call
from headrace.broker.fetch_isolation import isolated
from headrace.broker.fetch_sessions import INITIAL_EPOCH, NO_SESSION, Session, Wanted, wanted_by
from headrace.broker.network.flow import Turns
from headrace.broker.topics.leader_epochs import check_leader_epoch
from headrace.security.acls import Operation, ResourceType
from headrace.security.quotas import CONSUMER
from headrace.store.cold.reads import Reading
from headrace.store.partition import origin
from headrace.store.partition.base import Partition
from headrace.store.partition.entries import Batches, before
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

_IDS_SINCE = 13
_READ_COMMITTED = 1
_SESSIONS_SINCE = 7
_COLD_AT_ONCE = 16
"""Partitions of one request whose cold records are read at a time; the others have their turn in later ones."""

Result = tuple[Wanted, PartitionData, int]
"""What was wanted, what it got, and how many bytes of records that is."""


async def handle(call: Call, request: FetchRequest) -> FetchResponse:
    session: Session | None = None
    must_pause = call.must_pause(CONSUMER)
    if must_pause and request.session_epoch <= INITIAL_EPOCH:
        return FetchResponse()
    if call.version >= _SESSIONS_SINCE:
        try:
            session = call.broker.fetch_sessions.open(call.caller, request)
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
    if must_pause:
        return FetchResponse(session_id=session.id if session else NO_SESSION)
    wanted = list(session.wanted.values() if session else wanted_by(request))
    fetch = _Fetch(call, request, wanted)
    results = await fetch.until_enough()
    return _response(session, request, results)


def _response(session: Session | None, request: FetchRequest, results: list[Result]) -> FetchResponse:
    incremental = session is not None and request.session_epoch > 0
    response = FetchResponse(session_id=session.id if session else NO_SESSION)
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for wanted, data, size in results:
        news = wanted.is_news(data)
        if incremental and not news:
            continue
        if session is not None and size:
            session.served(wanted)
        key = (wanted.topic, wanted.topic_id)
        if key not in topics:
            topics[key] = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
            response.responses.append(topics[key])
        topics[key].partitions.append(data)
    return response


class _Fetch:
    """One request on its way: passes over its partitions until there is enough, or the time is over."""

    def __init__(self, call: Call, request: FetchRequest, wanted: list[Wanted]) -> None:
        self._call = call
        self._broker = call.broker
        self._room = call.connection.answer_room
        self._wanted = wanted
        self._by_id = call.version >= _IDS_SINCE
        self._min_bytes = request.min_bytes
        self._max_bytes = min(max(request.max_bytes, 0), call.broker.options.fetch_max_bytes)
        self._committed = request.isolation_level == _READ_COMMITTED
        self._deadline = asyncio.get_running_loop().time() + max(request.max_wait_ms, 0) / 1000
        self._partitions: dict[int, Partition] = {}
        self._seen_bytes: dict[Partition, int] = {}
        """How much had been appended to each partition when this pass looked at it."""
        self._seen_stable: dict[Partition, int] = {}
        """How far each was stable then."""
        self._readings: list[Reading] = []
        """Cold records that this pass found to be under way."""

    async def until_enough(self) -> list[Result]:
        while True:
            results = await self._pass()
            size = sum(result[2] for result in results)
            failed = any(data.error_code for _, data, _ in results)
            remaining_s = self._deadline - asyncio.get_running_loop().time()
            if size >= self._min_bytes or failed or remaining_s <= 0 or not self._wanted:
                return results
            await self._wait(self._min_bytes - size, remaining_s)

    async def _pass(self) -> list[Result]:
        """Reads each partition once: from memory where that is possible, the rest from Redis side by side."""
        results: list[Result | None] = []
        uncached: list[int] = []
        turns = Turns()
        refusals = await self._open_all(turns)
        most = left = min(self._max_bytes, self._room.left_bytes)  # others may have taken of it meanwhile
        self._seen_bytes.clear()
        self._seen_stable.clear()
        self._readings.clear()
        for place, wanted in enumerate(self._wanted):
            if turns.is_over():
                await asyncio.sleep(0)
            try:
                if place in refusals:
                    raise refusals[place]
                partition = await self._check(place, wanted)
                limit = min(left, wanted.max_bytes)
                taken: Batches | None
                if partition.is_cold(wanted.fetch_offset):
                    taken = self._take_cold(partition, wanted, limit, left == most)
                else:
                    self._seen_bytes.setdefault(partition, partition.readable_bytes)
                    self._seen_stable.setdefault(partition, partition.stable_end)
                    taken = self._read_cached(partition, wanted, limit, left == most)
            except KafkaError as error:
                results.append((wanted, _refused(wanted, error.code), 0))
                continue
            if taken is None:
                self._broker.cache_misses += 1
                uncached.append(place)
                results.append(None)
            else:
                self._broker.cache_hits += 1
                left -= taken.size_bytes
                results.append(self._result(wanted, partition, taken))
        if uncached:
            await self._read_uncached(uncached, left, left == most, results)
        return [result for result in results if result is not None]

    def _take_cold(self, partition: Partition, wanted: Wanted, limit: int, first: bool) -> Batches:
        """What is there of cold records; what is not is under way after this."""
        cold_reads = self._broker.store.cold_reads
        reading = cold_reads.find(partition, wanted.fetch_offset)
        if reading is None and len(self._readings) < _COLD_AT_ONCE:
            reading = cold_reads.open(partition, wanted.fetch_offset, wanted.max_bytes)
        if reading is not None and reading.is_ready:
            return cold_reads.take(partition, reading, limit, first)
        if reading is not None:
            self._readings.append(reading)
        return Batches([], 0)

    async def _read_uncached(self, places: list[int], left: int, first: bool, results: list[Result | None]) -> None:
        """Reads as many as there is room for; each may bring a whole entry, however little is wanted of it."""
        entry_bytes = self._broker.store.options.append_entry_bytes
        reads = []
        held_bytes = 0
        for place in places:
            wanted, partition = self._wanted[place], self._partitions[place]
            if left <= 0 and not first:
                results[place] = self._result(wanted, partition, Batches([], 0))
                continue
            reads.append((place, partition.read(wanted.fetch_offset, min(left, wanted.max_bytes), first)))
            cost = max(entry_bytes, min(left, wanted.max_bytes))
            held_bytes += cost
            left -= cost
            first = False
        self._room.take(held_bytes)
        try:
            await self._gather(reads, results)
        finally:
            self._room.give(held_bytes)

    async def _gather(
        self, reads: list[tuple[int, Coroutine[None, None, Batches]]], results: list[Result | None]
    ) -> None:
        taken = await asyncio.gather(*(read for _, read in reads), return_exceptions=True)
        for (place, _), found in zip(reads, taken, strict=True):
            wanted, partition = self._wanted[place], self._partitions[place]
            if isinstance(found, KafkaError):
                results[place] = (wanted, _refused(wanted, found.code), 0)
            elif isinstance(found, BaseException):
                raise found
            else:
                results[place] = self._result(wanted, partition, found)

    def _read_cached(self, partition: Partition, wanted: Wanted, limit: int, first: bool) -> Batches | None:
        if wanted.fetch_offset >= (partition.stable_end if self._committed else partition.high_watermark):
            return Batches([], 0)
        return partition.read_cached(wanted.fetch_offset, limit, first)

    def _result(self, wanted: Wanted, partition: Partition, taken: Batches) -> Result:
        """What a partition answers: nothing beyond the high watermark, to a reader of what is committed nothing beyond
        the last stable offset."""
        aborted: list[AbortedTransaction] | None = None
        high_watermark = partition.high_watermark
        if self._committed:
            taken, aborted = isolated(partition, wanted.fetch_offset, taken)
        elif high_watermark < partition.end:
            taken = before(taken, high_watermark)
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=partition.stable_end,
            log_start_offset=partition.log_start,
            aborted_transactions=aborted,
            records=taken.chunks,
        )
        partition.bytes_out += taken.size_bytes
        return wanted, data, taken.size_bytes

    async def _open_all(self, turns: Turns) -> dict[int, KafkaError]:
        """Finds the partitions; those of which the store has to be asked are asked for side by side."""
        refusals: dict[int, KafkaError] = {}
        stale: dict[int, Partition] = {}
        for place, wanted in enumerate(self._wanted):
            if turns.is_over():
                await asyncio.sleep(0)
            try:
                partition = self._partitions.get(place)
                if partition is not None:  # it waited: what it may read can be less by now
                    self._call.check(Operation.READ, ResourceType.TOPIC, partition.topic.name)
                if partition is None or partition.is_gone or not origin.leads(partition):
                    topic = await self._call.topic(Operation.READ, wanted.topic, wanted.topic_id, by_id=self._by_id)
                    partition = self._partitions[place] = await self._call.led_partition(topic, wanted.partition)
                if partition.is_stale or wanted.fetch_offset > partition.end:
                    stale[place] = partition
            except KafkaError as error:
                refusals[place] = error
        looks = (one.confirm_up_to(self._wanted[place].fetch_offset) for place, one in stale.items())
        for place, outcome in zip(stale, await asyncio.gather(*looks, return_exceptions=True), strict=True):
            if isinstance(outcome, KafkaError):
                refusals[place] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        return refusals

    async def _check(self, place: int, wanted: Wanted) -> Partition:
        """The partition, sure of its end, and an offset that lies within it."""
        partition = self._partitions[place]
        if not partition.is_confirmed:
            await partition.confirm()
        check_leader_epoch(partition, wanted.leader_epoch)
        partition.check_offset(wanted.fetch_offset)
        return partition

    async def _wait(self, missing_bytes: int, timeout_s: float) -> None:
        """Returns when so many bytes were appended since the pass looked, cold ones came, or the time is over."""
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        seen = self._seen_bytes

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        def look(partition: Partition) -> None:
            nonlocal missing_bytes
            if self._committed and partition.stable_end == self._seen_stable.get(partition):
                size_bytes = seen[partition]  # what was appended cannot be read yet
            else:
                size_bytes = partition.readable_bytes
                self._seen_stable[partition] = partition.stable_end
            missing_bytes -= size_bytes - seen[partition]
            seen[partition] = size_bytes
            if partition.is_gone or not partition.is_confirmed or missing_bytes <= 0:
                wake()

        def time_is_over() -> None:
            wake()
            if len(self._broker.store.nodes.live) > 1:
                # An announcement may have been lost: the last pass asks the store itself.
                for partition in seen:
                    partition.doubt()

        timer = loop.call_later(timeout_s, time_is_over)
        for partition in seen:
            partition.watch(look)
            look(partition)
        for reading in self._readings:
            reading.watch(wake)
            if reading.is_ready:
                wake()
        try:
            await woken
        finally:
            timer.cancel()
            for partition in seen:
                partition.unwatch(look)
            for reading in self._readings:
                reading.unwatch(wake)


def _refused(wanted: Wanted, code: ErrorCode) -> PartitionData:
    if code == ErrorCode.REQUEST_TIMED_OUT:
        # Reading has no outcome that could be unknown, and consumers do not expect to be told so: Java's would throw.
        code = ErrorCode.KAFKA_STORAGE_ERROR
    return PartitionData(
        partition_index=wanted.partition,
        error_code=code,
        high_watermark=-1,
        log_start_offset=-1,
        records=b"",
        aborted_transactions=None,
    )

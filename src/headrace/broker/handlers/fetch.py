"""Fetch: batches from the log, at once or as soon as there are enough.

A pass over the requested partitions takes what the tail cache has and reads the rest from Redis, within the request's
limits. If that is too little, the request waits for appends; an append through this node wakes it at once.

Records that have left Redis are read in the background (`store/cold/reads.py`): a pass takes those that have arrived,
and the others do not delay partitions that have records. The next fetch finds them.

Nearly all requests are answered from memory by the straight road (`fetching/straight.py`); this is for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from headrace.broker.call import Call
from headrace.broker.fetching.fetch import NOTHING, UNKNOWN, Fetch, FetchedPart
from headrace.broker.fetching.sessions import INITIAL_EPOCH, NO_SESSION, Session, Wanted
from headrace.broker.fetching.waiting import LongPoll, SeenEnds
from headrace.broker.network.flow import Turns
from headrace.security.acls import Operation, ResourceType
from headrace.security.quotas import CONSUMER
from headrace.store.cold.reads import Reading, no_records
from headrace.store.partition import origin
from headrace.store.partition.base import Partition
from headrace.store.partition.entries import Batches, before
from headrace.store.partition.readable import Ends
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.fetch import FetchRequest, FetchResponse

_SESSIONS_SINCE = 7
_COLD_AT_ONCE = 16
"""Partitions of one request whose cold records are read at a time; the others have their turn in later ones."""

_OF_WRITES = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
"""A log may have to be restored before it is read. Consumers do not expect to be told how that fails: Java's throw, or
tell their user, as librdkafka's do."""

Results = list[FetchedPart | None]
"""By place among the wanted; None for what is being read."""
_Read = tuple[int, Ends, Coroutine[None, None, Batches]]
"""Place, where the partition ended, and the read."""


async def handle(call: Call, request: FetchRequest) -> FetchResponse:
    must_pause = call.must_pause(CONSUMER)
    if must_pause and request.session_epoch <= INITIAL_EPOCH:
        return FetchResponse()
    try:
        session = open_session(call, request)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    if must_pause:
        return FetchResponse(session_id=session.id if session else NO_SESSION)
    return await go_on(Fetch(call, request, session, asyncio.get_running_loop().time()))


def open_session(call: Call, request: FetchRequest) -> Session | None:
    """The session that a request continues or begins, if it has one; a KafkaError if it names a wrong one."""
    return call.broker.fetch_sessions.open(call.caller, request) if call.version >= _SESSIONS_SINCE else None


async def go_on(fetch: Fetch) -> FetchResponse:
    """Answers a request that was begun here or on the straight road."""
    return fetch.response(await _Passes(fetch).until_enough())


class _Passes:
    """Passes over a request's partitions until there is enough, or its time is over."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._call = fetch.call
        self._broker = fetch.call.broker
        self._room = fetch.call.connection.answer_room
        self._wanted = fetch.wanted
        self._partitions = fetch.partitions
        self._seen = SeenEnds()
        self._readings: list[Reading] = []
        """Cold records that this pass found to be under way."""
        self._is_cold = False
        """Whether a partition was read at a cold offset."""

    async def until_enough(self) -> list[FetchedPart]:
        fetch, loop = self._fetch, asyncio.get_running_loop()
        while True:
            found = await self._pass()
            if fetch.is_enough(found) or fetch.deadline <= loop.time():
                self._broker.store.cold_reads.fetches += self._is_cold
                return found
            await self._wait(fetch.missing_bytes(found))

    async def _pass(self) -> list[FetchedPart]:
        """Reads each partition once: from memory where that is possible, the rest from Redis side by side."""
        results: Results = []
        uncached: dict[int, Ends] = {}
        turns = Turns()
        refusals = await self._open_all(turns)
        most = left = self._fetch.room_bytes
        self._seen = SeenEnds()
        self._readings.clear()
        for place, wanted in enumerate(self._wanted):
            if turns.is_over():
                await asyncio.sleep(0)
            try:
                if place in refusals:
                    raise refusals[place]
                partition = await self._check(place, wanted)
                ends, taken = partition.ends, None
                if wanted.fetch_offset >= self._fetch.stop(ends) and partition.copies.may_be_behind():
                    self._seen.note(partition, ends)
                    results.append(self._fetch.not_available(wanted, partition))
                    continue
                if partition.is_cold(wanted.fetch_offset):
                    taken = self._take_cold(partition, wanted, min(left, wanted.max_bytes), left == most)
                else:
                    self._seen.note(partition, ends)
                    taken = self._fetch.read_cached(partition, ends, wanted, left, first=left == most)
            except KafkaError as error:
                results.append(_refused(wanted, error.code))
                continue
            if taken is None:
                self._broker.cache_misses += 1
                uncached[place] = ends
                results.append(None)
            else:
                self._broker.cache_hits += 1
                left -= taken.size_bytes
                results.append(FetchedPart(wanted, partition, ends, taken))
        if uncached:
            await self._read_uncached(uncached, left, left == most, results)
        return [result for result in results if result is not None]

    def _take_cold(self, partition: Partition, wanted: Wanted, limit: int, first: bool) -> Batches:
        """The cold records that have arrived; the rest is requested."""
        cold_reads, self._is_cold = self._broker.store.cold_reads, True
        reading = cold_reads.find(partition, wanted.fetch_offset)
        if reading is None and len(self._readings) < _COLD_AT_ONCE:
            reading = cold_reads.open(partition, wanted.fetch_offset, wanted.max_bytes)
        if reading is not None and reading.is_ready:
            taken = cold_reads.take(partition, reading, limit, first)
            if not taken.chunks:
                return NOTHING  # no room: they wait for the next request
            stop = self._fetch.stop(partition.ends)
            readable = before(taken, stop)
            return readable if readable.chunks else no_records(partition, wanted.fetch_offset, stop)
        if reading is not None:
            self._readings.append(reading)
        return NOTHING

    async def _read_uncached(self, places: dict[int, Ends], left: int, first: bool, results: Results) -> None:
        """Reads as many as there is room for; each may bring a whole entry, however little is wanted of it.

        They end where they did when the pass looked: another server may answer by the time that they are read.
        """
        entry_bytes = self._broker.store.options.append_entry_bytes
        reads = []
        held_bytes = 0
        for place, ends in places.items():
            wanted, partition = self._wanted[place], self._partitions[place]
            if left <= 0 and not first:
                results[place] = FetchedPart(wanted, partition, ends, NOTHING)
                continue
            reads.append((place, ends, partition.read(wanted.fetch_offset, min(left, wanted.max_bytes), first)))
            cost = max(entry_bytes, min(left, wanted.max_bytes))
            held_bytes += cost
            left -= cost
            first = False
        self._room.take(held_bytes)
        try:
            await self._gather(reads, results)
        finally:
            self._room.give(held_bytes)

    async def _gather(self, reads: list[_Read], results: Results) -> None:
        taken = await asyncio.gather(*(read for _, _, read in reads), return_exceptions=True)
        for (place, ends, _), found in zip(reads, taken, strict=True):
            wanted, partition = self._wanted[place], self._partitions[place]
            if isinstance(found, KafkaError):
                results[place] = _refused(wanted, found.code)
            elif isinstance(found, BaseException):
                raise found
            else:
                results[place] = FetchedPart(wanted, partition, ends, before(found, self._fetch.stop(ends)))

    async def _open_all(self, turns: Turns) -> dict[int, KafkaError]:
        """Finds the partitions; those of which the store has to be asked are asked for side by side."""
        refusals: dict[int, KafkaError] = {}
        stale: dict[int, Partition] = {}
        by_id = self._fetch.by_id
        for place, wanted in enumerate(self._wanted):
            if turns.is_over():
                await asyncio.sleep(0)
            try:
                partition = self._partitions.get(place)
                if partition is not None:  # it waited: what it may read can be less by now
                    self._call.check(Operation.READ, ResourceType.TOPIC, partition.topic.name)
                if partition is None or partition.is_gone or not origin.leads(partition):
                    topic = await self._call.topic(Operation.READ, wanted.topic, wanted.topic_id, by_id=by_id)
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
        partition.check_leader_epoch(wanted.leader_epoch)
        partition.check_offset(wanted.fetch_offset)
        return partition

    async def _wait(self, missing_bytes: int) -> None:
        """Returns when so many bytes were appended since the pass looked, cold ones came, or the time is over."""
        woken = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        waiting = LongPoll(self._fetch, self._seen, missing_bytes, wake, self._readings)
        waiting.begin()
        try:
            await woken
        finally:
            waiting.end()


def _refused(wanted: Wanted, code: ErrorCode) -> FetchedPart:
    if code in _OF_WRITES:
        code = ErrorCode.KAFKA_STORAGE_ERROR
    return FetchedPart(wanted, None, UNKNOWN, NOTHING, code)

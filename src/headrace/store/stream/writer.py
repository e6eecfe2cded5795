"""Appends to a partition in the format `stream`: one script call, all of its batches or none.

The server chooses the ids while it appends, after anything Redis code wrote meanwhile, unless an exception to the
mapping of ids lies in between; then it refuses, and the new entries are read first. A call carries the writer's name
and a rising number, which are stored in the partition's meta with the ids of the batches. An append with unknown
outcome is found by them, and a late copy finds its own number or a later one and does nothing. So a call is only ever
resent unchanged: batches return to the queue only after a producer's state has changed, because then no copy of the
call can succeed any more.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.store.partition.appending import Appended, Appender, Pending
from headrace.store.partition.entries import LAST_SEQUENCE
from headrace.store.redis.errors import RedisError
from headrace.store.redis.link import Argument
from headrace.store.redis.wire import Then
from headrace.store.stream.ids import NATURAL_LIMIT, START, FreeIds, parse_id
from headrace.store.stream.records import pack_batch
from headrace.wire.batch import BatchHeader
from headrace.wire.batch_errors import BatchTooLarge

if TYPE_CHECKING:
    from headrace.store.stream.partition import StreamPartition

MOST_RECORDS = 65_536
MOST_BYTES = 16 << 20
"""Maximum decompressed size of a batch: it is one script, and Redis does nothing else meanwhile."""
_EXACT = 1 << 53
"""Lua's numbers are exact up to here."""
_DONE, _DONE_BEFORE = 1, 2


class _Flight(NamedTuple):
    """The one call in flight, or with an unknown outcome."""

    pendings: list[Pending]
    number: int
    payload: bytes
    heads: list[bytes]
    known: list[bytes]
    """Producers and the states that they were checked against."""


class StreamWriter(Appender[_Flight]):
    """The writer of one partition."""

    _partition: StreamPartition

    def __init__(self, partition: StreamPartition) -> None:
        super().__init__(partition)
        self._needs_source = False
        self._sent_behind = START
        self._was_refused = False

    @property
    def field(self) -> str:
        """Where this node's token is in the partition's meta."""
        return f"w:{self._partition.nodes.me.id}"

    async def pack(self, batch: memoryview, header: BatchHeader, limit_bytes: int) -> bytes:
        """A batch's records as entries; a BatchError if they are not what its header says, or too many for one script.

        It is made before the batch has its place in the queue, so what comes later from the same client has to wait.
        """
        if header.count > MOST_RECORDS:
            raise BatchTooLarge(f"The batch has {header.count} records; a stream accepts {MOST_RECORDS} at once.")
        with_time, unpacking = not self._partition.policy.log_append_time, self._partition.context.unpacking
        async with unpacking.records(batch, header, min(limit_bytes, MOST_BYTES)) as data:
            return await unpacking.go_over(pack_batch(data, header, with_time=with_time))

    def _flight_of(self, taken: list[Pending]) -> _Flight:
        headers = [pending.header for pending in taken]
        heads, known = self._partition.producers.heads(headers)
        batches = [(one.header, head, one.packed) for one, head in zip(taken, heads, strict=True)]
        return _Flight(taken, next(self._numbers), pack_batches(batches), heads, known)

    def _transmit(self, flight: _Flight, then: Then) -> None:
        partition = self._partition
        ids, keys = partition.ids, partition.keys
        free = ids.next_free(partition.floor)
        if free.is_natural and free.first.ms < _EXACT:
            place: tuple[Argument, ...] = (free.first.ms, free.first.sequence, 1 << ids.bits, int(ids.is_exceptional))
        else:
            count = sum(pending.header.count for pending in flight.pendings)
            if (explicit := _explicit(ids.bits, free, count)) is None:
                error = RedisError(f"ERR no id is left after {ids.last}, which Redis code chose")
                asyncio.get_running_loop().call_soon(then, None, error)
                return
            place = (0, explicit, 0, 1)
        self._sent_behind = ids.last
        limit_ms = min(NATURAL_LIMIT >> ids.bits, _EXACT)
        source, self._needs_source = self._needs_source, False
        partition.scripts.send(
            "append_records",
            [keys.log, keys.meta, keys.producers],
            [flight.payload, str(ids.last), *place, limit_ms, self.field, self._name, flight.number, *flight.known],
            source,
        ).add_done_callback(partial(_tell, then))

    def _refused(self, error: RedisError) -> None:
        if error.kind != "NOSCRIPT":
            super()._refused(error)
            return
        self._needs_source = True
        if self._flight is not None and self._sent_on == self._partition.link.timeline:
            self._send(self._flight)
        else:  # another server, whose stream has to be looked at first
            self._partition.doubt()
            self._recover()

    def _took(self, flight: _Flight, reply: Any) -> bool:
        producers = self._partition.producers
        if reply[0] == _DONE:
            _, between, version, *first_ids = reply
            is_next = not between and self._sent_behind == self._partition.ids.last
            self._count_producers(flight, first_ids)
            if version:
                producers.count_append(version)
            self._succeed(flight, first_ids, is_next)
            return True
        producers.outdate()
        if reply[0] == _DONE_BEFORE:
            self._succeed(flight, reply[1].split(b" "), is_next=False)
            return True
        self._was_refused = True
        return False

    def seen(self, done: bytes | None) -> None:
        """Told of this node's token in the store, after the producers were: the one in flight then is answered."""
        flight = self._flight
        if done is not None and flight is not None:
            name, number, *first_ids = done.split(b" ")
            if (name.decode(), int(number)) == (self._name, flight.number):
                self._succeed(flight, first_ids, is_next=False)

    def _count_producers(self, flight: _Flight, first_ids: list[bytes]) -> None:
        partition = self._partition
        for pending, head, raw_id in zip(flight.pendings, flight.heads, first_ids, strict=True):
            partition.producers.appended(pending.header, head, raw_id, partition.ids)

    def _succeed(self, flight: _Flight, first_ids: list[bytes], is_next: bool) -> None:
        """The batches are in the stream. If they are not known to come next in it, they are read like anybody's."""
        self._flight = None
        partition = self._partition
        append_time = partition.policy.log_append_time
        for pending, raw_id in zip(flight.pendings, first_ids, strict=True):
            first = parse_id(raw_id)
            base = partition.ids.offset_of(first)
            if is_next:
                partition.count_own(pending, first, base)
            partition.records_in += pending.header.count
            partition.bytes_in += pending.size_bytes
            pending.resolve(Appended(base, append_time_ms=first.ms if append_time else None))
        if not is_next:
            partition.doubt()
        partition.tell_watchers()

    def _prepare_resend(self, flight: _Flight) -> _Flight | None:
        states = self._partition.producers.states
        for at in range(0, len(flight.known), 2):
            if states.get(int(flight.known[at]), b"") != flight.known[at + 1]:
                return None
        return flight

    async def _settle(self) -> None:
        refused, self._was_refused = self._was_refused, False
        if refused:
            await self._partition.go_behind_last_id()


def pack_batches(batches: list[tuple[BatchHeader, bytes, bytes]]) -> bytes:
    """Batches as the script takes them (MessagePack): header, head of the producer's state, packed entries of each."""
    parts = [b"\xdd", len(batches).to_bytes(4, "big")]
    for header, head, packed in batches:
        parts += (b"\xdd", (2 + header.count).to_bytes(4, "big"))
        for text in (b"%d" % header.producer_id if head else b"", head):
            parts += (b"\xdb", len(text).to_bytes(4, "big"), text)
        parts.append(packed)
    return b"".join(parts)


def _explicit(bits: int, free: FreeIds, count: int) -> str | None:
    """All ids one by one, where they are out of the ordinary: exceptional, or beyond the exact numbers of a script."""
    if not free.is_natural:
        first, end = free.first, free.first.sequence + count
        if end > LAST_SEQUENCE:
            return None
        return " ".join(f"{first.ms}-{sequence}" for sequence in range(first.sequence, end))
    offsets = range(free.offset, free.offset + count)
    return " ".join(f"{offset >> bits}-{offset & (1 << bits) - 1}" for offset in offsets)


def _tell(then: Then, reply: asyncio.Future[Any]) -> None:
    error = reply.exception()
    if error is None:
        then(reply.result(), None)
    elif isinstance(error, Exception):
        then(None, error)

"""Appends to a partition of the format `log`: optimistic, without a lock or a script (docs/decisions/003).

XADD rejects an id that is not above the last one, so exactly one of two writers wins. That holds with one append in
flight.

An append with unknown outcome is looked up by its token. If it is not there it is sent again, the same bytes under the
same id: should the first copy still arrive, one of the two is rejected. A rejected entry may therefore be ours too, and
is looked up in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headrace.cold_log import ColdAway
from headrace.store.log import recovery
from headrace.store.log.entries import xadd
from headrace.store.partition.appending import Appended, Appender, Pending
from headrace.store.partition.entries import Entry
from headrace.store.redis.errors import StoreAway
from headrace.store.redis.wire import Then
from headrace.wire.batch import CONTROL, stamp
from headrace.wire.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition

_LAKE_END_WAIT_S = 0.25
"""Between two looks for batches whose time is over."""


class _Flight(msgspec.Struct, frozen=True):
    """The one entry in flight, or with an unknown outcome."""

    entry: Entry
    pendings: list[Pending]


class LogWriter(Appender[_Flight]):
    """The writer of one partition."""

    _partition: LogPartition

    def __init__(self, partition: LogPartition) -> None:
        super().__init__(partition)
        self._token = self._name.encode()

    def _flight_of(self, taken: list[Pending]) -> _Flight:
        """One entry, its batches stamped with their offsets."""
        append_time = NO_TIMESTAMP
        for pending in taken:
            if pending.header.max_timestamp < 0:
                append_time = self._partition.now_ms()
                break
        token = b"%b%x" % (self._token, next(self._numbers))
        return self._stamped(self._partition.end, taken, token, append_time)

    def _stamped(self, base: int, pendings: list[Pending], token: bytes, append_time: int) -> _Flight:
        offset, epoch = base, self._partition.epochs[-1].epoch
        for pending in pendings:
            stamp(pending.batch, 0, offset, epoch)
            offset += pending.header.count
        data = bytes(pendings[0].batch) if len(pendings) == 1 else b"".join([p.batch for p in pendings])
        return _Flight(Entry(base, offset, data, token, append_time), pendings)

    def _transmit(self, flight: _Flight, then: Then) -> None:
        self._partition.link.send_then(xadd(self._partition.keys.log, flight.entry), then)

    def _took(self, flight: _Flight, reply: Any) -> bool:
        if reply is None:
            return False  # there is no such stream
        self._succeed(flight)
        return True

    def _succeed(self, flight: _Flight) -> None:
        self._flight = None
        partition, entry = self._partition, flight.entry
        base, newest = entry.base, NO_TIMESTAMP
        for pending in flight.pendings:
            header = pending.header
            if header.producer_id >= 0:
                if header.attributes & CONTROL:
                    partition.producers.end(header, pending.marker, base, partition.now_ms())
                else:
                    partition.producers.add(header, base, partition.now_ms())
            if header.max_timestamp > newest:
                newest = header.max_timestamp
            base += header.count
        partition.count(entry, newest)
        partition.records_in += base - entry.base
        partition.bytes_in += len(entry.data)
        partition.tell_watchers()  # before the producers: who waits for records waits longer
        partition.context.announce(partition)
        _resolve(flight)

    def seen(self, entry: Entry) -> bool:
        """Told of an entry met while reading: whether it is the one in flight, which then is answered."""
        flight = self._flight
        if flight is None or flight.entry.base != entry.base or flight.entry.token != entry.token:
            return False
        self._succeed(flight)
        return True

    async def look_up(self) -> None:
        """Answers the append in flight if it is in the log, all of which was read anew and counted."""
        flight = self._flight
        if flight is not None and await recovery.has_entry(self._partition, flight.entry) and flight is self._flight:
            self._flight = None
            _resolve(flight)

    async def _settle(self) -> None:
        """The lake may be ahead of Redis; or an id was refused that no entry has: entries were removed by hand."""
        try:
            await self._partition.lake_end.wait(_LAKE_END_WAIT_S)
        except ColdAway as error:
            raise StoreAway(str(error)) from error
        flight, refused, self._is_id_refused = self._flight, self._is_id_refused, False
        if refused and flight is not None and flight.entry.base == self._partition.end:
            await recovery.go_behind_last_id(self._partition)

    def _prepare_resend(self, flight: _Flight) -> _Flight | None:
        """The entry with the leader epoch of now: the same bytes, unless the store lost records meanwhile."""
        if self._partition.end != flight.entry.base:
            return None
        return self._stamped(flight.entry.base, flight.pendings, flight.entry.token, flight.entry.append_time)


def _resolve(flight: _Flight) -> None:
    base = flight.entry.base
    for pending in flight.pendings:
        pending.resolve(Appended(base))
        base += pending.header.count

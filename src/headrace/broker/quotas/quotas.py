"""Usage of this node's clients, and their throttle times.

Each node counts for itself, as in Kafka. Without any quota nothing is counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.quotas import (
    CONNECTIONS,
    CONSUMER,
    MUTATIONS,
    PRODUCER,
    REQUESTS,
    Entity,
    QuotaBound,
    QuotaTable,
    Rate,
    TokenBucket,
)
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.security.caller import Caller
    from headrace.store.store import Store

_LONGEST_REQUEST_PAUSE_MS = 1_000
"""Longest pause for request_percentage, as in Kafka: one sample."""
_COUNTED_MAX = 20_000
"""Rates of users, client ids and addresses; the one that was used longest ago makes room."""
_WHOLE_ORGANISATION = ("", "")

_decode_entity = msgspec.json.Decoder(Entity).decode
_decode_values = msgspec.json.Decoder(dict[str, float]).decode

Counted = tuple[str, str, str, str]
"""Organisation, key, user and client id."""
Values = dict[str, float]
T = TypeVar("T", Rate, TokenBucket)


def field_of_entity(entity: Entity) -> str:
    """The field name of an entity's quotas."""
    return msgspec.json.encode(entity).decode()


class Quotas:
    """One node's."""

    def __init__(self, store: Store, now_ms: Callable[[], float]) -> None:
        self.now_ms = now_ms
        self.is_any = False
        """Whether there is anything to count for."""
        self._tenants = store.tenants
        self._tenants.on_rates = self._look_for_any
        self._rows = store.quotas
        self._tables: dict[str, QuotaTable] = {}
        self._rates: OrderedDict[Counted, Rate] = OrderedDict()
        self._buckets: OrderedDict[Counted, TokenBucket] = OrderedDict()
        self._rows.on_change = self._changed
        self._changed(self._rows.rows)

    def _look_for_any(self) -> None:
        self.is_any = self._tenants.has_rates or any(map(len, self._tables.values()))

    def table(self, organisation: str) -> QuotaTable:
        return self._tables.setdefault(organisation, QuotaTable())

    def _changed(self, changed: Mapping[str, bytes | None]) -> None:
        for field, row in changed.items():
            organisation, _, entity = field.partition("/")
            values = {} if row is None else _decode_values(row)
            self.table(organisation).put(_decode_entity(entity), values)
        self._look_for_any()

    async def change(
        self, organisation: str, entity: Entity, new: Callable[[Mapping[str, float]], Values], *, validate_only: bool
    ) -> Values | None:
        """Replaces an entity's quotas by the result of `new`; retries if another node was faster.

        None if they stay as they are.
        """
        table = self.table(organisation)
        while True:
            present = table.get(entity)
            values = new(present)
            if validate_only or values == present:
                return None
            row = msgspec.json.encode(values) if values else None
            if await self._rows.replace(organisation, field_of_entity(entity), row):
                return values

    async def refresh(self) -> None:
        """Applies other nodes' latest changes."""
        await self._rows.refresh()

    # -- counting -----------------------------------------------------------------------------------------------

    def charge(self, key: str, caller: Caller, client_id: str, amount: float) -> int:
        """Counts usage; returns the milliseconds to pause."""
        now_ms, pause_ms = self.now_ms(), 0
        for bound in self._bounds(key, caller, client_id):
            rate = _kept(self._rates, (caller.organisation, key, *bound.shared_by), Rate)
            rate.record(amount, now_ms)
            pause_ms = max(pause_ms, rate.throttle_ms(bound.rate, now_ms))
        return min(pause_ms, _LONGEST_REQUEST_PAUSE_MS) if key == REQUESTS else pause_ms

    def _bounds(self, key: str, caller: Caller, client_id: str) -> Iterator[QuotaBound]:
        """The quotas of a caller: its own, and that of its organisation."""
        bound = self.table(caller.organisation).find(key, caller.principal.name, client_id)
        if bound is not None:
            yield bound
        if key in (PRODUCER, CONSUMER):
            limit = getattr(self._tenants.limits(caller.organisation), key)
            if limit is not None:
                yield QuotaBound(max(limit, 1), _WHOLE_ORGANISATION)

    def pause_ms(self, key: str, caller: Caller, client_id: str) -> int:
        """The remaining pause for earlier usage."""
        pause_ms = 0
        for bound in self._bounds(key, caller, client_id):
            rate = self._rates.get((caller.organisation, key, *bound.shared_by))
            if rate is not None:
                pause_ms = max(pause_ms, rate.throttle_ms(bound.rate, self.now_ms()))
        return pause_ms

    def is_limited(self, key: str, caller: Caller, client_id: str) -> bool:
        return self.table(caller.organisation).find(key, caller.principal.name, client_id) is not None

    def charge_mutations(self, caller: Caller, client_id: str, partitions: int, *, strict: bool) -> int:
        """Counts partitions that are made or deleted; THROTTLING_QUOTA_EXCEEDED for a client that understands it."""
        bound = self.table(caller.organisation).find(MUTATIONS, caller.principal.name, client_id)
        if bound is None:
            return 0
        now_ms = self.now_ms()
        place = (caller.organisation, MUTATIONS, *bound.shared_by)
        bucket = _kept(self._buckets, place, lambda: TokenBucket(bound.rate, now_ms))
        if strict and (pause_ms := bucket.throttle_ms(bound.rate, now_ms)):
            raise QuotaExceeded(pause_ms)
        bucket.take(partitions, bound.rate, now_ms)
        return 0 if strict else bucket.throttle_ms(bound.rate, now_ms)

    def connection_pause_ms(self, address: str) -> int:
        """Counts a connection; for how long it is held back before it is closed, 0 to serve it."""
        bound = self.table(DEFAULT_ORGANISATION).find_address(address)
        if bound is None:
            return 0
        rate = _kept(self._rates, (DEFAULT_ORGANISATION, CONNECTIONS, address, ""), Rate)
        now_ms = self.now_ms()
        rate.record(1, now_ms)
        pause_ms = rate.throttle_ms(bound, now_ms)
        if pause_ms:
            rate.record(-1, now_ms)  # it is not served, so it does not count
        return pause_ms


class QuotaExceeded(KafkaError):
    """Too many changes; the answer says for how long to wait."""

    def __init__(self, pause_ms: int) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self.pause_ms = pause_ms


def _kept(known: OrderedDict[Counted, T], place: Counted, new: Callable[[], T]) -> T:
    found = known.get(place)
    if found is None:
        found = known[place] = new()
        if len(known) > _COUNTED_MAX:
            known.popitem(last=False)
    known.move_to_end(place)
    return found

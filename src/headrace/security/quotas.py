"""Kafka's client quotas (KIP-13, KIP-124, KIP-546, KIP-599): their entities, and the arithmetic of rates.

A quota belongs to a user, a client id or both, or to the default of either; the most specific one applies. Time is a
parameter, so that tests can move it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

PRODUCER = "producer_byte_rate"
CONSUMER = "consumer_byte_rate"
REQUESTS = "request_percentage"
MUTATIONS = "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"

USER, CLIENT_ID, IP = "user", "client-id", "ip"

KEYS_OF_CLIENTS: Mapping[str, bool] = {PRODUCER: True, CONSUMER: True, REQUESTS: False, MUTATIONS: False}
"""Quotas of users and client ids, and whether they are whole numbers."""
KEYS_OF_ADDRESSES: Mapping[str, bool] = {CONNECTIONS: True}

Entity = tuple[tuple[str, str | None], ...]
"""Types and names, in the order of types; None is the default of a type."""

SAMPLES = 11
SAMPLE_MS = 1_000
"""Kafka's quota.window.num and quota.window.size.seconds."""


class QuotaBound(NamedTuple):
    """The quota that counts for somebody, and who shares it."""

    rate: float
    shared_by: tuple[str, str]
    """User and client id; empty where all of them share it."""


class QuotaTable:
    """The quotas of one organisation."""

    def __init__(self) -> None:
        self._values: dict[Entity, Mapping[str, float]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        yield from sorted(self._values.items(), key=lambda item: str(item[0]))

    def get(self, entity: Entity) -> Mapping[str, float]:
        return self._values.get(entity, {})

    def put(self, entity: Entity, values: Mapping[str, float]) -> None:
        """Sets all quotas of an entity; none of them removes it."""
        if values:
            self._values[entity] = values
        else:
            self._values.pop(entity, None)

    def find(self, key: str, user: str, client_id: str) -> QuotaBound | None:
        """The most specific quota for a user with a client id; None: no limit."""
        both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
        for entity, shared_by in (
            (entity_of(user, client_id), both),
            (entity_of(user, None), both),
            (((USER, user),), of_user),
            (entity_of(None, client_id), both),
            (entity_of(None, None), both),
            (((USER, None),), of_user),
            (((CLIENT_ID, client_id),), of_client),
            (((CLIENT_ID, None),), of_client),
        ):
            found = self._values.get(entity)
            if found is not None and key in found:
                return QuotaBound(found[key], shared_by)
        return None

    def find_address(self, address: str) -> float | None:
        """How many connections an address may make in a second."""
        for entity in (((IP, address),), ((IP, None),)):
            found = self._values.get(entity)
            if found is not None and CONNECTIONS in found:
                return found[CONNECTIONS]
        return None


def entity_of(user: str | None, client_id: str | None) -> Entity:
    """A user with a client id, None for the default."""
    return ((CLIENT_ID, client_id), (USER, user))


class Rate:
    """The rate per second over a window of the last ten seconds and the current one (Kafka's Rate)."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()
        """When each began, and its sum."""

    def record(self, amount: float, now_ms: float) -> None:
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append([now_ms, 0.0])
        self._samples[-1][1] += amount

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """How long somebody has to pause to be within its bound again; 0 if it is."""
        while self._samples and now_ms - self._samples[0][0] >= SAMPLES * SAMPLE_MS:
            self._samples.popleft()
        if not self._samples:
            return 0
        window_ms = self._window_ms(now_ms)
        rate = sum(amount for _, amount in self._samples) * 1_000 / window_ms
        return max(0, round((rate - bound) / bound * window_ms))

    def _window_ms(self, now_ms: float) -> float:
        """The time that the samples span; at the beginning as if it were a whole window already."""
        elapsed_ms = now_ms - self._samples[0][0]
        missing = SAMPLES - 1 - int(elapsed_ms // SAMPLE_MS)
        return elapsed_ms + max(0, missing) * SAMPLE_MS

    @property
    def last_ms(self) -> float:
        """When something was recorded last, to a sample."""
        return self._samples[-1][0] if self._samples else 0.0


class TokenBucket:
    """Changes that may be made: a burst, refilled at the bound; the change that empties it is still made (KIP-599)."""

    __slots__ = ("_tokens", "last_ms")

    def __init__(self, bound: float, now_ms: float) -> None:
        self._tokens = _burst(bound)
        self.last_ms = now_ms

    def take(self, amount: float, bound: float, now_ms: float) -> None:
        self._refill(bound, now_ms)
        self._tokens -= amount

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """How long until changes may be made again; 0 if they may."""
        self._refill(bound, now_ms)
        return 0 if self._tokens >= 0 else round(-self._tokens / bound * 1_000)

    def _refill(self, bound: float, now_ms: float) -> None:
        self._tokens = min(_burst(bound), self._tokens + bound * (now_ms - self.last_ms) / 1_000)
        self.last_ms = now_ms


def _burst(bound: float) -> float:
    return SAMPLES * SAMPLE_MS / 1_000 * bound

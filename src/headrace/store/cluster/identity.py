"""Unique ids of topics, the cluster and producers.

A topic has one 128-bit id in two spellings: `top_` and a ULID, which sorts by time and reads well, and the base64 of
the same bits, as Kafka's tools show it. Producer ids are made from the clock and random bits, not from a counter: a
store that lost its last second must not hand one out twice.
"""

from __future__ import annotations

import base64
import secrets
from functools import lru_cache

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(now_ms: int) -> bytes:
    """128 bits that sort by time: 48 of milliseconds, 80 of chance."""
    return now_ms.to_bytes(6, "big") + secrets.token_bytes(10)


def ulid(bits: bytes) -> str:
    """An id as a ULID in lower case."""
    number = int.from_bytes(bits, "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def kafka_uuid(bits: bytes) -> str:
    """An id as Kafka writes it."""
    return base64.urlsafe_b64encode(bits).decode().rstrip("=")


@lru_cache(maxsize=16_384)
def from_kafka_uuid(text: str) -> bytes:
    """The id behind Kafka's spelling; remembered, for every request about a partition asks for it."""
    return base64.urlsafe_b64decode(text + "==")


class ProducerIds:
    """Producer ids below 2^63: 41 bits of milliseconds, 22 of chance. Those of one process rise, so none repeats."""

    def __init__(self) -> None:
        self._last = -1

    def new(self, now_ms: int) -> int:
        self._last = max(self._last + 1, (now_ms & (1 << 41) - 1) << 22 | secrets.randbits(22))
        return self._last

"""Records of every kind that a client can send: sizes, keys, headers, nulls; the same ones for the same seed."""

from __future__ import annotations

import random

from tests.clients.client import Client, Header, Sent

FIRST_TIMESTAMP = 1_700_000_000_000
LARGEST_BYTES = 500_000
_HEADERS: tuple[tuple[Header, ...], ...] = (
    (),
    (("trace", b"12"),),
    (("same", b"1"), ("same", b"2"), ("same", b"1")),
    (("nothing", None), ("empty", b""), ("größe", bytes(range(256)))),
)


def mixed_records(client: Client, count: int, partitions: int, seed: int) -> list[Sent]:
    """Whatever the client takes. Timestamps rise by one from record to record; one record in 500 is large."""
    chance = random.Random(seed)
    noise = chance.randbytes(LARGEST_BYTES)
    found = []
    for number in range(count):
        key = chance.choice((None, b"", b"key-%d" % (number % 100), noise[:40]))
        value = _value(chance, noise, number)
        headers = chance.choice(_HEADERS)
        if key is None and value is None and not client.takes_empty_records:
            key = b"some"
        if not client.takes_null_headers:
            headers = tuple((name, content or b"") for name, content in headers)
        found.append(Sent(number % partitions, key, value, headers, FIRST_TIMESTAMP + number))
    return found


def _value(chance: random.Random, noise: bytes, number: int) -> bytes | None:
    if number % 500 == 250:
        size = chance.randrange(LARGEST_BYTES)
        return noise[:size] if chance.random() < 0.5 else bytes(size)
    match chance.randrange(10):
        case 0:
            return None
        case 1:
            return b""
        case 2:
            return noise[number % 1000 :][: chance.randrange(3000)]
        case _:
            return b"record %d " % number * chance.randrange(1, 12)

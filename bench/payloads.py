"""The values that are produced: JSON-like, of an exact size, different enough that compression does real work."""

from __future__ import annotations

import random

DISTINCT = 1_000


def values(size_bytes: int) -> list[bytes]:
    """Some values of that size, the same ones in each run."""
    chance = random.Random(size_bytes)
    return [_value(number, size_bytes, chance) for number in range(DISTINCT)]


def _value(number: int, size_bytes: int, chance: random.Random) -> bytes:
    text = f'{{"id":{number:06d},"user":"u{chance.randrange(10**6):06d}","amount":{chance.randrange(10**5)}'
    while len(text) < size_bytes - 2:
        text += f',"{chance.choice(("city", "street", "note", "kind"))}":"{chance.getrandbits(32):08x}"'
    return (text[: size_bytes - 2] + '"}').encode()

"""Orders of a made-up shop, the same in every run, and the tallies that every reader must arrive at."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec

HOUR_MS = 3_600_000
HOURS = 24
_PRICES = {"lamp": 4000, "chair": 12900, "desk": 34900, "mug": 900, "plant": 1700, "rug": 8500}
_ITEMS = list(_PRICES)
_SEED = 7


class Order(msgspec.Struct, frozen=True):
    """One order, as it is in a record's value."""

    order: int
    customer: str
    item: str
    quantity: int
    cents: int


@dataclass
class Tally:
    """How many orders, and what they are worth, by the hour too. Two tallies of the same records are equal."""

    orders: int = 0
    cents: int = 0
    cents_by_hour: Counter[int] = field(default_factory=Counter)

    def add(self, value: bytes, timestamp_ms: int) -> None:
        cents = _read(value).cents
        self.orders += 1
        self.cents += cents
        self.cents_by_hour[timestamp_ms // HOUR_MS] += cents

    def merge(self, other: Tally) -> None:
        self.orders += other.orders
        self.cents += other.cents
        self.cents_by_hour.update(other.cents_by_hour)


_read = msgspec.json.Decoder(Order).decode
_write = msgspec.json.Encoder().encode


def a_day(count: int, now_ms: int) -> Iterator[list[tuple[bytes, bytes, int]]]:
    """Key, value and time of orders over the last day, an hour at a time: few at night, most in the evening."""
    chance = random.Random(_SEED)
    first_hour = now_ms // HOUR_MS - HOURS
    hours = range(first_hour, first_hour + HOURS)
    weights = [2.1 + math.sin((hour - 11) * math.tau / 24) + chance.random() / 2 for hour in hours]
    made = 0
    for hour, share in zip(hours, accumulate(weights), strict=True):
        span = round(count * share / sum(weights)) - made
        yield [order(made + at, hour * HOUR_MS + at * HOUR_MS // span, chance) for at in range(span)]
        made += span


def order(number: int, timestamp_ms: int, chance: random.Random) -> tuple[bytes, bytes, int]:
    """Key, value and time of one order."""
    item, quantity = chance.choice(_ITEMS), chance.randint(1, 4)
    customer = f"customer-{chance.randrange(2000)}"
    value = _write(Order(number, customer, item, quantity, quantity * _PRICES[item]))
    return customer.encode(), value, timestamp_ms

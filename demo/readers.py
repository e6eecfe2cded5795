"""A consumer group at work: members that share a topic's partitions and tally what each of them reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from confluent_kafka import Consumer, Message

from demo.orders import Tally
from demo.story_errors import Disagreement

_IDLE_S = 60.0
_AT_ONCE = 5_000

Messages: TypeAlias = "Sequence[Message[bytes, bytes]]"


@dataclass
class Reading:
    """What a group has read."""

    tally: Tally = field(default_factory=Tally)
    first: dict[int, int] = field(default_factory=dict)
    """The first offset read, by partition."""
    next: dict[int, int] = field(default_factory=dict)
    members: int = 0
    """The number of members that read at least one record."""


def read_in_group(address: str, topic: str, group: str, members: int, count: int) -> Reading:
    """Reads `count` records from the beginning with a group of `members`; fails if an offset is skipped."""
    reading = Reading()
    lock, done = threading.Lock(), threading.Event()
    failures: list[str] = []

    def take(messages: Messages) -> None:
        with lock:
            _tally(reading, messages)
            if reading.tally.orders >= count:
                done.set()

    def member() -> None:
        try:
            if _read_until(done, address, topic, group, take):
                reading.members += 1
        except Disagreement as why:
            failures.append(str(why))
            done.set()

    threads = [threading.Thread(target=member, name=f"{group}-{number}") for number in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Disagreement(failures[0])
    return reading


def _read_until(done: threading.Event, address: str, topic: str, group: str, take: Callable[[Messages], None]) -> bool:
    """Runs one member until the group is done; returns whether it read anything."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    has_read, last = False, time.monotonic()
    try:
        while not done.is_set():
            messages = consumer.consume(_AT_ONCE, 0.2)
            if errors := [error for message in messages if (error := message.error())]:
                raise Disagreement(f"{group}: {errors[0].str()}")
            if messages:
                take(messages)
                has_read, last = True, time.monotonic()
            elif not has_read and time.monotonic() - last > _IDLE_S:
                raise Disagreement(f"{group}: no records for {_IDLE_S:.0f} s")
    finally:
        consumer.close()
    return has_read


def _tally(reading: Reading, messages: Messages) -> None:
    for message in messages:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        expected = reading.next.get(partition, offset)
        if offset < expected:  # a partition that changed hands: its new owner starts at the last commit
            continue
        if offset > expected:
            raise Disagreement(f"partition {partition}: got offset {offset}, expected {expected}")
        reading.first.setdefault(partition, offset)
        reading.next[partition] = offset + 1
        reading.tally.add(value, message.timestamp()[1])

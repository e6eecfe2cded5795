"""What a test asks of any Kafka client, so that one test asks the same of each.

An adapter adds nothing: no retries, no settings of its own beyond the address. What a test does not set is the
client's default.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Header = tuple[str, bytes | None]

READ_TIMEOUT_S = 60.0
EARLIEST, LATEST = "earliest", "latest"
Start = int | str
"""Where to read from: an offset, EARLIEST or LATEST."""


class Sent(NamedTuple):
    """A record to produce."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None


class Received(NamedTuple):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class DeliveryFailed(Exception):
    """The client reported an error for a record; `code` is Kafka's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Client(ABC):
    """One client library. Settings of a test have Kafka's names, with dots."""

    name: str
    compressions: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    takes_empty_records = True
    """Whether a record may have neither key nor value."""
    takes_null_headers = True
    """Whether a header's value may be null."""

    def __str__(self) -> str:
        return self.name

    @abstractmethod
    def create_topic(self, address: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None: ...

    @abstractmethod
    def produce(self, address: str, topic: str, records: Iterable[Sent], settings: Mapping[str, Any]) -> list[int]:
        """Produces all, waits for all; their offsets (-1 where none is known) or DeliveryFailed."""

    @abstractmethod
    def consumer(self, address: str, settings: Mapping[str, Any]) -> Consumer: ...

    @abstractmethod
    def begin_transactions(self, address: str) -> None:
        """Starts a transactional producer as its users do; raises the client's own error."""


class Consumer(ABC):
    """A consumer without a group's assignment."""

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def assign(self, topic: str, start: Mapping[int, Start]) -> None: ...

    @abstractmethod
    def poll(self, timeout_s: float) -> list[Received]:
        """What there is within this time; at once when there is something."""

    @abstractmethod
    def offsets_at(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        """Partition -> offset of the first record at or after a time; None behind the last one."""

    @abstractmethod
    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Log start and end."""

    @abstractmethod
    def partitions(self, topic: str) -> set[int]:
        """The topic's partitions; none if there is no such topic."""

    @abstractmethod
    def close(self) -> None: ...

    def read(self, count: int, timeout_s: float = READ_TIMEOUT_S) -> list[Received]:
        """Exactly so many records, or fewer when the time is over."""
        found: list[Received] = []
        deadline = time.monotonic() + timeout_s
        while len(found) < count and (left_s := deadline - time.monotonic()) > 0:
            found += self.poll(min(left_s, 1.0))
        return found


def received(record: Any) -> Received:
    """A record of kafka-python or aiokafka, which look alike."""
    return Received(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
    )


def with_underscores(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Kafka's names as these clients spell them."""
    named = {name.replace(".", "_"): value for name, value in settings.items()}
    if named.get("compression_type") == "none":
        named["compression_type"] = None
    return named

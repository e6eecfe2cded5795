"""What the administrative handlers share: a fresh look at the catalogue, and changes that other nodes cannot undo."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

from headrace.store.errors import StoreError
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.store.catalogue import Topic

T = TypeVar("T", bound=Hashable)

_ATTEMPTS = 5


async def look_again(broker: Broker) -> None:
    """Learns what other nodes changed a moment ago; without the store, the copy of the catalogue answers."""
    with contextlib.suppress(StoreError):
        await broker.store.catalogue.refresh()


def duplicates(items: Iterable[T]) -> set[T]:
    """Those that occur more than once."""
    return {item for item, times in Counter(items).items() if times > 1}


def unknown_topic(name: str) -> KafkaError:
    """UNKNOWN_TOPIC_OR_PARTITION, in the words of Kafka's controller."""
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


async def change_topic(broker: Broker, name: str, change: Callable[[Topic], Awaitable[None]]) -> None:
    """Applies a change to the topic as it is now; again, if another node changed it at the same moment."""
    attempt = 1
    while True:
        topic = await broker.store.catalogue.find(name)
        if topic is None:
            raise unknown_topic(name)
        try:
            return await change(topic)
        except StoreError:
            raise  # away, or the outcome is unknown: the client decides
        except KafkaError as error:
            if error.code != ErrorCode.REQUEST_TIMED_OUT or attempt == _ATTEMPTS:
                raise
            attempt += 1

"""Shared by the administrative handlers.

Changes that survive concurrent changes to the same topic; and fairness: a request may name very many resources, so they
are handled one by one, yielding to other connections in between, with short messages for each.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

from headrace.security.acls import Operation
from headrace.store.redis.errors import StoreError
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.access import Access
    from headrace.store.cluster.catalogue import Topic

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

_STEP_ASIDE_S = 0.01
_LONGEST_MESSAGE = 1_000
"""Maximum length of an error message. Older versions allow 32 KiB, and text from a client may be that long."""


async def step_aside() -> None:
    """Before another try: two that step aside for different times do not meet again."""
    await asyncio.sleep(random.uniform(0, _STEP_ASIDE_S))


def duplicates(items: Iterable[H]) -> set[H]:
    """The items that occur more than once."""
    return {item for item, times in Counter(items).items() if times > 1}


async def in_turn(items: Iterable[T]) -> AsyncIterator[T]:
    """The parts of a request; other connections' requests get their turn between two of them."""
    for item in items:
        yield item
        await asyncio.sleep(0)


async def tell_nodes(access: Access, version: int) -> None:
    """If topics changed since a version, returns once the other nodes have applied that."""
    if access.topics_version != version:
        await access.broker.store.announcements.topics_changed(access.caller.organisation, access.topics_version)


def message_of(error: KafkaError) -> str:
    """The message of an error."""
    return (error.message or error.code.name)[:_LONGEST_MESSAGE]


def unknown_topic(name: str) -> KafkaError:
    """UNKNOWN_TOPIC_OR_PARTITION, in the words of Kafka's controller."""
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


async def change_topic(
    access: Access, operation: Operation, name: str, change: Callable[[Topic], Awaitable[None]]
) -> None:
    """Applies a change to the current topic; retries if another change came in between."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + access.broker.options.store_wait_ms / 1000
    while True:
        topic = await access.find_topic(operation, name)
        if topic is None:
            raise unknown_topic(name)
        try:
            return await change(topic)
        except StoreError:
            raise  # away, or the outcome is unknown: the client decides
        except KafkaError as error:
            if error.code != ErrorCode.REQUEST_TIMED_OUT or clock() > deadline:
                raise
        await step_aside()

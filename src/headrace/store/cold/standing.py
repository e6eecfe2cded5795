"""The tiering state of a topic, as recorded by its partitions' leaders; any node can read it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.redis.errors import StoreError

if TYPE_CHECKING:
    from headrace.store.cluster.catalogue import Topic
    from headrace.store.keys import Keys
    from headrace.store.store import Store


class Standing(NamedTuple):
    """One partition."""

    log_start: int
    local_start: int
    """From here on records are in Redis."""
    trouble: str | None
    """Why records that should be cold stay in Redis."""


async def standing_of(store: Store, keys: Keys, topic: Topic) -> dict[int, Standing]:
    """The partitions of a topic, by number; without those whose server is away, unless all are."""
    metas = (topic.keys(keys, number).meta for number in range(topic.partitions))
    asked = (store.topology.call_each([("HMGET", meta, "start", "local", "trouble")]) for meta in metas)
    found: dict[int, Standing] = {}
    trouble: StoreError | None = None
    for number, reply in enumerate(await asyncio.gather(*asked, return_exceptions=True)):
        if isinstance(reply, StoreError):
            trouble = reply
        elif isinstance(reply, BaseException):
            raise reply
        else:
            found[number] = _parse(*reply[0])
    if trouble is not None and not found:
        raise trouble
    return found


def _parse(start: bytes | None, local: bytes | None, trouble: bytes | None) -> Standing:
    log_start = int(start or 0)
    return Standing(log_start, max(log_start, int(local or 0)), trouble.decode() if trouble else None)

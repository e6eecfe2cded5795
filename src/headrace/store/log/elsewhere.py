"""Appends a batch of the broker's own, such as a transaction marker, to a log that another node leads.

Nothing of the log is cached or read here: a script returns its end. Then the caller confirms that the batch is still
wanted, and it is appended at exactly that place. Redis rejects it if anything was appended meanwhile, and everything is
repeated. The leader finds the batch like any foreign entry.

After a change of server, a log that its leader has not yet compared with what was acknowledged is left alone, and so
is one that is being made again: a batch would take the place of entries that the leader is about to restore.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from headrace.store.cluster.catalogue import Topic
from headrace.store.log.entries import xadd
from headrace.store.partition.context import PartitionContext
from headrace.store.partition.entries import Entry
from headrace.store.redis.errors import PartitionGone, RedisError, StoreAway, StoreError
from headrace.wire.batch import read_header, stamp

_ATTEMPTS = 64
_NOT_COMPARED = -2


class NotTakenUp(StoreAway):
    """Its leader has not compared the log with what was acknowledged since the server changed."""

    def __init__(self) -> None:
        super().__init__("its leader is still recovering it")


async def append_elsewhere(
    context: PartitionContext, topic: Topic, number: int, batch: bytes, ask: Callable[[], Awaitable[None]]
) -> None:
    """Appends a batch; `ask` raises if it is not wanted any more."""
    offsets = read_header(batch).last_offset_delta + 1
    keys = topic.keys(context.keys, number)
    slot = context.slot_of(keys.log)
    token = secrets.token_hex(8).encode()
    for _ in range(_ATTEMPTS):
        timeline = slot.link.timeline
        end, epoch = await slot.scripts.run("log_end", [keys.log, keys.meta], [slot.link.identity])
        if end < 0:
            raise NotTakenUp if end == _NOT_COMPARED else _not_there(context, topic)
        await ask()
        if slot.link.timeline != timeline:
            continue  # on another server that may be behind the end, and would accept a hole
        stamped = bytearray(batch)
        stamp(stamped, 0, end, epoch)
        try:
            if await slot.link.send_chunks(xadd(keys.log, Entry(end, end + offsets, bytes(stamped), token))) is None:
                raise _not_there(context, topic)
        except RedisError as error:
            if not error.is_refused_id:
                raise
        else:
            return
    raise StoreAway(f"{topic.name}-{number} is appended to too fast")


def _not_there(context: PartitionContext, topic: Topic) -> StoreError:
    """The log of a topic that was not deleted was lost: its leader makes it again."""
    return NotTakenUp() if topic.uuid in context.catalogue.by_uuid else PartitionGone(topic.name)

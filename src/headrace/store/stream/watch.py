"""Wakes long polls when Redis code appends: a blocked XREAD over the streams with waiting consumers.

On a single server one XREAD covers all streams. A cluster allows none across slots, not even on one server: there the
first slots with waiters get one each, and streams beyond those are polled, less often the more there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from headrace.store.redis.errors import StoreError
from headrace.store.stream.blocked_read import BlockedRead
from headrace.store.stream.ids import parse_id

if TYPE_CHECKING:
    from headrace.store.redis.topology import Slot
    from headrace.store.store import Store
    from headrace.store.stream.partition import StreamPartition

log = logging.getLogger(__name__)

BLOCKED_MAX = 64
"""Connections of a node on a cluster that wait for streams."""
_LOOK_EVERY_S = 0.05
_LOOKS_PER_S = 2_000


class StreamWatch:
    """Watches the streams that have watchers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._blocked: dict[Slot | None, BlockedRead] = {}
        self._looked_at: dict[str, StreamPartition] = {}
        self._looking: asyncio.Task[None] | None = None

    def add(self, partition: StreamPartition) -> None:
        """A long poll waits for this partition from now on."""
        slot = None if self._store.topology.streams_share_a_read else partition.slot
        read = self._blocked.get(slot)
        if read is None and len(self._blocked) < BLOCKED_MAX:
            read = self._blocked[slot] = BlockedRead(self._store, slot, self._forget)
        if read is not None:
            read.add(partition)
            return
        self._looked_at[partition.keys.log] = partition
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_on(), name="stream looks")

    def _forget(self, slot: Slot | None) -> None:
        """Ends a read whose streams have had no waiters for a while."""
        read = self._blocked.pop(slot)
        self._store.spawn(read.close())

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for read in list(self._blocked.values()):
            await read.close()

    async def _look_on(self) -> None:
        """Runs until there are no waiters."""
        while True:
            self._looked_at = {key: one for key, one in self._looked_at.items() if one.watchers and not one.is_gone}
            if not self._looked_at:
                return
            for partition in list(self._looked_at.values()):
                try:
                    await _look(partition)
                except StoreError:
                    continue
                except Exception:
                    log.exception("polling streams failed")
                await asyncio.sleep(1 / _LOOKS_PER_S)
            await asyncio.sleep(_LOOK_EVERY_S)


async def _look(partition: StreamPartition) -> None:
    last = partition.ids.last
    rows: list[Any] = await partition.link.call("XRANGE", partition.keys.log, f"({last}", "+", "COUNT", 1)
    if rows and parse_id(rows[-1][0]) > partition.ids.last:
        with contextlib.suppress(StoreError):
            await partition.confirm()
            return
        partition.tell_watchers()

"""One XREAD that blocks until one of its streams is appended to.

It has its own connection. A new stream is added by unblocking it (CLIENT UNBLOCK); a stream without waiters is dropped
at the next call. No call blocks for long, so that a silently dead connection is noticed. If the streams' slot moves,
the connection follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.store.redis.errors import RedisError, StoreError
from headrace.store.stream.ids import parse_id

if TYPE_CHECKING:
    from headrace.store.redis.topology import Slot
    from headrace.store.store import Store
    from headrace.store.stream.partition import StreamPartition

log = logging.getLogger(__name__)

_BLOCK_MS = 2_000
_BLOCK_BRIEFLY_MS = 50
"""Where Redis does not let us unblock a call."""
_PAUSE_S = 0.05
_UNBLOCK_AGAIN_S = 0.001
_IDLE_S = 30.0
"""So long the connection of a slot is kept although nobody waits."""


class BlockedRead:
    """Watches the streams of one slot that have watchers; of all slots, where one server has them."""

    def __init__(self, store: Store, slot: Slot | None, on_idle: Callable[[Slot | None], None]) -> None:
        self._store = store
        self._slot = slot
        self._on_idle = on_idle
        self._commands = store.link if slot is None else slot.link
        self._link = store.topology.new_link("stream watch", store.options.timeout_ms + _BLOCK_MS, slot)
        self._wanted: dict[str, StreamPartition] = {}
        self._reading: frozenset[str] = frozenset()
        self._client_id = 0
        self._asked_on = -1
        """The connection whose id that is."""
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def add(self, partition: StreamPartition) -> None:
        """A long poll waits for this partition from now on."""
        self._wanted[partition.keys.log] = partition
        if partition.keys.log in self._reading:
            return
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="stream watch")
        elif self._reading:
            self._store.spawn(self._unblock(partition.keys.log))

    async def _unblock(self, key: str) -> None:
        """Ends the blocked call; again, if it had not reached the server yet."""
        while self._client_id and self._reading and key not in self._reading:
            if await self._commands.call("CLIENT", "UNBLOCK", self._client_id):
                return
            await asyncio.sleep(_UNBLOCK_AGAIN_S)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._link.close()

    async def _run(self) -> None:
        self._link.start_soon()
        while True:
            try:
                self._follow_slot()
                await self._link.wait_up(60)
                await self._round()
            except StoreError:
                await asyncio.sleep(_PAUSE_S)
            except Exception:
                log.exception("watching streams failed")
                await asyncio.sleep(1)
            finally:
                self._reading = frozenset()

    def _follow_slot(self) -> None:
        if self._slot is not None and self._link.is_up and self._link.address != self._slot.shard.link.address:
            self._link.drop("the slot moved")

    async def _round(self) -> None:
        await self._learn_client_id()
        self._wanted = {key: one for key, one in self._wanted.items() if one.watchers and not one.is_gone}
        if not self._wanted:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self._slot is None else _IDLE_S):
                    await self._changed.wait()
            except TimeoutError:
                if not self._wanted:
                    self._on_idle(self._slot)
            return
        keys = list(self._wanted)
        self._reading = frozenset(keys)
        after = [str(self._wanted[key].ids.last) for key in keys]
        block_ms = _BLOCK_MS if self._client_id else _BLOCK_BRIEFLY_MS
        rows = await self._link.call("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", *keys, *after)
        self._reading = frozenset()
        await asyncio.gather(*(self._look(row) for row in rows or ()))

    async def _look(self, row: Any) -> None:
        key, entries = row
        partition = self._wanted.get(key.decode())
        if partition is not None and parse_id(entries[-1][0]) > partition.ids.last:
            with contextlib.suppress(StoreError):
                await partition.confirm()
                return
            partition.tell_watchers()

    async def _learn_client_id(self) -> None:
        generation = self._link.generation
        if self._asked_on == generation:
            return
        try:
            self._client_id = int(await self._link.call("CLIENT", "ID"))
        except RedisError:
            self._client_id = 0
        self._asked_on = generation

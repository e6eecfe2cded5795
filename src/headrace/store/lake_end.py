"""Whether the lake is ahead of Redis: asked before a tiered partition takes its first record after a start.

A store that lost its last moment together with the broker (everysec, and a power cut) comes back with an end that the
archive may have passed. To give those offsets out again would make two histories, of which the table has one. So the
partition goes on behind what the lake holds, with a new leader epoch; what only the lake has is cold from then on, and
nothing of it is lost to readers. Commits need no look: they are in the same store, written after the records.

The question is spared where the store cannot have gone back: the same run of the server was asked about before, or the
last node left in good order and the log ends where it said. While the lake is away appends wait for it, and get a
retriable error; reading goes on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.cold_log import ColdAway
from headrace.store import losses, recovery
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.store.partition import Partition

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 1.0


class LakeEnd:
    """The question of one partition, open or answered."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.is_open = False
        self._asking: asyncio.Task[None] | None = None
        self._is_told = False

    async def loaded(self, asked: bytes | None, left: bytes | None, *, was_there: bool) -> None:
        """Opens the question after the log was read, unless what is stored beside it says that it is answered."""
        partition = self._partition
        self.is_open = False
        if not partition.is_tiered:
            if left is not None:  # of a time when it was: it must not vouch for what comes now
                await partition.store.link.call("HDEL", partition.keys.meta, "left")
            return
        is_same_run = asked is not None and asked.decode() == self._run_id
        is_as_left = left is not None and int(left) == partition.end
        if was_there and (is_same_run or is_as_left):
            await self._answered()
        else:
            self.is_open = True
            self._ask()

    async def recovered(self) -> None:
        """Another server has the log as this node knows it, which is as good as an answer."""
        if self._partition.is_tiered and not self.is_open:
            await self._answered()

    async def leave(self) -> None:
        """Notes where the log ends, for the next start: the last node leaves in good order."""
        partition = self._partition
        if partition.is_tiered and not self.is_open and len(partition.store.nodes.live) == 1:
            await self._save("left", str(partition.end))

    async def wait(self, timeout_s: float) -> None:
        """Returns once the question is answered; `ColdAway` if that takes longer."""
        if not self.is_open:
            return
        await asyncio.wait([self._ask()], timeout=timeout_s)
        if self.is_open:
            raise ColdAway(f"{self._partition!r} waits for the lake, which may hold more of it than Redis")

    def close(self) -> None:
        """Ends what is under way."""
        if self._asking is not None:
            self._asking.cancel()

    def _ask(self) -> asyncio.Task[None]:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._try(), name=f"ask the lake for {self._partition!r}")
        return self._asking

    async def _try(self) -> None:
        try:
            await self._find_out()
            self.is_open = False
        except KafkaError as error:
            if not self._is_told:
                self._is_told = True
                log.warning(
                    "a tiered partition takes no records until the lake says what it holds of it",
                    extra={"partition": repr(self._partition), "why": str(error)},
                )
            await asyncio.sleep(_ASK_AGAIN_S)
        except Exception:
            log.exception("asking the lake failed", extra={"partition": repr(self._partition)})
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _find_out(self) -> None:
        partition = self._partition
        held = await partition.store.cold.held(partition.cold_name, fresh=True)
        if held is not None and held.end > partition.end:
            await self._go_behind(held.start, held.end)
        await self._answered()

    async def _go_behind(self, held_start: int, held_end: int) -> None:
        partition, lost_from = self._partition, self._partition.end
        if held_start <= partition.local_start:
            await losses.go_behind(partition, lost_from, held_end)
            await partition.save_local_start(held_end)
        else:
            await losses.record_gap(partition, lost_from, held_end)
        partition.end = max(partition.end, held_end)
        await recovery.raise_last_id(partition)
        log.error(
            "the store has gone back behind the lake: the log goes on behind what the lake holds",
            extra={"partition": repr(partition), "from_offset": lost_from, "to_offset": held_end},
        )
        partition.tell_watchers()

    async def _answered(self) -> None:
        await self._save("asked", self._run_id)

    @property
    def _run_id(self) -> str:
        return self._partition.store.link.server.get("run_id", "")

    async def _save(self, field: str, value: str) -> None:
        partition = self._partition
        reply = await partition.store.scripts.run(
            "save_lake_end", [partition.keys.meta, partition.keys.there], [field, value]
        )
        partition.check_there(reply)

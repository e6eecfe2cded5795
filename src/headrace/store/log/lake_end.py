"""Asks whether the lake is ahead of Redis before a tiered partition accepts its first record after a start.

A store that lost its last second together with the broker (everysec, and a power cut) may come back with an end that
the archive has already passed. Reusing those offsets would create two histories, of which the table has one. So the
partition continues after what the lake holds, with a new leader epoch; records that only the lake has are cold, and
readers miss nothing. Commits need no check: they are in the same store, written after the records.

The lake is not asked if the store cannot have gone back in time (`partition/origin.py`). While the lake is unavailable,
appends wait and get a retriable error; reads continue.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.cold_log import ColdAway
from headrace.store.log import recovery
from headrace.store.partition import losses, origin
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 1.0


class LakeEnd:
    """The question of one partition, open or answered."""

    def __init__(self, partition: LogPartition) -> None:
        self._partition = partition
        self.is_open = False
        self._asking: asyncio.Task[None] | None = None
        self._is_told = False

    def loaded(self, *, was_there: bool) -> None:
        """Opens the question after the log was read, unless the store cannot have gone back."""
        partition = self._partition
        self.is_open = False
        if not was_there or not partition.taken_up or origin.may_have_gone_back(partition):
            self._open()

    def recovered(self) -> None:
        """Another server has the same log: as good as an answer, unless another node wrote to it."""
        if origin.may_have_gone_back(self._partition):
            self._open()

    def _open(self) -> None:
        if self._partition.policy.is_tiered:
            self.is_open = True
            self._ask()

    async def wait(self, timeout_s: float) -> None:
        """Returns once the question is answered; `ColdAway` if that takes longer."""
        if not self.is_open:
            return
        await asyncio.wait([self._ask()], timeout=timeout_s)
        if self.is_open:
            raise ColdAway(f"{self._partition!r} is waiting for the lake, which may hold more of it than Redis")

    async def keep(self, start: int, end: int) -> None:
        """Makes records cold that the store lost and the lake has; `ColdAway` if that cannot be known now."""
        partition = self._partition
        if not partition.policy.is_tiered or not origin.leads(partition):
            return
        held = await partition.cold.held(partition.cold_name, fresh=True)
        if held is not None and held.start <= partition.local_start and start < held.end:
            await partition.save_local_start(min(held.end, end))

    def close(self) -> None:
        """Cancels everything in flight."""
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
            self._partition.doubt()  # it is taken up with the next look, and not before
        except KafkaError as error:
            if not self._is_told:
                self._is_told = True
                log.warning(
                    "a tiered partition accepts no records until the lake reports its end offset",
                    extra={"partition": repr(self._partition), "why": str(error)},
                )
            await asyncio.sleep(_ASK_AGAIN_S)
        except Exception:
            log.exception("querying the lake failed", extra={"partition": repr(self._partition)})
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _find_out(self) -> None:
        partition = self._partition
        held = await partition.cold.held(partition.cold_name, fresh=True)
        if held is not None and held.end > partition.end:
            await self._go_behind(held.start, held.end)

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
            "the store lost records that the lake has: the log continues after the lake's end",
            extra={"partition": repr(partition), "from_offset": lost_from, "to_offset": held_end},
        )
        partition.tell_watchers()

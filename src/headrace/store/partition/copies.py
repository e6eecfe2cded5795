"""The high watermark of a partition: up to where enough replicas have it, for topics with min.insync.replicas.

Whenever the end moves, the replicas are asked; once enough of them have it, readers see it and producers with acks=all
are answered. The high watermark never falls. A confirmation is valid for one timeline only: after a failover records
may have been lost or restored, and the new server's replicas are asked again.

With too few replicas, producers get an error in time, readers wait, and the question is repeated for as long as this
node leads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.store.partition import origin
from headrace.store.redis.errors import PartitionGone, StoreError
from headrace.store.redis.replicas import NotEnoughReplicas
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.partition.appending import Appended
    from headrace.store.partition.base import Partition
    from headrace.store.partition.losses import Gap

_RETRY_S = 0.05
_TOO_FEW_RETRY_S = 0.25
_FIRST_S = 1.0
"""How long an answer that depends on it waits after a take-over."""
_SAVE_EVERY_S = 5.0
_NEVER = -1


class _Waiter(NamedTuple):
    end: int
    done: asyncio.Future[None]


class Copies:
    """A partition's high watermark and those waiting for it."""

    __slots__ = (
        "_asked",
        "_bytes",
        "_end",
        "_is_following",
        "_is_saving",
        "_loaded_in",
        "_partition",
        "_showed_all",
        "_stable_end",
        "_sure_end",
        "_term",
        "_timeline",
        "_waiters",
    )

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._end = 0
        self._bytes = 0
        self._stable_end = 0
        """The high watermark, the size of the log up to there, and the last stable offset in it."""
        self._showed_all = not partition.policy.replicas
        """Whether consumers saw the end itself until now."""
        self._is_saving = False
        self._loaded_in = _NEVER
        """The term in which the stored high watermark was read: in another one another node may have led."""
        self._asked = 0
        """What the slot had sent on to another server (ASK) when the log was last seen at its own."""
        self._sure_end = 0
        self._timeline = self._term = _NEVER
        """When replicas last confirmed something: on which timeline, and in which term of this node."""
        self._waiters: list[_Waiter] = []
        self._is_following = False

    @property
    def wanted(self) -> int:
        """The replicas that a record needs now."""
        asked = self._partition.policy.replicas
        return self._partition.context.replicas_of(asked) if asked else 0

    # -- what readers ask ---------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Where consumers stop, on a topic that asks for copies."""
        if self._showed_all or not self.wanted:
            self._show_all()
        return max(min(self._end, self._partition.end), self._partition.log_start)

    @property
    def readable_bytes(self) -> int:
        """The size of the log up to there."""
        return self._bytes if self.high_watermark < self._partition.end else self._partition.index.size_bytes

    @property
    def stable_end(self) -> int:
        """A transaction that ends behind the high watermark is still open for readers."""
        high_watermark = self.high_watermark
        if high_watermark >= self._partition.end:
            return self._partition.ended_up_to
        return max(min(self._stable_end, high_watermark), self._partition.log_start)

    def holds_back(self) -> bool:
        """Whether something is behind the high watermark; then that is looked after."""
        if self.wanted and not self._is_sure_of(self._partition.end):
            self._follow()
        return self.high_watermark < self._partition.end and not self._partition.is_gone

    def _show_all(self) -> None:
        """Keeps readable records readable when copies are required from now on."""
        self._showed_all = not self.wanted
        self._end, self._bytes = max(self._end, self._partition.end), self._partition.index.size_bytes
        self._stable_end = self._partition.ended_up_to

    async def settle(self) -> None:
        """Confirms the partition; its high watermark too, if the replicas answer in a moment."""
        await self._partition.confirm()
        if self.wanted and self._is_unsure:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_S):
                    await self._wait(self._partition.end)
            await self._partition.confirm()

    def may_be_behind(self) -> bool:
        """Whether the node that led before may have shown more: it stores its high watermark only now and then.

        Then the replicas are asked, and until they have answered this is not told as the end.
        """
        if not self._is_unsure or not self.wanted or self.high_watermark >= self._partition.end:
            return False
        self._follow()
        return True

    @property
    def _is_unsure(self) -> bool:
        """Whether another node may have led since replicas last confirmed something."""
        nodes = self._partition.nodes
        return self._term != nodes.term or not nodes.lease_is_valid

    async def save(self) -> None:
        """Stores the high watermark, for a node that opens the partition while replicas are away."""
        if self._end and self.wanted:
            partition = self._partition
            await partition.scripts.run("save_copied", [partition.keys.meta, partition.keys.there], [self._end])

    def _save_soon(self) -> None:
        if not self._is_saving:
            self._is_saving = True
            self._partition.context.spawn(self._keep_saving())

    async def _keep_saving(self) -> None:
        """Stores it at once, and every few seconds for as long as it rises: the last one is stored, too."""
        saved = _NEVER
        try:
            while saved < self._end and not self._partition.is_gone:
                end = self._end
                with contextlib.suppress(StoreError):
                    await self.save()
                    saved = end
                await asyncio.sleep(_SAVE_EVERY_S)
        finally:
            self._is_saving = False

    # -- what producers ask -------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Raises NOT_ENOUGH_REPLICAS if it is known that an append would not be on enough."""
        if wanted := self.wanted:
            await self._partition.shard.replicas.check(wanted)

    def confirmed(
        self, appended: asyncio.Future[Appended], count: int, timeout_s: float
    ) -> Coroutine[Any, Any, Appended]:
        """The result of an append once enough replicas have it; NOT_ENOUGH_REPLICAS_AFTER_APPEND if they do not."""
        return self._confirmed(appended, count, timeout_s, self._lost)

    async def _confirmed(
        self, appended: asyncio.Future[Appended], count: int, timeout_s: float, known: list[Gap]
    ) -> Appended:
        """A loss that was known before says nothing about the batch: others may have been lost at its offsets."""
        found = await appended
        start, end = found.base_offset, found.base_offset + count
        replicas = self._partition.shard.replicas
        timeout_s = min(timeout_s, replicas.timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait(end)
        except TimeoutError:
            replicas.doubt()
            raise _after_append(f"Fewer than {self.wanted} replica(s) have the batch after {timeout_s:g} s.") from None
        if any(gap.start < end and start < gap.end and gap not in known for gap in self._lost):
            raise _after_append("The store failed over and lost the batch.")
        return found

    @property
    def _lost(self) -> list[Gap]:
        return [*self._partition.gaps, *self._partition.replaced]

    async def until_confirmed(self, appended: asyncio.Future[Appended]) -> None:
        """Returns once enough replicas have a marker of a transaction, however long that takes: until then it is
        ending."""
        found = await appended
        if self._partition.policy.replicas:
            await self._wait(found.base_offset + 1)

    async def _wait(self, end: int) -> None:
        while self.wanted and not self._is_sure_of(end):
            waiter = _Waiter(end, asyncio.get_running_loop().create_future())
            self._waiters.append(waiter)
            self._follow()
            await waiter.done

    def _is_sure_of(self, end: int) -> bool:
        return self._sure_end >= end and self._timeline == self._partition.link.timeline

    # -- asking the replicas ------------------------------------------------------------------------------------

    def _follow(self) -> None:
        if not self._is_following:
            self._is_following = True
            self._partition.context.spawn(self._keep_following())

    async def _keep_following(self) -> None:
        try:
            while self._has_to_go_on():
                pause_s = await self._step()
                self._answer(None)
                if pause_s:
                    await asyncio.sleep(pause_s)
        finally:
            self._is_following = False

    def _has_to_go_on(self) -> bool:
        self._waiters = [one for one in self._waiters if not one.done.done()]
        partition = self._partition
        if partition.is_gone or not self.wanted:
            self._answer(PartitionGone(repr(partition)) if partition.is_gone else None)
            return False
        return bool(self._waiters) or (not self._is_sure_of(partition.end) and origin.leads(partition))

    async def _step(self) -> float:
        """Asks once; how long to wait before the next time."""
        partition = self._partition
        try:
            if not partition.is_in_step:
                await partition.confirm()
            if self._loaded_in != partition.nodes.term:
                await self._load()
            if partition.slot.place.asked != self._asked and not await self._is_at_its_server():
                return _RETRY_S
            if not partition.is_in_step:
                return 0  # another server answers since
            # All of one moment: the server acknowledged everything before the end on this timeline.
            place, term, end = partition.slot.place, partition.nodes.term, partition.end
            size_bytes, stable_end = partition.index.size_bytes, partition.ended_up_to
            is_there = await partition.shard.replicas.have(partition.keys.touched, self.wanted)
        except NotEnoughReplicas:
            return _TOO_FEW_RETRY_S
        except PartitionGone as error:
            self._answer(error)
            return _RETRY_S
        except StoreError:
            return _RETRY_S
        if not is_there:
            return 0
        if place == partition.slot.place:
            self._timeline, self._sure_end, self._term = place.timeline, end, term
            self._show(end, size_bytes, stable_end)
            self._save_soon()
        return 0

    async def _is_at_its_server(self) -> bool:
        """Whether the log is read without being sent on: replicas of the server that its slot is moving from say
        nothing about a log that has gone already."""
        partition, place = self._partition, self._partition.slot.place
        partition.doubt()
        await partition.confirm()
        if partition.slot.place != place:
            return False
        self._asked = place.asked
        return True

    def _show(self, end: int, size_bytes: int, stable_end: int) -> None:
        if end > self._end:
            self._end, self._bytes, self._stable_end, self._showed_all = end, size_bytes, stable_end, False
            self._partition.wake()

    async def _load(self) -> None:
        """After a take-over: records readable before stay readable, even while replicas are away."""
        partition, term = self._partition, self._partition.nodes.term
        end = int(await partition.link.call("HGET", partition.keys.meta, "copied") or 0)
        if not partition.is_in_step:
            return
        size_bytes = partition.index.size_bytes - partition.index.bytes_since(end)
        self._show(end, max(self._bytes, size_bytes), min(end, partition.ended_up_to))
        self._loaded_in = term

    def _answer(self, error: KafkaError | None) -> None:
        """Answers confirmed batches; all of them after an error, or when no confirmation is needed any more."""
        is_over = error is not None or not self.wanted
        left = []
        for waiter in self._waiters:
            if waiter.done.done():
                continue
            if not is_over and not self._is_sure_of(waiter.end):
                left.append(waiter)
            elif error is not None:
                waiter.done.set_exception(error)
            else:
                waiter.done.set_result(None)
        self._waiters = left


def _after_append(why: str) -> KafkaError:
    return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, f"The batch is in the log. {why}")

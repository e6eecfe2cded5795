"""The coordinator: the requests about the groups that belong to this node.

A group is loaded at its first use, or at the start if it is stored. A request for a group that is not ours, or while
our lease is in doubt, is refused before any state is looked at (NOT_COORDINATOR); while Redis is away whatever has to
be stored is refused so that clients try again (COORDINATOR_NOT_AVAILABLE), and nobody loses its place by it.

Groups that do not exist leave nothing behind: a name is kept only while somebody is being answered about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, cast

from headrace.broker.group_upkeep import GroupUpkeep
from headrace.broker.live_group import LiveGroup, Trust
from headrace.groups import GroupSettings
from headrace.groups.answers import Answer, CommitAnswer, OffsetDeleteAnswer, refusal
from headrace.groups.describe import DescribedGroup, describe
from headrace.groups.errors import ErrorCode as GroupError
from headrace.groups.events import CommitCheck, Event, OffsetDeleteCheck, Request
from headrace.store.errors import OutcomeUnknown, StoreAway, StoreError
from headrace.store.groups import Committed, Place
from headrace.store.mirror import Mirror
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_LOAD_AT_ONCE = 64


class Coordinator:
    """The groups of this node."""

    def __init__(self, store: Store, settings: GroupSettings, retention_check_ms: int) -> None:
        self.store = store
        self.settings = settings
        self.mirror = Mirror(store)
        self.live: dict[str, LiveGroup] = {}
        self._loading: dict[str, asyncio.Task[LiveGroup]] = {}
        self._upkeep = GroupUpkeep(self, retention_check_ms)
        self._wall_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000
        self._is_closed = False
        self._told_trouble = ""

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Loads the stored groups and looks after them, in the background."""
        self._upkeep.start()

    def stop(self) -> None:
        """Decides nothing any more: what is stored is what the next coordinator starts from."""
        self._is_closed = True
        for live in list(self.live.values()):
            live.drop()

    def now_ms(self) -> int:
        """The wall clock as it was at the start, advanced by the monotonic one."""
        return self._wall_ms + time.monotonic_ns() // 1_000_000

    # -- whose groups -------------------------------------------------------------------------------------------

    @property
    def trust(self) -> Trust:
        """A look at the store counts until one of these changes."""
        return Trust(self.store.link.generation, self.store.nodes.term)

    def is_mine(self, group_id: str) -> bool:
        """Whether the group belongs to this node."""
        nodes = self.store.nodes
        return nodes.owner(group_id.encode()).id == nodes.me.id

    def may_decide(self, group_id: str) -> bool:
        """Whether the group is ours and our lease is beyond doubt."""
        return not self._is_closed and self.store.nodes.lease_is_valid and self.is_mine(group_id)

    def check_owner(self, group_id: str) -> None:
        """Raises NOT_COORDINATOR unless we may decide."""
        if not self.may_decide(group_id):
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")

    # -- requests -----------------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Answer:
        """Decides a request and waits for its answer, which may be held back until others have come."""
        try:
            live = self.live.get(request.group_id) or await self._loaded(request.group_id)
        except KafkaError as error:
            return refusal(request, self._as_group_error(error))
        if not live.take(request):
            await self.decide_in_turn(request)
        return await cast("asyncio.Future[Answer]", request.token)

    async def decide_in_turn(self, request: Request) -> None:
        """Decides a request alone with its group: it has to be stored, or the group to be looked up."""
        future = cast("asyncio.Future[Answer]", request.token)
        try:
            async with self.locked(request.group_id) as live:
                await live.decide(cast("Event", request))
        except KafkaError as error:
            if not future.done():
                future.set_result(refusal(request, self._as_group_error(error)))
        except Exception as error:
            if not future.done():
                future.set_exception(error)

    async def commit(self, check: CommitCheck, offsets: dict[Place, Committed]) -> GroupError:
        """Stores offsets if the group lets this member commit."""
        try:
            async with self.locked(check.group_id) as live:
                await live.decide(check)
                error = cast("asyncio.Future[CommitAnswer]", check.token).result().error
                if error or not offsets:
                    return error
                await live.commit(offsets)
                for place, committed in offsets.items():
                    self.mirror.committed(check.group_id, place, committed.offset)
                self._told_trouble = ""
        except KafkaError as error:
            return self._as_group_error(error)
        return GroupError.NONE

    async def delete_offsets(self, check: OffsetDeleteCheck, places: Iterable[Place]) -> OffsetDeleteAnswer:
        """Forgets offsets of topics that nobody in the group reads."""
        try:
            async with self.locked(check.group_id) as live:
                await live.decide(check)
                answer = cast("asyncio.Future[OffsetDeleteAnswer]", check.token).result()
                if not answer.error:
                    await live.forget_offsets(place for place in places if place[0] not in answer.subscribed)
                return answer
        except KafkaError as error:
            return OffsetDeleteAnswer(self._as_group_error(error))

    async def find(self, group_id: str) -> LiveGroup:
        """A group for looking at; the caller checks `exists`."""
        try:
            async with self.locked(group_id) as live:
                return live
        except KafkaError as error:
            raise self._as_coordinator_error(error) from None

    async def all(self) -> list[LiveGroup]:
        """The groups of this node, those that were not touched yet included."""
        try:
            return await self.load_all()
        except KafkaError as error:
            raise self._as_coordinator_error(error) from None

    async def describe_identity(self, group_id: str) -> DescribedGroup | None:
        """What Kafka's own APIs have no field for: the lasting id, the locator, the generation."""
        live = await self.find(group_id)
        return describe(live.group, group_id, version=0) if live.exists else None

    def valid_offset(self, live: LiveGroup, place: Place) -> Committed | None:
        """A committed offset of the topic as it is now, not of one that was deleted."""
        committed = live.offsets.get(place)
        topic = self.store.catalogue.by_name.get(place[0])
        return committed if committed is not None and topic is not None and topic.id == committed.topic_id else None

    # -- loading ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def locked(self, group_id: str) -> AsyncIterator[LiveGroup]:
        """The group, with nobody else at it. It may have gone while we waited: then it is looked up again."""
        while True:
            live = self.live.get(group_id) or await self._loaded(group_id)
            async with live.alone():
                self.check_owner(group_id)
                if not live.is_gone:
                    await live.settle()
                if live.is_gone:
                    continue
                try:
                    yield live
                finally:
                    if live.is_blank:
                        live.drop()
                return

    async def _loaded(self, group_id: str) -> LiveGroup:
        """Reads a group of ours from the store; everybody who waits for it shares one reading."""
        self.check_owner(group_id)
        task = self._loading.get(group_id)
        if task is None:
            task = self._loading[group_id] = asyncio.create_task(self._read(group_id), name=f"load group {group_id}")
            task.add_done_callback(_retrieve)
        return await asyncio.shield(task)

    async def _read(self, group_id: str) -> LiveGroup:
        live = LiveGroup(group_id, self)
        try:
            await live.load()
            self.live[group_id] = live
            return live
        finally:
            del self._loading[group_id]

    async def load_all(self) -> list[LiveGroup]:
        """Loads every group of this node; StoreError if one cannot be loaded."""
        names = [name for name in await self.store.groups.names() if self.may_decide(name)]
        found: list[LiveGroup] = []
        for at in range(0, len(names), _LOAD_AT_ONCE):
            found += await asyncio.gather(*(self._settled(name) for name in names[at : at + _LOAD_AT_ONCE]))
        return [live for live in found if live.exists]

    async def _settled(self, group_id: str) -> LiveGroup:
        async with self.locked(group_id) as live:
            return live

    def forget(self, live: LiveGroup) -> None:
        """Told by a group that it is gone."""
        if self.live.get(live.id) is live:
            del self.live[live.id]

    # -- trouble ------------------------------------------------------------------------------------------------

    def _as_group_error(self, error: KafkaError) -> GroupError:
        """A store that is away is a coordinator that is: clients look for it again and retry."""
        if error.code == ErrorCode.NOT_COORDINATOR:
            return GroupError.NOT_COORDINATOR
        if isinstance(error, StoreError) and not isinstance(error, StoreAway | OutcomeUnknown):
            self._tell(str(error))
        return GroupError.COORDINATOR_NOT_AVAILABLE

    def _as_coordinator_error(self, error: KafkaError) -> KafkaError:
        return KafkaError(ErrorCode(self._as_group_error(error)), error.message or "")

    def _tell(self, trouble: str) -> None:
        """Once, not with every commit of every member."""
        if trouble != self._told_trouble:
            self._told_trouble = trouble
            log.error("the store refuses what groups write", extra={"why": trouble})


def new_token() -> asyncio.Future[Any]:
    """The name of an answer that is owed."""
    return asyncio.get_running_loop().create_future()


def _retrieve(task: asyncio.Task[LiveGroup]) -> None:
    """A failure that nobody waits for any more is no unhandled one."""
    if not task.cancelled():
        task.exception()

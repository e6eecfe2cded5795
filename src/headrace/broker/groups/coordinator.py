"""The group coordinator: the handlers' interface to the groups of this node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar, cast

from headrace.broker.groups.kind import GroupKind, coordinator_error
from headrace.broker.groups.offsets_feed import OffsetsFeed
from headrace.broker.groups.offsets_topic import OffsetsTopic
from headrace.broker.groups.pending import PendingOffsets
from headrace.broker.groups.retention import OffsetRetention
from headrace.broker.owned.contract import Name
from headrace.broker.owned.runtime import Runtime
from headrace.broker.owned.thing import Thing
from headrace.broker.owned.upkeep import OwnedUpkeep
from headrace.groups.classic import ClassicState, Group
from headrace.groups.classic.events import Commit, OffsetDelete, Request
from headrace.groups.settings import GroupSettings
from headrace.store.cluster.owned.groups import Committed
from headrace.store.cluster.owned.mirror import Mirror
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_PATIENCE_S = 3.0
_RETRY_S = 0.1


class Coordinator:
    """The groups of this node."""

    def __init__(self, store: Store, settings: GroupSettings, retention_check_ms: int) -> None:
        self._store = store
        self.now_ms = store.clock.steady_ms
        feed = OffsetsFeed(store)
        kind = GroupKind(store.groups, Mirror(store), feed, settings, store.clock)
        self._groups: Runtime[Group] = Runtime(store, store.groups.owned, kind, self.now_ms)
        self.submit = self._groups.ask
        """Decides a request whose token acts like a future, and whose answer does not depend on offsets."""
        self._upkeep = OwnedUpkeep(self._groups)
        self._offsets_topic = OffsetsTopic(store, self._groups, feed)
        self._retention = OffsetRetention(store, self._groups, retention_check_ms)
        self.pending = PendingOffsets(store, self._groups, kind.pending)

    def start(self) -> None:
        """Loads the stored groups and looks after them, in the background."""
        self._store.nodes.on_change.append(self._upkeep.wake)
        self._store.spawn(self._upkeep.run())
        self._store.spawn(self._retention.run())
        self._store.spawn(self.pending.run())
        self._store.spawn(self._offsets_topic.run())

    def stop(self) -> None:
        """Stops deciding: the next coordinator starts from the stored state."""
        self._groups.close()

    def let_go(self) -> None:
        """Gives up groups that other nodes own by now; parked requests are sent to the new owner."""
        self._upkeep.let_go_what_moved()

    async def leave_lost(self, patience_s: float) -> None:
        """Writes back what the store may have lost, before the node stops."""
        await self._groups.leave_lost(patience_s)

    def ask(self, org: str, request: Request, kind: type[Answer]) -> Awaitable[Answer]:
        """Decides a request; its answer, of this kind, may be held back until others have come."""
        answer = cast("asyncio.Future[Answer]", request.token)
        name = Name(org, request.group_id)
        if isinstance(request, Commit | OffsetDelete) and self.pending.may_have_some(name):
            return self._ask_behind_pending(name, request, answer)
        self._groups.ask(name, request, answer)
        return answer

    async def _ask_behind_pending(self, name: Name, request: Request, answer: asyncio.Future[Answer]) -> Answer:
        """The same, after earlier commits are settled."""
        await self.pending.settle_quietly(name)
        self._groups.ask(name, request, answer)
        return await answer

    async def find(self, org: str, group_id: str) -> Thing[Group]:
        """A group for looking at; the caller checks whether it exists."""
        try:
            name = Name(org, group_id)
            found = await self._groups.current(name)
            return await self.pending.settle(name) if self.pending.may_have_some(name) else found
        except KafkaError as error:
            raise _as_coordinator_error(error) from None

    async def wait_for(self, org: str, group_id: str) -> Thing[Group]:
        """The same, but while the store or our lease is away it waits a moment.

        Consumers need it to begin, and librdkafka's report an error to their user after a few quick refusals.
        """
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + _PATIENCE_S
        while True:
            try:
                return await self.find(org, group_id)
            except KafkaError as error:
                if not self._groups.may_come_back(Name(org, group_id)):
                    raise
                if now_s() >= until_s:
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from None
                await asyncio.sleep(_RETRY_S)

    async def all(self, org: str) -> tuple[list[Group], ErrorCode]:
        """An organisation's groups at this node, including those not loaded yet, and an error if there may be more.

        A list belongs to no coordinator that a client could look for: it asks this node again.
        """
        found, trouble = await self._groups.look_at_known(org)
        groups = [
            group.state for group in found if group.state is not None and group.state.state is not ClassicState.DEAD
        ]
        return groups, ErrorCode.NONE if trouble is None else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def valid_offset(self, group: Thing[Group], place: TopicPartition) -> Committed | None:
        """A committed offset of the current topic, not of a deleted one."""
        committed: Committed | None = group.rows.get(place)
        topic = self._store.organisations[group.name.org].catalogue.by_name.get(place[0])
        return committed if committed is not None and topic is not None and topic.id == committed.topic_id else None


def _as_coordinator_error(error: KafkaError) -> KafkaError:
    return KafkaError(coordinator_error(error), error.message or "")

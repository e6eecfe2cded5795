"""`__consumer_offsets`: the groups' commits as a topic, for tools that read them there (docs/decisions/032).

Commits live in the store, one atomic write each. The topic is a view of them that is written while somebody reads it:
its leader sees a long poll, says so to all nodes, and each of them writes what its groups have committed, then every
further commit as it comes. When the last reader has been gone for a minute the topic is emptied, and commits cost
nothing again. All is written again whenever groups may have moved, or the store may have lost something.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headrace.broker.groups.offsets_feed import FeedKey, OffsetsFeed, Shown
from headrace.broker.network.flow import Turns
from headrace.broker.owned.contract import Name
from headrace.broker.owned.runtime import Runtime
from headrace.broker.owned.thing import Thing
from headrace.groups.classic import ClassicState, Group
from headrace.store.cluster.offsets_watch import OffsetsWatch
from headrace.store.cluster.owned.groups import Committed
from headrace.ticks import tick
from headrace.wire.errors import KafkaError
from headrace.wire.offsets_topic import OFFSETS_TOPIC, ShownGroup, ShownMember

if TYPE_CHECKING:
    from headrace.store.cluster.catalogue import Topic
    from headrace.store.organisation import Organisation
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.5
_AT_REST: Final = (ClassicState.EMPTY, ClassicState.STABLE)
"""The states in which Kafka writes a group down."""

Moment = tuple[object, ...]
"""What has to stay the same for what was written to be complete."""


class OffsetsTopic:
    """Writes the topic of each organisation, as far as this node's groups are concerned."""

    def __init__(self, store: Store, groups: Runtime[Group], feed: OffsetsFeed) -> None:
        self._store = store
        self._groups = groups
        self._feed = feed
        self._watch = OffsetsWatch(store.topology, store.keys)
        self._written: dict[str, Moment] = {}
        self._shown: dict[Name, Group] = {}
        """Groups as they were last written."""

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            await tick(_LOOK_EVERY_S)
            for organisation in list(self._store.organisations.values()):
                try:
                    await self._look(organisation)
                except KafkaError as error:
                    log.debug("looking for readers is postponed", extra={"why": str(error)})
                except Exception:
                    log.exception("__consumer_offsets is not written")

    async def _look(self, organisation: Organisation) -> None:
        org, topic = organisation.name, organisation.catalogue.by_name.get(OFFSETS_TOPIC)
        if topic is None or topic.is_stream:
            self._stop(org)
            return
        token = await self._watch.token(org, topic.id)
        if self._has_readers(organisation, topic):
            if token is None:
                await self._empty(organisation, topic)  # what is left of an earlier reader may not hold any more
                token = await self._watch.begin(org, topic.id)
            else:
                await self._watch.renew(org)
        if token is None:
            if self._stop(org) and self._store.nodes.leads(topic, 0):
                await self._empty(organisation, topic)
            return
        self._feed.open(org)
        moment = self._moment(token, topic)
        if self._written.get(org) != moment:
            self._forget_shown(org)
            await self._write_all(organisation)
            self._written[org] = moment
        else:
            self._write_changed_groups(org)

    def _stop(self, org: str) -> bool:
        """Whether the topic was being written."""
        if self._written.pop(org, None) is not None:
            self._forget_shown(org)
        return self._feed.close(org)

    def _forget_shown(self, org: str) -> None:
        self._shown = {name: group for name, group in self._shown.items() if name.org != org}

    def _has_readers(self, organisation: Organisation, topic: Topic) -> bool:
        """Whether a long poll waits here: who has read all there is waits nearly all the time."""
        partition = organisation.opened.get((topic.uuid, 0))
        return partition is not None and bool(partition.watchers) and self._store.nodes.leads(topic, 0)

    def _moment(self, token: bytes, topic: Topic) -> Moment:
        nodes = self._store.nodes
        live = tuple(node.id for node in nodes.live)
        return token, topic.id, live, nodes.term, nodes.is_settled, self._store.topology.timeline

    async def _empty(self, organisation: Organisation, topic: Topic) -> None:
        partition = await organisation.partition(topic, 0)
        await partition.confirm()
        if partition.log_start < partition.end:
            await partition.delete_before(partition.end)

    # -- what is written ----------------------------------------------------------------------------------------

    async def _write_all(self, organisation: Organisation) -> None:
        topics = organisation.catalogue.by_name
        turns = Turns()
        for thing in await self._groups.look_at_all(organisation.name):
            if turns.is_over():
                await asyncio.sleep(0)
            if thing.is_gone:
                continue
            shown: dict[FeedKey, Shown] = {}
            for row, committed in thing.rows.items():
                topic = topics.get(row[0]) if isinstance(committed, Committed) else None
                if topic is not None and topic.id == committed.topic_id:
                    shown[FeedKey(thing.name.id, *row)] = committed
            self._feed.note(organisation.name, shown)
            self._write_group(thing)

    def _write_changed_groups(self, org: str) -> None:
        self._shown = {name: group for name, group in self._shown.items() if name in self._groups.things}
        for name, thing in list(self._groups.things.items()):
            if name.org == org and thing.state is not self._shown.get(name):
                self._write_group(thing)

    def _write_group(self, thing: Thing[Group]) -> None:
        """Members and assignments, if the group has ever had any and they are not about to change."""
        group = thing.state
        if group is None or group.identity is None or group.state not in _AT_REST or not group.is_stored:
            return
        before = self._shown.get(thing.name)
        self._shown[thing.name] = group
        if before is None or _differ(before, group):
            shown = _shown(group, self._groups.now_ms())
            self._feed.note(thing.name.org, {FeedKey(group.group_id): shown})


def _differ(one: Group, other: Group) -> bool:
    """Whether members or assignments are other than before; frozen, they are compared by identity first."""
    return (
        one.generation != other.generation
        or one.leader != other.leader
        or one.are_assigned != other.are_assigned
        or one.members != other.members
    )


def _shown(group: Group, now_ms: int) -> ShownGroup:
    return ShownGroup(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        since_ms=now_ms,
        members=tuple(
            ShownMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(group.protocol_name) or b"",
                group.assignment(member),
            )
            for member in group.members.values()
        ),
    )

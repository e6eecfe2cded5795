"""The live nodes, and this node's own lease.

A restarted node takes over its own lease at once: it has the port on the same machine, so the previous holder is gone.
Its row says whether it serves yet; others list it to clients only then.

The list of live nodes is frozen while the store is unavailable, and for a lease after that (`outages.py`).

Leadership follows from the list of live nodes (`leadership.py`). A leader is merely the node that is fastest at a
partition: two that both believe they lead are safe (writer.py).

Copies of the data are up to the store. A partition's replicas, as shown to clients, are its leader and the nodes that
would lead it next: each can serve all of it as soon as it leads, so all replicas are in sync.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from itertools import chain, count
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.clock import Clock
from headrace.store.cluster.nodes.endpoints import Node, Registration, State
from headrace.store.cluster.nodes.hung_processes import HungProcesses
from headrace.store.cluster.nodes.leadership import Leadership
from headrace.store.cluster.nodes.leases import Leases, SeenLease
from headrace.store.cluster.nodes.machine import machine_id
from headrace.store.cluster.nodes.outages import Outages
from headrace.store.cluster.nodes.restored import Restored
from headrace.store.cluster.nodes.time_away import TimeAway
from headrace.store.lasting import Lasting
from headrace.store.redis.errors import StoreError

if TYPE_CHECKING:
    from headrace.store.cluster.catalogue import Topic

log = logging.getLogger(__name__)

ANY_ID: Final = -1
"""A node that has no id yet: it takes a free one."""
_SLEPT_OF_A_LEASE: Final = 1 / 2
"""A process that stood still for so much of a lease has slept; it looks at its clock much more often."""
_CLAIM_POLL_S: Final = 0.05
_HEARD_S: Final = 0.05
"""By then the others have heard that a node serves again: those who led meanwhile stop before it begins."""


class NodeIdTaken(Exception):
    """Another live broker has this node id."""


class Nodes:
    """This node's lease, and the nodes that are alive."""

    def __init__(self, leases: Leases, me: Node, clock: Clock, process: str, servers: Callable[[], str]) -> None:
        self.me = me
        self.live: list[Node] = [me]
        self.seen: list[SeenLease] = []
        """As the store had it at the last look."""
        self.term = 0
        """Rises whenever another node may have led our partitions: the nodes changed, or our lease had run out."""
        self.is_leaving = False
        self.on_change: list[Callable[[], None]] = []
        """Called after `live` changed."""
        self.on_look: list[Callable[[], None]] = []
        """Called after each look at who is alive: the same node may be another process."""
        self.on_claim: Callable[[], None] = lambda: None
        """Called after a lease that was lost was claimed again."""
        self._leases = leases
        self._lease_s = leases.lease_ms / 1000
        self._now_s = clock.monotonic_s
        self._token = process
        self._state: State = "serving"
        self._yields = False
        """Whether it served, and says that it is starting until others have restored what they acknowledged."""
        self._leadership = Leadership(self.live)
        self._valid_until = 0.0
        self._slept_s = self._lease_s * _SLEPT_OF_A_LEASE
        self._awake_at = 0.0
        """When the process last ran; stays as it is once it has overslept, until it has its lease again."""
        self._must_look = False
        """Whether another node came or went while a renewal was under way."""
        self._moved_at = -math.inf
        self._timeline: int | None = None
        self.outages = Outages(self._lease_s)
        self._time_away = TimeAway(self._lease_s)
        self._hung = HungProcesses(process, self._lease_s)
        self.restored = Restored(servers)
        self.without_lease = Lasting(log, "this node's lease expired; claiming it again", "this node has its lease")

    # -- what others ask ----------------------------------------------------------------------------------------

    @property
    def controller(self) -> Node:
        """The node that clients send administrative requests to: any can do it, all name the same."""
        return self.live[0]

    @property
    def lease_is_valid(self) -> bool:
        """By our own monotonic clock, counted from before the renewal was sent."""
        return self._now_s() < self._valid_until

    @property
    def has_overslept(self) -> bool:
        """Whether this process was stopped while its lease ran out: other nodes lead its partitions by now.

        It is not, if only the server with the leases does not answer, however slowly: then nobody takes over.
        """
        now = self._now_s()
        return now >= self._valid_until and now - self._awake_at > self._slept_s

    @property
    def goes_on(self) -> bool:
        """Whether requests are served: its lease is valid, or ran out because the leases' server does not answer."""
        is_cut_off = self.outages.is_silent and not self.without_lease.is_met and not self.is_leaving
        return self.lease_is_valid or (is_cut_off and not self.has_overslept and not self._time_away.is_looking)

    @property
    def is_away(self) -> bool:
        """Whether another node may lead what this one leads by its own list, until it has its lease again."""
        return (self.has_overslept and self._has_others) or self._time_away.is_looking

    @property
    def _has_others(self) -> bool:
        """Whether there are other nodes that are not known to be dead: one that hung may have come back."""
        return any(one.row.node.id != self.me.id and one.row.state != "gone" for one in self.seen)

    @property
    def is_settled(self) -> bool:
        """Whether no partition has moved between nodes for so long that clients know where each one is."""
        return self.lease_is_valid and self._now_s() - self._moved_at >= self._lease_s

    @property
    def have_requests_come(self) -> bool:
        """The same, and whether none that was sent to another node before can be on its way any more."""
        return self.is_settled and self._hung.have_answered(self._moved_at, self._now_s())

    def after_requests(self, are_slow: bool = False) -> Callable[[], bool]:
        """Tells whether no request that was sent before now can be on its way any more, not even a slow one."""
        began = self._now_s()
        return lambda: self._hung.have_answered(began, self._now_s(), are_slow)

    def was_replaced_since(self, term: int) -> bool:
        """Whether other nodes may have led our partitions after a term, and only just."""
        return self._time_away.hides(term, self._now_s())

    def was_away_since(self, term: int) -> bool:
        """The same, however long ago; it may not have noticed yet."""
        return self.is_away or self._time_away.covers(term)

    def leader(self, topic: Topic, partition: int) -> Node:
        """The live node that leads a partition."""
        return self._leadership.leader(topic, partition)

    def leads(self, topic: Topic, partition: int) -> bool:
        """Whether this node leads a partition."""
        return self._leadership.leader(topic, partition).id == self.me.id

    @property
    def is_alone(self) -> bool:
        """Whether this is the only live node, which leads everything."""
        return len(self.live) == 1 and self.live[0].id == self.me.id

    @property
    def leads_all_now(self) -> bool:
        """Whether it is the only live node and has not overslept: then it leads every partition."""
        return self.is_alone and not self.has_overslept

    def leads_now(self, topic: Topic, partition: int) -> bool:
        """Whether it leads a partition and has not overslept, in one question: every request asks it."""
        live = self.live
        leader = live[0] if len(live) == 1 else self._leadership.leader(topic, partition)
        if leader.id != self.me.id:
            return False
        now = self._now_s()
        return now < self._valid_until or now - self._awake_at <= self._slept_s

    def replicas(self, topic: Topic, partition: int) -> list[Node]:
        """The leader and the live nodes that would lead a partition next, as many as the topic asks for."""
        return self._leadership.replicas(topic, partition)

    def owner(self, what: bytes) -> Node:
        """The node that something belongs to."""
        return self._leadership.owner(what)

    def owns_now(self, what: bytes) -> bool:
        """Whether something belongs to this node and its lease is valid, in one question: every group request asks."""
        live = self.live
        owner = live[0] if len(live) == 1 else self._leadership.owner(what)
        return owner.id == self.me.id and self._now_s() < self._valid_until

    def may_own(self, what: bytes) -> bool:
        """Whether something belongs to this node, or did when its lease ran out: the server of the leases is away.

        Another node may own it by now, if only we cannot reach that server. Its token tells.
        """
        return self.owner(what).id == self.me.id and not self.has_overslept

    # -- the lease ----------------------------------------------------------------------------------------------

    @property
    def _mine(self) -> Registration:
        is_back = self._time_away.has_just_ended(self._now_s())
        return Registration(self.me, self._token, machine_id(), self._state, is_back, self.restored.on)

    async def claim(self, state: State = "serving") -> None:
        """Takes the lease of our node id; NodeIdTaken if another broker holds it. Without an id: of a free one."""
        self._state, self.restored.on = state, self.restored.servers()  # whoever starts has nothing to restore
        if self.me.id != ANY_ID:
            await self._claim_when_free()
            return
        nobody = self.me
        for candidate in await self._candidates():
            self.me = msgspec.structs.replace(nobody, id=candidate)
            try:
                if await self._claim():
                    return
            except StoreError:
                self.me = nobody  # whoever tries again finds the id by the address, if it was claimed
                raise

    async def serve(self) -> None:
        """Clients are answered from now on: other nodes may name this one."""
        await self.claim("serving")

    async def _candidates(self) -> Iterable[int]:
        """The id that a broker at our address had before, then all others."""
        ours = [one.node.id for one in await self._leases.rows() if one.node.shares_address(self.me)]
        return chain(ours, count())

    async def _claim_when_free(self) -> None:
        """A holder that renews is alive; otherwise wait for its lease to expire, which is short."""
        left_ms = math.inf
        while not (self.is_leaving or await self._claim()):
            now_ms = await self._leases.remaining_ms(self.me.id)
            if now_ms > left_ms:
                holder = await self._leases.row(self.me.id)
                where = f"at {holder.node.endpoints[0]}" if holder else "that is just starting"
                raise NodeIdTaken(
                    f"node id {self.me.id} is in use by a broker {where}; start this one with another --node-id"
                )
            left_ms = now_ms if now_ms >= 0 else left_ms
            await asyncio.sleep(_CLAIM_POLL_S)

    async def _claim(self) -> bool:
        holder = await self._leases.row(self.me.id)
        asked = self._now_s()
        before = holder.token if holder is not None and holder.makes_way_for(self._mine) else ""
        if not await self._leases.claim(self._mine, instead_of=before) or self.is_leaving:
            return False
        if holder is None:
            self.outages.lose_rows(asked, are_all=self._valid_until > 0)
        self._awake_at, self._valid_until = asked, asked + self._lease_s
        self.term += 1
        await self.refresh()
        return True

    def note_awake(self) -> None:
        """The process runs, which helps only if it has not overslept."""
        if not self.has_overslept:
            self._awake_at = self._now_s()
            # After an outage that cost us the lease, others wait for a whole one before they take over (`outages.py`).
            self._slept_s = self._lease_s * (_SLEPT_OF_A_LEASE if self.lease_is_valid else 1)

    async def renew(self) -> None:
        """Keeps the lease; claims it again if it ran out meanwhile."""
        if self.is_leaving:
            return
        if has_overslept := self.has_overslept:
            # The server may have been stopped too, and be replaced: it would still give us the lease.
            await self._leases.check_server()
        asked = self._now_s()
        self.outages.ask(asked)
        is_ours = await self._leases.renew(self._mine)
        if self.is_leaving:
            return
        was_silent, has_run_out = self.outages.was_long(self._now_s()), asked >= self._valid_until
        if was_silent or not (is_ours or has_run_out or await self._am_deposed()):
            self.outages.wait_for(self.live, self._now_s())
        if has_run_out or not is_ours:
            self._moved_at = asked
            is_elsewhere = self._timeline not in (None, self._leases.timeline)
            # Nobody takes over while the store is silent, but one that is still the same may be silent to us alone.
            may_be_all = has_run_out and (is_ours or is_elsewhere)
            was_away = (has_overslept or not was_silent) if may_be_all else not is_elsewhere
            if was_away and self._has_others and not await self._come_back(asked, is_elsewhere):
                self.outages.end()
                return
        if is_ours:
            if has_run_out or self._time_away.is_over(asked, self.term):
                self.term += 1
            self._awake_at, self._valid_until = asked, asked + self._lease_s
            await self.refresh()
            if not any(one.row.says_the_same(self._mine) for one in self.seen):
                await self._claim()
            if news := self.restored.news:
                await self._leases.claim(msgspec.structs.replace(self._mine, restored_on=news))
                self.restored.on = news
            if self._yields and (self.restored.by_all(self.seen) or not self._time_away.yields(asked)):
                self._state, self._yields = "serving", False
                await self._leases.claim(self._mine)
                self.on_claim()
                await asyncio.sleep(_HEARD_S)
                await self.refresh()
        elif not self.is_leaving:
            self.without_lease.met(node=self.me.id)
            await self._claim_when_free()
            self.on_claim()
        self.outages.end()
        if self._must_look:
            self._must_look = False
            await self.refresh()

    async def _come_back(self, now_s: float, is_elsewhere: bool) -> bool:
        """False while it is not known whether others were awake."""
        if is_elsewhere and self._state == "serving":
            others = (one for one in await self._leases.look() if one.row.node.id != self.me.id)
            have_led = self._time_away.others_led(others, now_s)
            if have_led is None:
                return False
            if have_led:
                self._state, self._yields = "starting", True
        self._time_away.end(now_s, to_another_server=is_elsewhere)
        return True

    async def _am_deposed(self) -> bool:
        return (row := await self._leases.row(self.me.id)) is not None and row.state == "gone"

    async def release(self) -> None:
        """Gives the lease back, so that other nodes take over at once."""
        self.is_leaving = True
        self._valid_until = 0.0
        await self._leases.drop(self._mine)

    def step_down(self) -> bool:
        """Gives up all partitions and groups; false, without effect, if no other node is alive."""
        if others := [node for node in self.live if node.id != self.me.id]:
            self.is_leaving = True
            self._change(others)
        return bool(others)

    async def depose(self, dead: Registration) -> bool:
        """Takes the lease from a process that a neighbour found dead; whether it still had it."""
        done = await self._leases.depose(dead)
        if done:
            await self.look_again()
        return done

    # -- who is alive -------------------------------------------------------------------------------------------

    async def look_again(self) -> None:
        """Another node came or went.

        While a renewal waits for its answer, or our own lease has run out, the renewal is what looks: only that knows
        of the outage, in which leases ran out. To whoever looked before, the first node back would be the only one.
        """
        if self.outages.is_silent and not self.is_leaving:
            self._must_look = True
        elif self.lease_is_valid or self.is_leaving:
            await self.refresh()

    async def refresh(self) -> None:
        """Learns who is alive."""
        self.seen = await self._leases.look()
        self._hung.look(self.seen, self._now_s())
        before, self._timeline = self._timeline, self._leases.timeline
        if before is not None and before != self._timeline:  # it may have lost leases of nodes that are alive
            self.outages.wait_for(self.live, self._now_s(), is_elsewhere=True)
        if all(one.row.token != self._token for one in self.seen):
            self.outages.lose_rows(self._now_s(), are_all=not self.seen)
        if (live := self._alive(self.seen)) != self.live:
            self._change(live)
        self.outages.look(self.seen)
        for tell in self.on_look:
            tell()

    def _change(self, live: list[Node]) -> None:
        if max(len(live), len(self.live)) > 1:
            self._moved_at = self._now_s()
        before, now = ([node.id for node in nodes] for nodes in (self.live, live))
        log.info("the live nodes changed", extra={"before": before, "now": now})
        self.live = live
        self.term += 1
        self._leadership = Leadership(live)
        for tell in self.on_change:
            tell()

    def _alive(self, seen: list[SeenLease]) -> list[Node]:
        held = [one.row for one in seen if one.is_held and not (self.is_leaving and one.row.node.id == self.me.id)]
        alive = self.outages.survivors(seen, self._now_s())
        alive |= {one.node.id: one.node for one in held if one.state == "serving"}
        if self._state == "starting":
            alive.pop(self.me.id, None)
        if not alive:  # all are starting: somebody has to look after the partitions meanwhile
            alive = {one.node.id: one.node for one in held}
        return [alive[id] for id in sorted(alive)] or [self.me]

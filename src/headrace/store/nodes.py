"""Which brokers are alive: each holds a lease in Redis and renews it.

A node that restarts takes its own lease over at once: it could bind its port, so the one that held it before is gone.
Partitions belong to the live node with the highest rendezvous hash, so that a node that comes or goes moves only its
own share. A leader is merely the node that is fastest at a partition: two that both believe it are safe (writer.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import secrets
import time
from collections.abc import Iterable
from itertools import chain, count
from typing import Any

import msgspec

from headrace.store.keys import Keys
from headrace.store.redis import RedisLink
from headrace.store.scripts import Scripts

log = logging.getLogger(__name__)


ANY_ID = -1
"""A node that has no id yet: it takes a free one."""


class Node(msgspec.Struct, frozen=True):
    """A broker, as clients reach it."""

    id: int
    host: str
    port: int


class NodeIdTaken(Exception):
    """Another live broker has this node id."""


class Nodes:
    """This node's lease, and the nodes that are alive."""

    def __init__(self, link: RedisLink, scripts: Scripts, keys: Keys, me: Node, lease_ms: int) -> None:
        self.me = me
        self.live: list[Node] = [me]
        self.term = 0
        """Rises whenever another node may have led our partitions: the nodes changed, or our lease had run out."""
        self._link = link
        self._scripts = scripts
        self._keys = keys
        self._lease_ms = lease_ms
        self._token = secrets.token_hex(8)
        self._valid_until = 0.0
        self._moved_at = -math.inf
        self._leaders: dict[tuple[bytes, int], Node] = {}

    @property
    def controller(self) -> Node:
        """The node that clients send administrative requests to: any can do it, all name the same."""
        return self.live[0]

    @property
    def lease_is_valid(self) -> bool:
        """By our own monotonic clock, counted from before the renewal was sent."""
        return time.monotonic() < self._valid_until

    @property
    def is_settled(self) -> bool:
        """Whether no partition has moved between nodes for so long that clients know where each one is."""
        return self.lease_is_valid and time.monotonic() - self._moved_at >= self._lease_ms / 1000

    async def claim(self) -> None:
        """Takes the lease of our node id; NodeIdTaken if another broker holds it. Without an id: of a free one."""
        if self.me.id != ANY_ID:
            await self._claim()
            return
        for candidate in await self._candidates():
            self.me = msgspec.structs.replace(self.me, id=candidate)
            with contextlib.suppress(NodeIdTaken):
                await self._claim()
                return

    async def _candidates(self) -> Iterable[int]:
        """The id that a broker at our address had before, then all others."""
        reply = await self._link.call("HVALS", self._keys.nodes)
        known = [msgspec.json.decode(row, type=Node) for row in reply]
        ours = [node.id for node in known if (node.host, node.port) == (self.me.host, self.me.port)]
        return chain(ours, count())

    async def _claim(self) -> None:
        holder = await self._holder()
        asked = time.monotonic()
        lease: tuple[Any, ...] = ("SET", self._keys.node(self.me.id), self._token, "PX", self._lease_ms)
        if holder is None or (holder.host, holder.port) != (self.me.host, self.me.port):
            lease += ("NX",)
        if await self._link.call(*lease) is None:
            holder = holder or await self._holder()
            where = f"at {holder.host}:{holder.port}" if holder else "that starts just now"
            raise NodeIdTaken(
                f"node id {self.me.id} is held by a broker {where}; start this one with another --node-id"
            )
        await self._link.call("HSET", self._keys.nodes, self.me.id, msgspec.json.encode(self.me))
        self._valid_until = asked + self._lease_ms / 1000
        self.term += 1
        await self.refresh()

    async def _holder(self) -> Node | None:
        known = await self._link.call("HGET", self._keys.nodes, self.me.id)
        return msgspec.json.decode(known, type=Node) if known else None

    async def renew(self) -> None:
        """Keeps the lease; claims it again if it ran out meanwhile."""
        asked = time.monotonic()
        if await self._scripts.run("renew_lease", [self._keys.node(self.me.id)], [self._token, self._lease_ms]):
            if asked >= self._valid_until:
                self.term += 1
                self._moved_at = asked
            self._valid_until = asked + self._lease_ms / 1000
            await self.refresh()
        else:
            log.warning("the lease of this node ran out; claiming it again", extra={"node": self.me.id})
            self._moved_at = asked
            await self._claim()

    async def release(self) -> None:
        """Gives the lease back, so that other nodes take over at once."""
        self._valid_until = 0.0
        await self._scripts.run(
            "drop_lease", [self._keys.node(self.me.id), self._keys.nodes], [self._token, self.me.id]
        )

    async def refresh(self) -> None:
        """Learns who is alive."""
        reply = await self._link.call("HVALS", self._keys.nodes)
        known = sorted((msgspec.json.decode(row, type=Node) for row in reply), key=lambda node: node.id)
        leases = await self._link.pipeline(*(("EXISTS", self._keys.node(node.id)) for node in known)) if known else []
        live = [node for node, lease in zip(known, leases, strict=True) if lease] or [self.me]
        if live != self.live:
            if max(len(live), len(self.live)) > 1:
                self._moved_at = time.monotonic()
            self.live = live
            self.term += 1
            self._leaders.clear()

    def leader(self, topic_id: bytes, partition: int) -> Node:
        """The live node that leads a partition."""
        if len(self.live) == 1:
            return self.live[0]
        found = self._leaders.get((topic_id, partition))
        if found is None:
            found = self._leaders[topic_id, partition] = self.owner(topic_id + partition.to_bytes(4, "big"))
        return found

    def owner(self, what: bytes) -> Node:
        """Rendezvous: the node whose hash with `what` is highest."""
        if len(self.live) == 1:
            return self.live[0]
        return max(self.live, key=lambda node: hashlib.blake2b(what + b"%d" % node.id, digest_size=8).digest())

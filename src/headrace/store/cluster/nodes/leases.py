"""Leases in the store, and the rows that describe their holders.

A lease is a key with a time to live whose value is its holder's token; a hash has a row per node. A row is valid only
together with a lease of the same token, so the order in which the two are read does not matter. Rows outlive leases: a
node that shut down has no row, one that died still has one.

Renewals have their own connection, so they never wait behind a reply to a Fetch, and a hanging server is given up well
within a lease. But not too early: reconnecting takes several round trips, so with a short lease an early timeout on a
busy machine would lose a lease that a slow reply would have kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from headrace.store.cluster.nodes.endpoints import Registration, pack_registration, unpack_registration
from headrace.store.keys import ClusterKeys
from headrace.store.options import StoreOptions
from headrace.store.redis.errors import RedisError
from headrace.store.redis.link import Argument, RedisLink
from headrace.store.redis.scripts import Scripts

_TIMEOUTS_IN_A_LEASE: Final = 3
"""A server that hangs is given up soon enough to renew the lease on another connection."""
_LEAST_TIMEOUT_MS: Final = 1_000


def renewal_timeout_ms(options: StoreOptions) -> int:
    """After how long without an answer the connection of the leases is made again."""
    return min(options.timeout_ms, max(options.node_lease_ms // _TIMEOUTS_IN_A_LEASE, _LEAST_TIMEOUT_MS))


class SeenLease(NamedTuple):
    """A row, and whether its lease is held."""

    row: Registration
    is_held: bool

    @property
    def was_awake(self) -> bool:
        """Whether it serves, and did so all the time."""
        return self.is_held and self.row.state == "serving" and not self.row.is_back


class Leases:
    """The nodes' leases in the store."""

    def __init__(self, link: RedisLink, keys: ClusterKeys, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self._link = link
        self._scripts = Scripts(link)
        self._keys = keys
        self._unpacked: dict[bytes, Registration] = {}
        self._seen_ids: list[int] = []
        self._is_given_back = False

    @property
    def timeline(self) -> int:
        """Changes whenever leases may have been lost: another server answers."""
        return self._link.timeline

    @property
    def identity(self) -> str:
        """Identity of the server that they are on, in its current run."""
        return self._link.identity

    async def start(self) -> None:
        await self._link.start()

    async def wait_up(self, timeout_s: float) -> None:
        """Returns once there is a connection; StoreAway if it takes longer."""
        await self._link.wait_up(timeout_s)

    async def close(self) -> None:
        await self._link.close()

    async def check_server(self) -> None:
        """Raises StoreAway if the leases are on another server by now than the one that is asked."""
        await self._link.check_place()

    async def claim(self, mine: Registration, instead_of: str = "") -> bool:
        """Takes the lease unless another process holds it; a holder with the token `instead_of` loses it.

        Not after it was given back: a renewal may be under way then, and would find it gone and claim it again.
        """
        if self._is_given_back:
            return False
        arguments: list[Argument] = [mine.token, self.lease_ms, mine.node.id, pack_registration(mine), instead_of]
        return bool(await self._run("claim_lease", self._both(mine.node.id), arguments))

    async def renew(self, mine: Registration) -> bool:
        """False if it is not ours any more."""
        key = self._keys.node(mine.node.id)
        return bool(await self._run("renew_lease", [key], [mine.token, self.lease_ms]))

    async def drop(self, mine: Registration) -> None:
        """Gives it back for good, and takes the row away: this node left in order."""
        self._is_given_back = True
        await self._run("drop_lease", self._both(mine.node.id), [mine.token, mine.node.id])

    async def depose(self, seen: Registration) -> bool:
        """Takes the lease from a dead process, and from no other one; whether it still had it."""
        gone = pack_registration(msgspec.structs.replace(seen, state="gone"))
        arguments: list[Argument] = [seen.token, seen.node.id, gone]
        return bool(await self._run("depose_node", self._both(seen.node.id), arguments))

    async def remaining_ms(self, node_id: int) -> int:
        """The remaining time of a lease; negative if it is free."""
        left: int = await self._call("PTTL", self._keys.node(node_id))
        return left

    async def row(self, node_id: int) -> Registration | None:
        """The last registration of a node id."""
        row = await self._call("HGET", self._keys.nodes, node_id)
        return unpack_registration(row) if row else None

    async def rows(self) -> list[Registration]:
        """All rows, by id."""
        return self._unpack(await self._call("HVALS", self._keys.nodes))

    async def look(self) -> list[SeenLease]:
        """All rows by id, with the state of their leases; one round trip, unless the ids changed."""
        known, tokens = self._seen_ids, []
        if known:
            both = self._link.pipeline(("HVALS", self._keys.nodes), self._ask_leases(known))
            packed, tokens = await self._followed(both)
            rows = self._unpack(packed)
        else:
            rows = await self.rows()
        self._seen_ids = ids = [one.node.id for one in rows]
        if ids and ids != known:
            tokens = await self._call(*self._ask_leases(ids))
        elif not ids:
            return []
        return [SeenLease(one, token == one.token.encode()) for one, token in zip(rows, tokens, strict=True)]

    def _ask_leases(self, ids: list[int]) -> tuple[Argument, ...]:
        return ("MGET", *map(self._keys.node, ids))

    async def _run(self, name: str, keys: list[str], arguments: list[Argument]) -> Any:
        return await self._followed(self._scripts.run(name, keys, arguments))

    async def _call(self, *arguments: Argument) -> Any:
        return await self._followed(self._link.call(*arguments))

    async def _followed(self, reply: Awaitable[Any]) -> Any:
        """A link does not follow its slot: one that was redirected is made again, at the right server."""
        try:
            return await reply
        except RedisError as error:
            if error.is_redirect:
                self._link.drop("the leases are on another server")
            raise

    def _unpack(self, packed: Iterable[bytes]) -> list[Registration]:
        """Rows rarely change: each is read once."""
        self._unpacked = {row: self._unpacked.get(row) or unpack_registration(row) for row in packed}
        return sorted(self._unpacked.values(), key=lambda one: one.node.id)

    def _both(self, node_id: int) -> list[str]:
        return [self._keys.node(node_id), self._keys.nodes]

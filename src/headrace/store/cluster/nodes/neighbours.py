"""Detects dead processes of other nodes, long before their leases expire.

Each node keeps an idle connection to the next three nodes in order of ids, without requests or a login. When a process
dies, the kernel closes its connections and refuses new ones. So a broken connection is re-established at once; if that
is refused, the lease with the token seen before is deleted, and all nodes learn of it from the store.

A timeout proves nothing. Nodes that cannot reach each other but reach the store, and processes that hang, keep their
leases for as long as they renew them. An address that could never be reached from here proves nothing either. A process
that claims its lease again after being deposed is alive, whatever its port says, and is ignored from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from headrace.store.redis.errors import StoreError

if TYPE_CHECKING:
    from headrace.store.cluster.nodes.endpoints import Endpoint, Registration
    from headrace.store.cluster.nodes.nodes import Nodes

log = logging.getLogger(__name__)

_WATCHED: Final = 3
_CONNECT_PATIENCE_S: Final = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
"""Between two attempts to reach a neighbour that is not refused, and does not answer either."""
_SHORT_LIFE_S: Final = 1.0
"""A connection that the neighbour closed sooner than this is not made again at once."""
_ASKED_AGAIN_S: Final = 0.02
"""A listener with a full queue may refuse once: a dead process refuses again."""


class Neighbours:
    """The nodes that this one watches."""

    def __init__(self, nodes: Nodes, announce: Callable[[], Awaitable[None]]) -> None:
        self._nodes = nodes
        self._announce = announce
        self._watches: dict[str, asyncio.Task[None]] = {}
        """By token: another process is another neighbour."""
        self._deposed: set[str] = set()
        """Nodes that this node deposed; one that comes back counts as alive again."""

    def follow(self) -> None:
        """Watches this node's current neighbours."""
        wanted = {one.token: one for one in self._next() if one.token and one.token not in self._deposed}
        for token in self._watches.keys() - wanted.keys():
            self._watches.pop(token).cancel()
        for token in wanted.keys() - self._watches.keys():
            self._watches[token] = asyncio.create_task(self._watch(wanted[token]), name=f"neighbour {token}")

    async def close(self) -> None:
        watches = list(self._watches.values())
        self._watches.clear()
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    def _next(self) -> list[Registration]:
        """The nodes behind this one in a ring of ids."""
        live = {node.id for node in self._nodes.live}
        rows = [one.row for one in self._nodes.seen if one.is_held and one.row.node.id in live]
        me = self._nodes.me.id
        others = [row for row in rows if row.node.id != me]
        ring = [row for row in others if row.node.id > me] + [row for row in others if row.node.id < me]
        return ring[:_WATCHED]

    async def _watch(self, neighbour: Registration) -> None:
        try:
            await self._until_dead(neighbour.node.endpoints[0])
            self._deposed.add(neighbour.token)
            extra = {"node": neighbour.node.id, "address": str(neighbour.node.endpoints[0])}
            while True:
                try:
                    if await self._nodes.depose(neighbour):
                        log.warning("a node is dead: others take over", extra=extra)
                        await self._announce()
                    return
                except StoreError as error:
                    log.debug("a dead node could not be deposed", extra=extra | {"why": str(error)})
                    await asyncio.sleep(_FIRST_PAUSE_S)
        except Exception:
            log.exception("watching a node failed", extra={"node": neighbour.node.id})

    async def _until_dead(self, endpoint: Endpoint) -> None:
        """Returns once a connection that was there broke and a new one was refused."""
        loop, was_reached, pause_s = asyncio.get_running_loop(), False, _FIRST_PAUSE_S
        while True:
            try:
                line = await _connect(endpoint)
            except ConnectionRefusedError:
                if was_reached and await _refuses_again(endpoint):
                    return
            except OSError:
                pass  # cut off, or it does not know its own name: no proof of anything
            else:
                was_reached, began = True, loop.time()
                with line:
                    await _until_closed(line)
                if loop.time() - began > _SHORT_LIFE_S:
                    pause_s = _FIRST_PAUSE_S
                    continue
                # It broke at once: dead, or it turns newcomers away. The first is seen at once.
                if await _refuses_again(endpoint):
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


async def _refuses_again(endpoint: Endpoint) -> bool:
    await asyncio.sleep(_ASKED_AGAIN_S)
    try:
        line = await _connect(endpoint)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    line.close()
    return False


async def _connect(endpoint: Endpoint) -> socket.socket:
    """A connection; ConnectionRefusedError if every address of the endpoint says that nobody listens."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    trouble: list[OSError] = []
    for family, kind, protocol, _, address in found:
        line = socket.socket(family, kind, protocol)
        line.setblocking(False)
        try:
            async with asyncio.timeout(_CONNECT_PATIENCE_S):
                await loop.sock_connect(line, address)
        except OSError as error:  # a timeout is one, too
            line.close()
            trouble.append(error)
        except BaseException:
            line.close()
            raise
        else:
            with contextlib.suppress(OSError):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return line
    if trouble and all(isinstance(one, ConnectionRefusedError) for one in trouble):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")
    raise OSError(f"{endpoint} cannot be reached")


async def _until_closed(line: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while await loop.sock_recv(line, 1):
            continue  # nobody has anything to say here

"""Says to all nodes that the topic `__consumer_offsets` of an organisation is being read.

The topic's leader sees its readers and keeps a key alive for as long as there are any; all nodes look at it. Its value
has the topic's id: one that was deleted and made again is written when somebody waits for its records, not before. It
is new whenever reading begins, so that every node notices even if it looked at neither end of a pause.
"""

from __future__ import annotations

import secrets
from typing import Final

from headrace.store.keys import ClusterKeys
from headrace.store.redis.topology import Topology

_LASTS_MS: Final = 60_000
"""After the last sign of a reader."""


class OffsetsWatch:
    """The keys of all organisations."""

    def __init__(self, topology: Topology, keys: ClusterKeys) -> None:
        self._topology = topology
        self._keys = keys

    async def token(self, org: str, topic: str) -> bytes | None:
        """The value; None if nobody reads this topic, which may have been deleted and made again meanwhile."""
        key = self._keys.of(org).offsets_watch
        token: bytes | None = await self._topology.slot_of(key).link.call("GET", key)
        return token if token is not None and token.startswith(topic.encode()) else None

    async def begin(self, org: str, topic: str) -> bytes | None:
        """Somebody reads from now on; the value, which another node may have set by now."""
        key = self._keys.of(org).offsets_watch
        value = f"{topic}:{secrets.token_hex(8)}"
        await self._topology.slot_of(key).link.call("SET", key, value, "PX", _LASTS_MS)
        return await self.token(org, topic)

    async def renew(self, org: str) -> None:
        """Somebody still reads."""
        key = self._keys.of(org).offsets_watch
        await self._topology.slot_of(key).link.call("PEXPIRE", key, _LASTS_MS)

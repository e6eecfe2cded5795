"""A call: one request's access to topics and groups, and its context."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headrace.broker.access import Access
from headrace.broker.quotas.quotas import QuotaExceeded

if TYPE_CHECKING:
    from headrace.broker.network.connection import Connection
    from headrace.broker.network.requests import RequestSlot


class Call(Access):
    """The context of a request: the only way from a handler to anything else."""

    __slots__ = ("client_id", "connection", "is_strict", "pause_ms", "slot", "version")

    def __init__(self, access: Access, version: int, client_id: str, connection: Connection, slot: RequestSlot) -> None:
        self.broker = access.broker
        self.caller = access.caller
        self._organisation = access._organisation
        self._rights = access._rights
        self.version = version
        self.client_id = client_id
        self.connection = connection
        self.slot = slot
        """Its place among the connection's requests."""
        self.is_strict = False
        """Whether the client understands that changes are refused for its quota's sake."""
        self.pause_ms = 0
        """How long the client has to pause after this."""

    def new_token(self) -> asyncio.Future[Any]:
        """For the answer of a group, which may come long after the request."""
        return asyncio.get_running_loop().create_future()

    def charge_mutations(self, partitions: int) -> None:
        quotas = self.broker.quotas
        if not quotas.is_any:
            return
        try:
            pause_ms = quotas.charge_mutations(self.caller, self.client_id, partitions, strict=self.is_strict)
        except QuotaExceeded as error:
            self.pause_ms = max(self.pause_ms, error.pause_ms)
            raise
        self.pause_ms = max(self.pause_ms, pause_ms)

    def must_pause(self, key: str) -> bool:
        """Whether the client used more than its quota, and has to pause before it gets more."""
        quotas = self.broker.quotas
        if quotas.is_any:
            self.pause_ms = max(self.pause_ms, quotas.pause_ms(key, self.caller, self.client_id))
        return self.pause_ms > 0

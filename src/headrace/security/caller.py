"""The caller of a request: principal, organisation, listener and host.

Clients that do not log in are anonymous and belong to the organisation `default`.
"""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """A principal, as Kafka writes it: `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
SYSTEM = Principal("System", "headrace")
"""The broker itself, for work that nobody asked for. A login makes users, so nobody can log in as this."""


class Caller(NamedTuple):
    """The identity behind a connection, or the broker's own."""

    principal: Principal
    organisation: str
    listener: str
    """By whose endpoints the caller reaches nodes; empty for the broker itself."""
    host: str = ""
    """The address that the client connects from, as rules about hosts see it; empty for the broker itself."""


def system_caller(organisation: str) -> Caller:
    """The broker itself, at work for an organisation."""
    return Caller(SYSTEM, organisation, "")

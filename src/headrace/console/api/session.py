"""The visitor's identity, and what the console allows."""

from __future__ import annotations

import msgspec


class SessionShown(msgspec.Struct, frozen=True):
    user: str
    """Empty without logins."""
    needs_login: bool
    is_logged_in: bool
    read_only: bool
    has_nodes: bool
    """Whether the console has metrics of nodes on this machine."""
    bootstrap: str
    version: str

"""Who the visitor is, and what the console lets everybody do."""

from __future__ import annotations

import msgspec


class SessionShown(msgspec.Struct, frozen=True):
    user: str
    """Empty without logins."""
    needs_login: bool
    is_logged_in: bool
    read_only: bool
    has_nodes: bool
    """Whether nodes of this machine show their metrics here."""
    bootstrap: str
    version: str

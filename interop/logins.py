"""A broker with logins for the programs of `make interop`, and what they are told of it: by variables named LOGIN_*."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.logins.secured import ADMIN, ADMIN_PASSWORD, SecuredBroker


@contextlib.contextmanager
def login_environment(folder: Path) -> Iterator[dict[str, str]]:
    """Variables with address, authority, a user, and tokens; the broker runs for the block."""
    secured = SecuredBroker(folder)
    try:
        secured.start()
        yield {
            "LOGIN_ADDRESS": f"localhost:{secured.ports['sasl']}",
            "LOGIN_CA": str(secured.authority.ca_file),
            "LOGIN_USER": ADMIN,
            "LOGIN_PASSWORD": ADMIN_PASSWORD,
            "LOGIN_TOKEN": secured.signer.token("alice", lifetime_s=3_600),
            "LOGIN_EXPIRED_TOKEN": secured.signer.token("alice", lifetime_s=-3_600),
        }
    finally:
        secured.process.end()

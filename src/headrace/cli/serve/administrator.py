"""The first administrator: a super user created at the first start, who can then create the others.

The password comes from a variable or a file. It is removed from the environment before any other process is started,
and only its verifiers are stored.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from pathlib import Path

from headrace.cli.settings.layers import ADMIN_PASSWORD_VARIABLE
from headrace.cli.settings.table import Settings
from headrace.security.names import LoginName, parse_login_name
from headrace.security.verifiers import HASHES, SALT_BYTES, User, new_verifier
from headrace.store.embedded.data_directory import CannotStart
from headrace.store.store import Store

log = logging.getLogger(__name__)


def take_admin_password(settings: Settings) -> str:
    """Takes the password out of the environment; CannotStart if user and password are not given together."""
    password = os.environ.pop(ADMIN_PASSWORD_VARIABLE, "")
    if settings.admin_password_file:
        if password:
            raise CannotStart(f"use {ADMIN_PASSWORD_VARIABLE} or --admin-password-file, not both")
        try:
            password = Path(settings.admin_password_file).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise CannotStart(f"--admin-password-file {settings.admin_password_file}: {reason}") from None
    if password and not settings.admin_user:
        raise CannotStart("an administrator's password needs a user name: add --admin-user NAME")
    if settings.admin_user and parse_login_name(settings.admin_user) is None:
        raise CannotStart(f"--admin-user {settings.admin_user} is not a valid user name")
    return password


async def ensure_administrator(store: Store, settings: Settings, password: str) -> None:
    """Creates the user, unless its organisation already has a super user."""
    name = parse_login_name(settings.admin_user) if settings.admin_user else None
    if name is None or store.users.has_super_user(name.organisation):
        return
    if not password:
        raise CannotStart(
            f"--admin-user {settings.admin_user} does not exist yet and has no password: set "
            f"{ADMIN_PASSWORD_VARIABLE}, or use --admin-password-file"
        )
    verifiers = {}
    for mechanism in HASHES:
        salt = secrets.token_bytes(SALT_BYTES)
        verifiers[mechanism] = await asyncio.to_thread(new_verifier, mechanism, password, salt)
    is_new = await _create(store, name, User(verifiers, is_super=True))
    if is_new:
        log.info("created the first administrator", extra={"user": str(name)})


async def _create(store: Store, name: LoginName, wanted: User) -> bool:
    created = False

    def decide(present: User | None) -> User | None:
        """Another node may have been faster."""
        nonlocal created
        created = not store.users.has_super_user(name.organisation)
        return wanted if created else present

    await store.users.update(name, decide)
    return created

"""Why your own Redis cannot be used, and what to do: `serve` and `doctor` say it in the same words."""

from __future__ import annotations

from headrace.store.redis.errors import WRITE_REFUSALS, RedisError, StoreAway, StoreError

_ABOUT_PASSWORDS = ("NOAUTH", "WRONGPASS", "ERR AUTH")


def explain(error: StoreError) -> tuple[str, str]:
    """Why the first connection failed, and what to do."""
    if isinstance(error, StoreAway):
        return f"cannot reach Redis: {error.why}", error.advice or "start it, or name another with --redis"
    if isinstance(error, RedisError):
        said = error.text.split(". ")[0].rstrip(".")
        who = error.where or "Redis"
        if said.startswith(_ABOUT_PASSWORDS):
            return (
                f"{who} rejected the login: {said}",
                "check user and password: --redis redis://USER:PASSWORD@HOST:PORT",
            )
        if error.kind in WRITE_REFUSALS:
            return f"{who} rejects writes: {said}", WRITE_REFUSALS[error.kind]
        if error.kind == "NOPERM":
            return (
                f"{who} rejected the connection: {said}",
                "allow it with ACL SETUSER, or name another user in --redis",
            )
        return f"{who} rejected the connection: {said}", "check the database and the user in --redis"
    return f"Redis stopped answering: {error}", "check the server's log"

"""Why a Redis of one's own cannot be used, and what to do: the same words from `serve` and from `doctor`."""

from __future__ import annotations

from headrace.store.redis.errors import RedisError, StoreAway, StoreError

_ABOUT_PASSWORDS = ("NOAUTH", "WRONGPASS", "ERR AUTH")


def explain(error: StoreError) -> tuple[str, str]:
    """What stands in the way of the first connection, and the advice for it."""
    if isinstance(error, StoreAway):
        return f"cannot reach Redis: {error.why}", "start it, or name another with --redis"
    if isinstance(error, RedisError):
        said = error.text.split(". ")[0].rstrip(".")
        if said.startswith(_ABOUT_PASSWORDS):
            return (
                f"Redis rejected the login: {said}",
                "check user and password: --redis redis://USER:PASSWORD@HOST:PORT",
            )
        return f"Redis rejected the connection: {said}", "check the database and the user in --redis"
    return f"Redis stopped answering: {error}", "check the server's log"

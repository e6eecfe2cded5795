"""The small Lua scripts: writes that depend on what is there. Never around record bytes: it would double their cost."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from headrace.store.errors import RedisError
from headrace.store.redis import Argument, RedisLink

SOURCES = {
    # A value that only rises, and only while the partition is there (a late write must not bring it back).
    "save_start": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
        local known = redis.call('HGET', KEYS[1], 'start')
        if known and tonumber(known) >= tonumber(ARGV[1]) then return 0 end
        redis.call('HSET', KEYS[1], 'start', ARGV[1])
        return 1
    """,
    # A snapshot never replaces a newer one.
    "save_producers": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
        local known = redis.call('HGET', KEYS[1], 'offset')
        if known and tonumber(known) > tonumber(ARGV[1]) then return 0 end
        redis.call('HSET', KEYS[1], 'offset', ARGV[1], 'state', ARGV[2])
        return 1
    """,
    # A record of the catalogue is replaced only by one that was made from it.
    "replace_topic": """
        if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
        redis.call('HINCRBY', KEYS[1], ARGV[4], 1)
        return 1
    """,
    # A lease is renewed by its holder alone. PEXPIRE works when the memory is full.
    "renew_lease": """
        if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
        return redis.call('PEXPIRE', KEYS[1], ARGV[2])
    """,
    "drop_lease": """
        if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
        redis.call('HDEL', KEYS[2], ARGV[2])
        return redis.call('DEL', KEYS[1])
    """,
}


class Scripts:
    """Runs scripts by their digest; sends the source where the server does not know it (yet, or any more)."""

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._digests = {
            name: sha1(source.encode(), usedforsecurity=False).hexdigest() for name, source in SOURCES.items()
        }

    async def run(self, name: str, keys: list[str], arguments: list[Argument]) -> Any:
        """The script's reply."""
        try:
            return await self._link.call("EVALSHA", self._digests[name], len(keys), *keys, *arguments)
        except RedisError as error:
            if error.kind != "NOSCRIPT":
                raise
            return await self._link.call("EVAL", SOURCES[name], len(keys), *keys, *arguments)

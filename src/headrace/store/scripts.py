"""The small Lua scripts: writes that depend on what is there.

Never around the record bytes of format `log`: it would double their cost. Those of format `stream` are in
`stream_scripts.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import sha1
from typing import Any

from headrace.store.errors import RedisError
from headrace.store.redis import Argument, RedisLink
from headrace.store.stream_scripts import STREAM_SOURCES

SOURCES = STREAM_SOURCES | {
    # An empty stream comes into being by a group alone. What is there already stays as it is; a log that has to be
    # made again starts behind all that it gave out.
    "make_partition": """
        if tonumber(ARGV[1]) > 0 and redis.call('EXISTS', KEYS[1]) == 0 then
            redis.call('HSET', KEYS[3], 'floor', ARGV[1])
        end
        for at = 1, 2 do
            if redis.call('EXISTS', KEYS[at]) == 0 then
                redis.call('XGROUP', 'CREATE', KEYS[at], 'headrace:making', '$', 'MKSTREAM')
                redis.call('XGROUP', 'DESTROY', KEYS[at], 'headrace:making')
            end
        end
        redis.call('HSETNX', KEYS[3], 'start', 0)
        redis.call('HSETNX', KEYS[3], 'format', 'log')
        return 1
    """,
    # A value that only rises, and only while the partition is there (a late write must not bring it back).
    "save_start": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        local known = redis.call('HGET', KEYS[1], 'start')
        if known and tonumber(known) >= tonumber(ARGV[1]) then return 0 end
        redis.call('HSET', KEYS[1], 'start', ARGV[1])
        return 1
    """,
    "save_local_start": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        local known = redis.call('HGET', KEYS[1], 'local')
        if known and tonumber(known) >= tonumber(ARGV[1]) then return 0 end
        redis.call('HSET', KEYS[1], 'local', ARGV[1])
        return 1
    """,
    # Where a log ended when it was left holds only until somebody takes it up again.
    "save_lake_end": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        redis.call('HDEL', KEYS[1], 'left')
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
        return 1
    """,
    "save_trouble": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        if ARGV[1] == '' then redis.call('HDEL', KEYS[1], 'trouble')
        else redis.call('HSET', KEYS[1], 'trouble', ARGV[1]) end
        return 1
    """,
    # What was lost, and the epochs that say so: only while the partition is there.
    "save_losses": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        redis.call('HSET', KEYS[1], 'floor', ARGV[1], 'epochs', ARGV[2], 'gaps', ARGV[3])
        return 1
    """,
    # A snapshot never replaces a newer one.
    "save_producers": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
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
    # A group belongs to whoever took it last; the writes of anybody else change nothing. The owner's number only rises,
    # also over a store that went back in time: the one who takes brings the last number that it knows.
    "take_group": """
        local before = redis.call('HGET', KEYS[1], 'owner')
        if not before and ARGV[3] == '0' then return false end
        local known = tonumber(string.match(before or '', '^%d+') or 0)
        local owner = string.format('%d.%s', math.max(known, tonumber(ARGV[1])) + 1, ARGV[2])
        redis.call('HSET', KEYS[1], 'owner', owner)
        return {owner, before, redis.call('HGET', KEYS[1], 'state'), redis.call('HGETALL', KEYS[2])}
    """,
    "save_group": """
        if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
        redis.call('HSET', KEYS[1], 'state', ARGV[2])
        return 1
    """,
    "commit_offsets": """
        if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
        for at = 2, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1]) end
        return 1
    """,
    "delete_offsets": """
        if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
        for at = 2, #ARGV do redis.call('HDEL', KEYS[2], ARGV[at]) end
        return 1
    """,
    "delete_group": """
        if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
        redis.call('DEL', KEYS[1], KEYS[2])
        return 1
    """,
    # A slug whose group is gone goes to the next one that asks.
    "replace_slug": """
        if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
        return 1
    """,
    "free_slug": """
        if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
        return redis.call('HDEL', KEYS[1], ARGV[1])
    """,
    # A topic is deleted by its id: one of the same name that was made meanwhile stays. Gives the record that it had.
    "delete_topic": """
        local record = redis.call('HGET', KEYS[1], ARGV[1])
        if not record or cjson.decode(record).id ~= ARGV[2] then return false end
        redis.call('HDEL', KEYS[1], ARGV[1])
        redis.call('HINCRBY', KEYS[1], ARGV[3], 1)
        redis.call('HSET', KEYS[2], ARGV[2], record)
        return record
    """,
    # A catalogue that went back in time is replaced by a newer copy; topics that the copy does not have were deleted.
    "restore_topics": """
        local known = redis.call('HGET', KEYS[1], ARGV[1])
        if tonumber(known or 0) >= tonumber(ARGV[2]) then return 0 end
        local ids = {}
        for at = 3, #ARGV, 2 do ids[ARGV[at]] = cjson.decode(ARGV[at + 1]).id end
        local rows = redis.call('HGETALL', KEYS[1])
        for at = 1, #rows, 2 do
            if rows[at] ~= ARGV[1] and cjson.decode(rows[at + 1]).id ~= ids[rows[at]] then
                redis.call('HDEL', KEYS[1], rows[at])
                redis.call('HSET', KEYS[2], cjson.decode(rows[at + 1]).id, rows[at + 1])
            end
        end
        for at = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
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

    def __init__(self, link: RedisLink, sources: Mapping[str, str] = SOURCES) -> None:
        self._link = link
        self._sources = sources
        self._digests = {
            name: sha1(source.encode(), usedforsecurity=False).hexdigest() for name, source in sources.items()
        }

    def send(self, name: str, keys: list[str], arguments: list[Argument], source: bool = False) -> asyncio.Future[Any]:
        """Sends a script now, its source if asked to; the future gives its reply. NOSCRIPT is the caller's."""
        how = ("EVAL", SOURCES[name]) if source else ("EVALSHA", self._digests[name])
        return self._link.send(*how, len(keys), *keys, *arguments)

    async def run(self, name: str, keys: list[str], arguments: list[Argument]) -> Any:
        """The script's reply."""
        try:
            return await self._link.call("EVALSHA", self._digests[name], len(keys), *keys, *arguments)
        except RedisError as error:
            if error.kind != "NOSCRIPT":
                raise
            return await self._link.call("EVAL", self._sources[name], len(keys), *keys, *arguments)

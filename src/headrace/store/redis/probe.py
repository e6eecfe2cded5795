"""Finds out whether a server supports every command the store sends, by trying each once on keys of our own.

A list of servers and versions would soon be wrong, and a user cannot read its own ACL. The keys share a slot. They are
deleted at once, and expire if even that is forbidden.
"""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any, Protocol

from headrace.store.redis.errors import WRITE_REFUSALS, RedisError, StoreRefused
from headrace.store.redis.link import Argument
from headrace.store.redis.shard import Shard
from headrace.store.redis.topology import SLOTS, Topology

_DISPENSABLE = frozenset({"PUBSUB", "CLIENT", "MEMORY"})
"""Without these something is slower, or shown less exactly."""
_TOKENS_MAX = 16 * SLOTS
"""Enough to meet a server that has one slot."""


class _Way(Protocol):
    def send(self, *arguments: Argument) -> asyncio.Future[Any]: ...


def dispensable_of(*, waits: bool) -> frozenset[str]:
    """The commands that need not be there."""
    return _DISPENSABLE if waits else _DISPENSABLE | {"WAIT"}


async def check_commands(topology: Topology, prefix: str, *, waits: bool = True) -> None:
    """Raises StoreRefused with the missing commands; WAIT is not needed where nothing `waits` for replicas."""
    needless = dispensable_of(waits=waits)
    for shard, names in (await missing_by_server(topology, prefix)).items():
        missing = [name for name in names if name not in needless]
        if missing:
            way_out = "; --store-replicas 0 does without WAIT" if missing == ["WAIT"] else ""
            raise StoreRefused(
                f"{shard.name} does not allow {', '.join(missing)} on {prefix}:*; `headrace doctor` says what to change"
                f"{way_out}"
            )


async def missing_by_server(topology: Topology, prefix: str) -> dict[Shard, list[str]]:
    """What each server with slots lacks: the users of a cluster's servers may differ. Those that are away are left out.

    All are asked at once.
    """
    tokens = _tokens(topology)
    missing = await asyncio.gather(*(missing_commands(shard.link, prefix, own) for shard, own in tokens.items()))
    return dict(zip(tokens, missing, strict=True))


async def refusals_of_writes(topology: Topology, prefix: str) -> list[RedisError]:
    """What servers say that take no writes at all now: they are full, or lack replicas or a disk."""
    asked = [(shard.link, token) for shard, token in _tokens(topology).items() if shard.link.is_up]
    found = await asyncio.gather(*(refusal_of_writes(link, prefix, token) for link, token in asked))
    return [error for error in found if error is not None]


async def refusal_of_writes(way: _Way, prefix: str, token: str = "") -> RedisError | None:
    """What a server says that takes no writes; other refusals are about commands."""
    key = f"{prefix}:probe:{{{token or token_hex(8)}}}:other"
    try:
        await way.send("SET", key, "x", "PX", 60_000)
        await way.send("UNLINK", key)
    except RedisError as error:
        return error if error.kind in WRITE_REFUSALS else None
    return None


def _tokens(topology: Topology) -> dict[Shard, str]:
    """A hash tag of its own for each server with slots, found by trial."""
    wanted = {shard for shard in topology.shards if shard.link.is_up} or set(topology.shards)
    token = token_hex(8)
    tokens: dict[Shard, str] = {}
    for at in range(_TOKENS_MAX):
        shard = topology.shard_of(f"{{{token}{at}}}")
        if shard in wanted:
            tokens.setdefault(shard, f"{token}{at}")
            if len(tokens) == len(wanted):
                break
    return tokens


async def missing_commands(way: _Way, prefix: str, token: str = "") -> list[str]:
    """The names of the commands that the server does not know, or does not allow."""
    tried = commands(prefix, token)
    replies = await asyncio.gather(*(way.send(*command) for command in tried), return_exceptions=True)
    missing = []
    for command, reply in zip(tried, replies, strict=True):
        # Other refusals, such as of a script that is not loaded, mean that the command itself is allowed.
        if isinstance(reply, RedisError) and (reply.kind == "NOPERM" or "unknown command" in str(reply)):
            missing.append(" ".join(map(str, command[: 2 if command[0] == "XGROUP" else 1])))
        elif isinstance(reply, BaseException) and not isinstance(reply, RedisError):
            raise reply
    return list(dict.fromkeys(missing))


def commands(prefix: str, token: str = "") -> list[tuple[Argument, ...]]:
    """Every kind of command that the store sends, on scratch keys."""
    stem = f"{prefix}:probe:{{{token or token_hex(8)}}}"
    stream, table, names = f"{stem}:stream", f"{stem}:hash", f"{stem}:other"
    return [
        ("PING",),
        ("INFO", "memory"),
        ("XGROUP", "CREATE", stream, "probe", "$", "MKSTREAM"),
        ("PEXPIRE", stream, 60_000),
        ("XADD", stream, "NOMKSTREAM", "1-1", "b", "x"),
        ("XRANGE", stream, "-", "+", "COUNT", 1),
        ("XREVRANGE", stream, "+", "-", "COUNT", 1),
        ("XINFO", "STREAM", stream),
        ("XLEN", stream),
        ("XREAD", "COUNT", 1, "STREAMS", stream, "0"),
        ("XREADGROUP", "GROUP", "probe", "probe", "COUNT", 1, "STREAMS", stream, ">"),
        ("XPENDING", stream, "probe"),
        ("XCLAIM", stream, "probe", "probe", 0, "1-1", "JUSTID"),
        ("XACK", stream, "probe", "1-1"),
        ("XDEL", stream, "1-1"),
        ("XTRIM", stream, "MINID", "2-0"),
        ("XSETID", stream, "5-0"),
        ("XGROUP", "SETID", stream, "probe", "0-0"),
        ("XGROUP", "DESTROY", stream, "probe"),
        ("HSET", table, "a", 1),
        ("PEXPIRE", table, 60_000),
        ("HSETNX", table, "b", 1),
        ("HINCRBY", table, "a", 1),
        ("HGET", table, "a"),
        ("HMGET", table, "a", "b"),
        ("HLEN", table),
        ("HEXISTS", table, "a"),
        ("HGETALL", table),
        ("HVALS", table),
        ("HDEL", table, "a"),
        ("EXISTS", table),
        ("SET", names, "x", "PX", 60_000),
        ("GET", names),
        ("MGET", names),
        ("DEL", names),
        ("UNLINK", names),
        ("RENAME", table, table),
        ("PERSIST", table),
        ("PTTL", table),
        ("MEMORY", "USAGE", table),
        ("TIME",),
        ("CLIENT", "ID"),
        ("SADD", names, "a"),
        ("SMEMBERS", names),
        ("SREM", names, "a"),
        ("PUBLISH", f"{prefix}:probe", "hello"),
        ("PUBSUB", "NUMSUB", f"{prefix}:probe"),
        ("EVAL", "return redis.call('EXISTS', KEYS[1])", 1, table),
        ("EVALSHA", "0" * 40, 1, table),
        ("MULTI",),
        ("EXEC",),
        ("WAIT", 0, 1),
        ("UNLINK", stream, table, names),
        *_subscribing(f"{prefix}:probe"),
    ]


def _subscribing(channel: str) -> list[tuple[Argument, ...]]:
    """Queued, and so allowed or refused, but never executed: a link that listens takes no other commands."""
    return [("MULTI",), ("SUBSCRIBE", channel), ("DISCARD",)]

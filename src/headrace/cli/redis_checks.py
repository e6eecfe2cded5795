"""The doctor's look at a Redis of one's own: reachable, new enough, keeps what it is given, lets us do our work.

The permissions are tried, not read: rules for users are not to be seen by the users whom they bind. What is tried
goes into three keys of our own, which are removed at once and expire if even that is forbidden.
"""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex

from headrace.cli.findings import Finding, Level, fail, ok, warn
from headrace.cli.quantities import show_approximate_size
from headrace.cli.redis_trouble import explain
from headrace.store.address import parse_address
from headrace.store.errors import RedisError, StoreError
from headrace.store.redis import Argument, RedisLink, parse_info

OLDEST_REDIS = (6, 2)
_SLOW_MS = 5.0
_PINGS = 20


def check_redis(url: str, key_prefix: str) -> list[Finding]:
    """All that a Redis URL can be asked."""
    try:
        address = parse_address(url)
    except ValueError as error:
        return [fail("redis", str(error), "correct --redis")]
    return asyncio.run(_check(RedisLink(address, "doctor", timeout_ms=5_000), key_prefix))


async def _check(link: RedisLink, key_prefix: str) -> list[Finding]:
    try:
        await link.start()
    except StoreError as error:
        return [fail("redis", *explain(error))]
    try:
        findings = [_version(link), await _permissions(link, key_prefix)]
        if all(finding.level is Level.OK for finding in findings):
            findings += [await _latency(link), await _memory(link), await _persistence(link)]
        return findings
    except StoreError as error:
        return [fail("redis", f"it went away in the middle: {error}", "look at the server's own log")]
    finally:
        await link.close()


def _version(link: RedisLink) -> Finding:
    valkey = link.server.get("valkey_version")
    version = valkey or link.server.get("redis_version", "0")
    found = f"{'Valkey' if valkey else 'Redis'} {version} at {link.address}"
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        return fail("redis", found, "6.2 is the oldest that works: upgrade it")
    return ok("redis", found)


async def _latency(link: RedisLink) -> Finding:
    times = []
    for _ in range(_PINGS):
        begin = time.perf_counter()
        await link.call("PING")
        times.append((time.perf_counter() - begin) * 1000)
    median_ms = sorted(times)[_PINGS // 2]
    found = f"{median_ms:.2f} ms there and back"
    if median_ms > _SLOW_MS:
        return warn("redis latency", found, "every produce waits for it: run the broker near its Redis")
    return ok("redis latency", found)


async def _memory(link: RedisLink) -> Finding:
    facts = parse_info(await link.call("INFO", "memory"))
    limit, used = int(facts.get("maxmemory", 0)), int(facts.get("used_memory", 0))
    policy = facts.get("maxmemory_policy", "noeviction")
    of = f"of {show_approximate_size(limit)}" if limit else "without a limit"
    found = f"{show_approximate_size(used)} used {of}, policy {policy}"
    if policy != "noeviction":
        advice = "CONFIG SET maxmemory-policy noeviction; any other loses records (or --allow-eviction)"
        return (fail if limit else warn)("redis memory", found, advice)
    if not limit:
        advice = "set maxmemory: a full machine then means refused produces instead of a killed server"
        return warn("redis memory", found, advice)
    return ok("redis memory", found)


async def _persistence(link: RedisLink) -> Finding:
    facts = parse_info(await link.call("INFO", "persistence"))
    if facts.get("aof_enabled") != "1":
        return warn(
            "redis persistence",
            "append-only file off: a restart loses records",
            "CONFIG SET appendonly yes; and appendfsync always, if no acknowledged record may be lost",
        )
    if facts.get("aof_last_write_status", "ok") != "ok":
        return fail("redis persistence", "the append-only file cannot be written", "look at the server's disk and log")
    try:
        _, policy = await link.call("CONFIG", "GET", "appendfsync")
        how = policy.decode()
    except (RedisError, ValueError):
        how = "in a way that it does not tell"
    said = {"always": "", "everysec": "; a kill can lose the last second", "no": "; the system decides when"}
    return ok("redis persistence", f"append-only file on, fsync {how}{said.get(how, '')}")


def commands(prefix: str) -> list[tuple[Argument, ...]]:
    """Every kind of command that the store sends, on keys that nobody uses."""
    stem = f"{prefix}:doctor:{{{token_hex(8)}}}"
    stream, table, names = f"{stem}:stream", f"{stem}:hash", f"{stem}:other"
    return [
        ("PING",),
        ("INFO", "memory"),
        ("XGROUP", "CREATE", stream, "doctor", "$", "MKSTREAM"),
        ("PEXPIRE", stream, 60_000),
        ("XADD", stream, "NOMKSTREAM", "1-1", "b", "x"),
        ("XRANGE", stream, "-", "+", "COUNT", 1),
        ("XREVRANGE", stream, "+", "-", "COUNT", 1),
        ("XINFO", "STREAM", stream),
        ("XLEN", stream),
        ("XREAD", "COUNT", 1, "STREAMS", stream, "0"),
        ("XREADGROUP", "GROUP", "doctor", "doctor", "COUNT", 1, "STREAMS", stream, ">"),
        ("XPENDING", stream, "doctor"),
        ("XCLAIM", stream, "doctor", "doctor", 0, "1-1", "JUSTID"),
        ("XACK", stream, "doctor", "1-1"),
        ("XDEL", stream, "1-1"),
        ("XTRIM", stream, "MINID", "2-0"),
        ("XSETID", stream, "5-0"),
        ("XGROUP", "SETID", stream, "doctor", "0-0"),
        ("XGROUP", "DESTROY", stream, "doctor"),
        ("HSET", table, "a", 1),
        ("PEXPIRE", table, 60_000),
        ("HSETNX", table, "b", 1),
        ("HINCRBY", table, "a", 1),
        ("HGET", table, "a"),
        ("HMGET", table, "a", "b"),
        ("HGETALL", table),
        ("HVALS", table),
        ("HDEL", table, "a"),
        ("EXISTS", table),
        ("SET", names, "x", "PX", 60_000),
        ("GET", names),
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
        ("PUBLISH", f"{prefix}:doctor", "hello"),
        ("EVAL", "return redis.call('EXISTS', KEYS[1])", 1, table),
        ("EVALSHA", "0" * 40, 1, table),
        ("MULTI",),
        ("EXEC",),
        ("UNLINK", stream, table, names),
    ]


async def _permissions(link: RedisLink, prefix: str) -> Finding:
    denied = []
    for command in commands(prefix):
        try:
            await link.call(*command)
        except RedisError as error:
            # Other refusals, such as of a script that is not loaded, mean that the command itself is allowed.
            if error.kind == "NOPERM" or "unknown command" in str(error):
                denied.append(" ".join(map(str, command[: 2 if command[0] == "XGROUP" else 1])))
    if denied:
        user = link.address.username or "default"
        kinds = "+@read +@write +@stream +@scripting +@transaction +@connection +@pubsub +info +time"
        advice = f"ACL SETUSER {user} ~{prefix}:* &{prefix}:* {kinds}"
        return fail("redis permissions", f"user {user} may not {', '.join(denied)} on {prefix}:*", advice)
    return ok("redis permissions", f"all {len(commands(prefix))} commands are allowed on {prefix}:*")

"""The doctor's checks of your own Redis: reachable, recent, durable, and with the permissions we need.

Permissions are tried, not read, because users cannot see their own ACL rules.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from headrace.cli.doctor.findings import CheckResult, Severity, fail, ok, warn
from headrace.cli.quantities import show_approximate_size
from headrace.cli.serve.redis_trouble import explain
from headrace.store.embedded.data_directory import read_record
from headrace.store.options import StoreOptions
from headrace.store.redis.address import Address, parse_address
from headrace.store.redis.errors import RedisError, StoreError, StoreRefused
from headrace.store.redis.link import RedisLink, parse_info
from headrace.store.redis.probe import DISPENSABLE, commands, missing_by_server, missing_commands
from headrace.store.redis.topology import not_one_server, open_topology

OLDEST_REDIS = (6, 2)
_SLOW_MS = 5.0
_PINGS = 20


def check_redis(url: str, key_prefix: str) -> list[CheckResult]:
    """All checks of a Redis URL."""
    try:
        address = parse_address(url)
    except ValueError as error:
        return [fail("redis", f"the URL {error}", "correct --redis")]
    if address.form == "one":
        return asyncio.run(_check(RedisLink(address, "doctor"), key_prefix))
    return asyncio.run(_check_each(address, key_prefix))


async def _check_each(address: Address, key_prefix: str) -> list[CheckResult]:
    """Every server with slots, or the one that the sentinels name."""
    topology = open_topology(address, StoreOptions(allow_eviction=True))
    try:
        await topology.start()
        try:
            places = [shard.link.address for shard in topology.shards]
        finally:
            await topology.close()
    except StoreError as error:
        return [fail("redis", *explain(error))]
    except StoreRefused as error:
        return [fail("redis", str(error), "correct --redis")]
    found = []
    for place in places:
        found += await _check(RedisLink(place, "doctor"), key_prefix, can_try=address.form != "cluster")
    if address.form == "cluster":
        found += await _permissions_of_cluster(address, key_prefix)
    return found


async def _permissions_of_cluster(address: Address, key_prefix: str) -> list[CheckResult]:
    """Of every server, for each has its own users: a finding for each that lacks some, or one for all."""
    topology = open_topology(address, StoreOptions(allow_eviction=True))
    try:
        await topology.start()
        missing = await missing_by_server(topology, key_prefix)
        found = [
            _permissions(shard.link, key_prefix, denied, f" at {shard.name}", " +cluster|info +cluster|slots")
            for shard, denied in missing.items()
        ]
        return [finding for finding in found if finding.level is not Severity.OK] or found[:1]
    except (StoreError, StoreRefused) as error:
        return [fail("redis permissions", str(error), "check the servers' logs")]
    finally:
        await topology.close()


def check_embedded(data_dir: Path) -> list[CheckResult]:
    """Checks the settings of a running broker's embedded server; nothing if none answers."""
    try:
        record = read_record(data_dir)
    except OSError:
        return []  # the directory check says why
    if record is None:
        return []
    return asyncio.run(_check_embedded(RedisLink(parse_address(f"unix://{record.socket}"), "doctor")))


async def _check_embedded(link: RedisLink) -> list[CheckResult]:
    try:
        await link.start()
        return [await _memory(link)]
    except StoreError:
        return []
    finally:
        await link.close()


async def _check(link: RedisLink, key_prefix: str, *, can_try: bool = True) -> list[CheckResult]:
    try:
        await link.start()
    except StoreError as error:
        return [fail("redis", *explain(error))]
    try:
        if can_try and (trouble := not_one_server(link)):
            return [fail("redis", trouble, "correct --redis")]
        findings = [_version(link)]
        if can_try:
            findings.append(_permissions(link, key_prefix, await missing_commands(link, key_prefix)))
        if all(finding.level is Severity.OK for finding in findings):
            findings += [await _latency(link), await _memory(link), await _persistence(link)]
        return findings
    except StoreError as error:
        return [fail("redis", f"it disconnected during the check: {error}", "check the server's log")]
    finally:
        await link.close()


def _version(link: RedisLink) -> CheckResult:
    valkey = link.server.get("valkey_version")
    version = valkey or link.server.get("redis_version", "0")
    found = f"{'Valkey' if valkey else 'Redis'} {version} at {link.address}"
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        return fail("redis", found, "upgrade it to 6.2 or later")
    return ok("redis", found)


async def _latency(link: RedisLink) -> CheckResult:
    times = []
    for _ in range(_PINGS):
        begin = time.perf_counter()
        await link.call("PING")
        times.append((time.perf_counter() - begin) * 1000)
    median_ms = sorted(times)[_PINGS // 2]
    found = f"{median_ms:.2f} ms round trip"
    if median_ms > _SLOW_MS:
        return warn("redis latency", found, "every produce takes at least that long: run the broker close to Redis")
    return ok("redis latency", found)


async def _memory(link: RedisLink) -> CheckResult:
    facts = parse_info(await link.call("INFO", "memory"))
    limit, used = int(facts.get("maxmemory", 0)), int(facts.get("used_memory", 0))
    policy = facts.get("maxmemory_policy", "noeviction")
    of = f"of {show_approximate_size(limit)}" if limit else "without a limit"
    found = f"{show_approximate_size(used)} used {of}, policy {policy}"
    if policy != "noeviction":
        advice = "CONFIG SET maxmemory-policy noeviction; any other loses records (or --allow-eviction)"
        return fail("redis memory", found, advice)
    if not limit:
        advice = "set maxmemory: then a full server rejects produces instead of being killed"
        return warn("redis memory", found, advice)
    return ok("redis memory", found)


async def _persistence(link: RedisLink) -> CheckResult:
    facts = parse_info(await link.call("INFO", "persistence"))
    if facts.get("aof_enabled") != "1":
        return warn(
            "redis persistence",
            "append-only file off: a restart loses records",
            "CONFIG SET appendonly yes; and appendfsync always, if no acknowledged record may be lost",
        )
    if facts.get("aof_last_write_status", "ok") != "ok":
        return fail("redis persistence", "the append-only file cannot be written", "check the server's disk and log")
    try:
        _, policy = await link.call("CONFIG", "GET", "appendfsync")
        how = policy.decode()
    except (RedisError, ValueError):
        how = "unknown"
    said = {"always": "", "everysec": "; a kill can lose the last second", "no": "; the operating system decides when"}
    return ok("redis persistence", f"append-only file on, fsync {how}{said.get(how, '')}")


def _permissions(link: RedisLink, prefix: str, denied: list[str], where: str = "", more: str = "") -> CheckResult:
    if denied:
        user = link.address.username or "default"
        kinds = "+@read +@write +@stream +@scripting +@transaction +@connection +@pubsub +info +time +wait"
        advice = f"ACL SETUSER {user} ~{prefix}:* &{prefix}:* {kinds}{more}"
        found = f"user {user} may not {', '.join(denied)} on {prefix}:*{where}"
        if DISPENSABLE.issuperset(denied):
            return warn("redis permissions", f"{found}, so that some things are slower or less exact", advice)
        return fail("redis permissions", found, advice)
    return ok("redis permissions", f"all {len(commands(prefix))} commands are allowed on {prefix}:*")

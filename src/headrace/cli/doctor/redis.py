"""The doctor's checks of your own Redis: reachable, recent, durable, and with the permissions we need.

Permissions are tried, not read, because users cannot see their own ACL rules.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from headrace.cli.doctor.findings import CheckResult, Severity, fail, ok, warn
from headrace.cli.quantities import show_approximate_size
from headrace.cli.serve.redis_trouble import explain
from headrace.cli.settings.table import Settings
from headrace.store.embedded.data_directory import read_record
from headrace.store.options import StoreOptions
from headrace.store.redis.address import Address, parse_address
from headrace.store.redis.errors import RedisError, StoreError, StoreRefused
from headrace.store.redis.link import RedisLink, parse_info
from headrace.store.redis.probe import (
    commands,
    dispensable_of,
    missing_by_server,
    missing_commands,
    refusal_of_writes,
    refusals_of_writes,
)
from headrace.store.redis.topology import not_one_server, open_topology

OLDEST_REDIS = (6, 2)
_SLOW_MS = 5.0
_PINGS = 20


def check_redis(settings: Settings) -> list[CheckResult]:
    """All checks of your own Redis, with the settings that a broker would have."""
    address = parse_address(settings.redis)
    if address.form == "one":
        return asyncio.run(_check(RedisLink(address, "doctor"), settings))
    return asyncio.run(_check_each(address, settings))


async def _check_each(address: Address, settings: Settings) -> list[CheckResult]:
    """Every server with slots, or the one that the sentinels name."""
    topology = open_topology(address, StoreOptions(allow_eviction=True))
    try:
        await topology.start()
        try:
            places = [shard.link.address for shard in topology.shards]
            uncovered = topology.slots_without_server
        finally:
            await topology.close()
    except StoreError as error:
        return [fail("redis", *explain(error))]
    except StoreRefused as error:
        return [fail("redis", str(error), "correct --redis")]
    found = []
    if uncovered:
        found.append(fail("redis", f"{uncovered} slots have no server", "see `redis-cli --cluster check`"))
    for place in places:
        found += await _check(RedisLink(place, "doctor"), settings, can_try=address.form != "cluster")
    if address.form == "cluster":
        found += await _permissions_of_cluster(address, settings)
    return found


async def _permissions_of_cluster(address: Address, settings: Settings) -> list[CheckResult]:
    """Of every server, for each has its own users: a finding for each that lacks some, or one for all."""
    topology = open_topology(address, StoreOptions(allow_eviction=True))
    try:
        await topology.start()
        missing = await missing_by_server(topology, settings.key_prefix)
        found = [
            _permissions(shard.link, settings, denied, f" at {shard.name}", " +cluster|info +cluster|slots")
            for shard, denied in missing.items()
        ]
        refused = [_writes(error) for error in await refusals_of_writes(topology, settings.key_prefix)]
        return [finding for finding in found if finding.level is not Severity.OK] + refused or found[:1]
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


async def _check(link: RedisLink, settings: Settings, *, can_try: bool = True) -> list[CheckResult]:
    try:
        await link.start()
    except StoreError as error:
        return [fail("redis", *explain(error))]
    try:
        if can_try and (trouble := not_one_server(link)):
            return [fail("redis", trouble, "correct --redis")]
        findings = [_version(link)]
        if can_try:
            findings.append(_permissions(link, settings, await missing_commands(link, settings.key_prefix)))
            if (refused := await refusal_of_writes(link, settings.key_prefix)) is not None:
                findings.append(_writes(refused))
        if all(finding.level is not Severity.FAIL for finding in findings):
            more = [await _latency(link), await _memory(link, settings), await _persistence(link)]
            if can_try:
                return findings + more
            more += await _coverage(link)
            findings += [msgspec.structs.replace(one, found=f"{link.address}: {one.found}") for one in more]
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


async def _memory(link: RedisLink, settings: Settings | None = None) -> CheckResult:
    facts = parse_info(await link.call("INFO", "memory"))
    limit, used = int(facts.get("maxmemory", 0)), int(facts.get("used_memory", 0))
    policy = facts.get("maxmemory_policy", "noeviction")
    of = f"of {show_approximate_size(limit)}" if limit else "without a limit"
    found = f"{show_approximate_size(used)} used {of}, policy {policy}"
    if policy != "noeviction":
        advice = "CONFIG SET maxmemory-policy noeviction; any other loses records"
        if settings is not None and settings.allow_eviction:
            return warn("redis memory", found, advice)
        return fail("redis memory", found, f"{advice} (or --allow-eviction)")
    if not limit:
        advice = "set maxmemory: then a full server rejects produces instead of being killed"
        return warn("redis memory", found, advice)
    if settings is not None and used * 100 >= limit * settings.memory_high_mark_percent:
        return warn("redis memory", found, "brokers reject produces: raise maxmemory, or delete records")
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


async def _coverage(link: RedisLink) -> list[CheckResult]:
    """Whether a dead shard stops the others; nothing where CONFIG is refused, as managed services do."""
    try:
        _, wanted = await link.call("CONFIG", "GET", "cluster-require-full-coverage")
    except (RedisError, ValueError):
        return []
    if wanted != b"yes":
        return []
    advice = "CONFIG SET cluster-require-full-coverage no"
    return [warn("redis cluster", "one dead shard stops all others (cluster-require-full-coverage yes)", advice)]


def _writes(error: RedisError) -> CheckResult:
    return fail("redis writes", *explain(error))


def _permissions(
    link: RedisLink, settings: Settings, denied: list[str], where: str = "", more: str = ""
) -> CheckResult:
    prefix, dispensable = settings.key_prefix, dispensable_of(waits=settings.store_replicas != 0)
    if denied:
        user = link.address.username or "default"
        kinds = "+@read +@write +@stream +@scripting +@transaction +@connection +@pubsub +info +time +wait"
        advice = f"ACL SETUSER {user} ~{prefix}:* &{prefix}:* {kinds}{more}"
        found = f"user {user} may not {', '.join(denied)} on {prefix}:*{where}"
        if dispensable.issuperset(denied):
            return warn("redis permissions", f"{found}, so that some things are slower or less exact", advice)
        return fail("redis permissions", found, advice)
    return ok("redis permissions", f"all {len(commands(prefix))} commands are allowed on {prefix}:*")

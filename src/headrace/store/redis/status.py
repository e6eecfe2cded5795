"""The status of a server for display: memory, persistence and replicas, from INFO."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headrace.store.redis.link import parse_info

if TYPE_CHECKING:
    from headrace.store.redis.shard import Shard

_REPLICAS_MAX = 20


class ReplicaStatus(msgspec.Struct, frozen=True):
    """A copy of a server."""

    address: str
    state: str
    behind_bytes: int | None


class ServerStatus(msgspec.Struct, frozen=True):
    """One server of the store."""

    server: str
    version: str
    uptime_s: int
    clients: int
    used_bytes: int
    limit_bytes: int
    """0: no limit."""
    policy: str
    append_only: bool
    write_status: str
    """Result of the last write to the append-only file: ok or err."""
    rewriting: bool
    last_save_s: int
    """When the last snapshot was taken, in seconds since 1970; what is not in the append-only file is in it."""
    save_status: str
    replicas: list[ReplicaStatus]


async def server_status(shard: Shard) -> ServerStatus:
    """The server's current status."""
    facts = parse_info(await shard.link.call("INFO"))
    offset = int(facts.get("master_repl_offset", 0))
    count = min(int(facts.get("connected_slaves", 0)), _REPLICAS_MAX)
    replicas = [_replica(facts[f"slave{at}"], offset) for at in range(count) if f"slave{at}" in facts]
    return ServerStatus(
        server=shard.name,
        version=f"{facts.get('server_name', 'redis')} {facts.get('valkey_version') or facts.get('redis_version', '')}",
        uptime_s=int(facts.get("uptime_in_seconds", 0)),
        clients=int(facts.get("connected_clients", 0)),
        used_bytes=int(facts.get("used_memory", 0)),
        limit_bytes=int(facts.get("maxmemory", 0)),
        policy=facts.get("maxmemory_policy", ""),
        append_only=facts.get("aof_enabled") == "1",
        write_status=facts.get("aof_last_write_status", ""),
        rewriting=facts.get("aof_rewrite_in_progress") == "1",
        last_save_s=int(facts.get("rdb_last_save_time", 0)),
        save_status=facts.get("rdb_last_bgsave_status", ""),
        replicas=replicas,
    )


def _replica(text: str, offset: int) -> ReplicaStatus:
    """`ip=127.0.0.1,port=6380,state=online,offset=1234,lag=0`."""
    facts = dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
    at = facts.get("offset", "")
    behind = max(offset - int(at), 0) if at.isdigit() else None
    return ReplicaStatus(f"{facts.get('ip', '')}:{facts.get('port', '')}", facts.get("state", ""), behind)

"""What somebody with a Redis client sees of a broker's store."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

import redis

from tests.broker_process import BrokerProcess


class RedisView:
    """A plain Redis client on a broker's embedded server, or on any server by its URL."""

    def __init__(self, url: str) -> None:
        self._redis: Any = redis.Redis.from_url(url)

    @classmethod
    def of(cls, broker: BrokerProcess) -> RedisView:
        record = json.loads((broker.data_dir / "valkey.json").read_text())
        return cls(f"unix://{record['socket']}")

    def __enter__(self) -> RedisView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redis.close()

    def call(self, *arguments: Any) -> Any:
        """The reply to a command."""
        return self._redis.execute_command(*arguments)

    def keys(self, pattern: str) -> list[str]:
        return sorted(key.decode() for key in self.call("KEYS", pattern))

    def hash_fields(self, key: str) -> set[str]:
        return {field.decode() for field in self.call("HKEYS", key)}

    def members(self, key: str) -> set[str]:
        return {member.decode() for member in self.call("SMEMBERS", key)}

    def log_key(self, topic: str, partition: int = 0) -> str:
        """The stream of a partition."""
        (key,) = self.keys(f"*{{{topic}:{partition}:*}}:log")
        return key

    def groups_of(self, stream: str) -> dict[str, dict[str, Any]]:
        """XINFO GROUPS: name -> facts."""
        found = {}
        for row in self.call("XINFO", "GROUPS", stream):
            facts = {_text(name): _text(value) for name, value in _pairs(row)}
            found[facts["name"]] = facts
        return found

    def command_calls(self) -> dict[str, int]:
        """How often each command ran, those inside scripts included."""
        stats = self.call("INFO", "commandstats")
        return {name.removeprefix("cmdstat_"): int(facts["calls"]) for name, facts in stats.items()}


def _pairs(row: Any) -> list[tuple[Any, Any]]:
    return list(row.items()) if isinstance(row, dict) else list(zip(row[::2], row[1::2], strict=True))


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value

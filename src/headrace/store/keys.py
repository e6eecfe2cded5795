"""Names of the keys in Redis. Each is made here and nowhere else.

All keys of one partition share a hash tag, so that a Redis Cluster keeps them together. A topic's short id is part of
the names, so that a topic that is deleted and made again is a new log; not of the stream of format `stream`, whose name
Redis code has to know: there a key beside it says which topic owns it.
"""

from __future__ import annotations

import msgspec


class PartitionKeys(msgspec.Struct, frozen=True):
    """The keys of one partition."""

    log: str
    """The stream with the records."""
    meta: str
    index: str
    producers: str
    exceptions: str = ""
    owner: str = ""

    @property
    def there(self) -> str:
        """The key that says whether the partition of this topic is there: the first that carries the topic's id."""
        return self.meta if self.owner else self.log

    def all(self) -> tuple[str, ...]:
        """For deleting: the keys that are this topic's and no other one's of its name."""
        if self.owner:
            return (self.meta, self.index, self.producers, self.exceptions)
        return (self.log, self.meta, self.index, self.producers)


class Keys(msgspec.Struct, frozen=True):
    """The keys of one prefix and organisation."""

    prefix: str = "headrace"
    organisation: str = "default"

    @property
    def cluster(self) -> str:
        return f"{self.prefix}:cluster"

    @property
    def nodes(self) -> str:
        return f"{self.prefix}:nodes"

    @property
    def announcements(self) -> str:
        """A channel, not a key."""
        return f"{self.prefix}:{self.organisation}:appends"

    def node(self, node_id: int) -> str:
        return f"{self.prefix}:nodes:{node_id}"

    @property
    def topics(self) -> str:
        return f"{self.prefix}:{self.organisation}:{{topics}}"

    @property
    def deleted_topics(self) -> str:
        return f"{self.topics}:deleted"

    @property
    def groups(self) -> str:
        return f"{self.prefix}:{self.organisation}:groups"

    @property
    def group_slugs(self) -> str:
        return f"{self.prefix}:{self.organisation}:group-slugs"

    def group(self, group_id: str) -> str:
        return f"{self.prefix}:{self.organisation}:{{{escape(group_id)}}}:group"

    def group_offsets(self, group_id: str) -> str:
        return f"{self.prefix}:{self.organisation}:{{{escape(group_id)}}}:offsets"

    def partition(self, topic: str, partition: int, short_id: str) -> PartitionKeys:
        """Keys of a partition in format `log`."""
        stem = f"{self.prefix}:{self.organisation}:{{{escape(topic)}:{partition}:{short_id}}}"
        return PartitionKeys(f"{stem}:log", f"{stem}:meta", f"{stem}:index", f"{stem}:producers")

    def stream_partition(self, topic: str, partition: int, short_id: str) -> PartitionKeys:
        """Keys of a partition in format `stream`."""
        stem = f"{self.prefix}:{self.organisation}:{{{escape(topic)}:{partition}}}"
        own = f"{stem}:{short_id}"
        return PartitionKeys(
            f"{stem}:stream",
            f"{own}:meta",
            f"{own}:index",
            f"{own}:producers",
            f"{own}:exceptions",
            f"{stem}:owner",
        )


def escape(name: str) -> str:
    """A name without the braces that would end a hash tag early."""
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")

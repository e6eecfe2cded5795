"""The names of all keys in Redis, made only here.

All keys of a partition share a hash tag, so that a Redis Cluster keeps them together. They contain the topic's short
id, so that a recreated topic is a new log; except the stream of the format `stream`, whose name Redis code has to know:
there a second key says which topic owns it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.organisations import DEFAULT_ORGANISATION

DEFAULT_PREFIX = "headrace"
EMBEDDED = "headrace:embedded"
"""What the embedded server's owner notes about its runs, whatever the prefix."""


class CleanKeys(NamedTuple):
    """The keys of a partition's compacted part, and of the copy that is to take its place."""

    log: str
    points: str
    """Its index."""
    new_log: str
    new_points: str


class PartitionKeys(msgspec.Struct, frozen=True):
    """The keys of one partition."""

    log: str
    """The stream with the records."""
    meta: str
    index: str
    producers: str
    aborted: str = ""
    """Aborted transactions, in the format `log`."""
    exceptions: str = ""
    owner: str = ""

    @property
    def there(self) -> str:
        """The key that says whether the partition of this topic is there: the first that carries the topic's id."""
        return self.meta if self.owner else self.log

    @property
    def touched(self) -> str:
        """Written in the partition's slot before replicas are asked with WAIT."""
        return f"{self.meta}:touched"

    def all(self) -> tuple[str, ...]:
        """For deleting: the keys that are this topic's and no other one's of its name."""
        if self.owner:
            return (self.meta, self.index, self.producers, self.exceptions, self.touched)
        return (self.log, self.meta, self.index, self.producers, self.aborted, self.touched, *self.clean)

    @property
    def clean(self) -> CleanKeys:
        """The remaining records of a compacted log (format `log`)."""
        stem = self.log.removesuffix(":log")
        return CleanKeys(f"{stem}:clean", f"{stem}:clean:index", f"{stem}:clean:new", f"{stem}:clean:new:index")


class ClusterKeys(msgspec.Struct, frozen=True):
    """Keys shared by all organisations."""

    prefix: str = DEFAULT_PREFIX

    def of(self, organisation: str) -> Keys:
        """The keys of an organisation."""
        return Keys(self.prefix, organisation)

    @property
    def cluster(self) -> str:
        return f"{self.prefix}:cluster"

    @property
    def nodes(self) -> str:
        return f"{self.prefix}:{{nodes}}"

    def node(self, node_id: int) -> str:
        return f"{self.nodes}:{node_id}"

    @property
    def users(self) -> str:
        return f"{self.prefix}:security:{{users}}"

    @property
    def login_secret(self) -> str:
        """The secret that salts of missing users are derived from: the same on every node, and after a restart."""
        return f"{self.prefix}:security:login-secret"

    @property
    def acls(self) -> str:
        return f"{self.prefix}:security:{{acls}}"

    @property
    def quotas(self) -> str:
        return f"{self.prefix}:security:{{quotas}}"

    @property
    def organisations(self) -> str:
        return f"{self.prefix}:security:{{organisations}}"

    @property
    def usage(self) -> str:
        return f"{self.prefix}:security:{{organisations}}:usage"

    @property
    def announcements(self) -> str:
        """A channel, not a key. One for all organisations: its messages name topics by id, and ids are unique.

        It has the name from when there was one organisation, so that nodes of two versions hear each other.
        """
        return f"{self.prefix}:{DEFAULT_ORGANISATION}:appends"


class Keys(msgspec.Struct, frozen=True):
    """The keys of one organisation."""

    prefix: str = DEFAULT_PREFIX
    organisation: str = DEFAULT_ORGANISATION

    @property
    def topics(self) -> str:
        return f"{self.prefix}:{self.organisation}:{{topics}}"

    @property
    def deleted_topics(self) -> str:
        return f"{self.topics}:deleted"

    @property
    def configs(self) -> str:
        return f"{self.prefix}:{self.organisation}:{{configs}}"

    @property
    def groups(self) -> str:
        return f"{self.prefix}:{self.organisation}:groups"

    @property
    def group_slugs(self) -> str:
        return f"{self.prefix}:{self.organisation}:group-slugs"

    @property
    def offsets_watch(self) -> str:
        """There while somebody reads the topic `__consumer_offsets`."""
        return f"{self.prefix}:{self.organisation}:offsets-watch"

    def group(self, group_id: str) -> str:
        return f"{self.prefix}:{self.organisation}:{{{escape(group_id)}}}:group"

    def group_offsets(self, group_id: str) -> str:
        return f"{self.prefix}:{self.organisation}:{{{escape(group_id)}}}:offsets"

    @property
    def transactions(self) -> str:
        """The set of all transactional ids."""
        return f"{self.prefix}:{self.organisation}:transactions"

    def transaction(self, transactional_id: str) -> str:
        """The state of a transactional id, written by its coordinator."""
        return f"{self.prefix}:{self.organisation}:{{txn:{escape(transactional_id)}}}:state"

    def open_transaction(self, transactional_id: str) -> str:
        """The partitions and groups of its open transaction, which any node adds."""
        return f"{self.prefix}:{self.organisation}:{{txn:{escape(transactional_id)}}}:open"

    def transaction_rows(self, transactional_id: str) -> str:
        """Nothing yet: what is owned may have rows."""
        return f"{self.prefix}:{self.organisation}:{{txn:{escape(transactional_id)}}}:rows"

    def group_verdicts(self, group_id: str) -> str:
        """How the transactions ended that a group has pending offsets of."""
        return f"{self.prefix}:{self.organisation}:{{{escape(group_id)}}}:verdicts"

    def partition(self, topic: str, partition: int, short_id: str) -> PartitionKeys:
        """Keys of a partition in format `log`."""
        stem = f"{self.prefix}:{self.organisation}:{{{escape(topic)}:{partition}:{short_id}}}"
        return PartitionKeys(f"{stem}:log", f"{stem}:meta", f"{stem}:index", f"{stem}:producers", f"{stem}:aborted")

    def stream_partition(self, topic: str, partition: int, short_id: str) -> PartitionKeys:
        """Keys of a partition in format `stream`."""
        stem = f"{self.prefix}:{self.organisation}:{{{escape(topic)}:{partition}}}"
        own = f"{stem}:{short_id}"
        return PartitionKeys(
            f"{stem}:stream",
            f"{own}:meta",
            f"{own}:index",
            f"{own}:producers",
            exceptions=f"{own}:exceptions",
            owner=f"{stem}:owner",
        )


def escape(name: str) -> str:
    """A name without the braces that would end a hash tag early."""
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")

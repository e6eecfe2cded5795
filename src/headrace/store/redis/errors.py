"""Errors of the store, and the Kafka error that clients get for each.

Redis puts the kind of error into its first word. The table below is a contract with clients: they retry an error that
passes by itself, and report one that needs an operator.
"""

from __future__ import annotations

from headrace.wire.errors import ErrorCode, KafkaError


class StoreError(KafkaError):
    """A command failed. Unless it is OutcomeUnknown, nothing was changed."""


class StoreAway(StoreError):
    """There is no connection to Redis now: the command was not sent."""

    def __init__(self, why: str = "", advice: str = "") -> None:
        self.why = why
        self.advice = advice
        """What to do, if waiting is not enough."""
        reason = f" ({why})" if why else ""
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"the store is unavailable{reason}; reconnecting")


class OutcomeUnknown(StoreError):
    """The connection broke, or the time ran out, after the command was sent: it may or may not have happened."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"the store did not answer ({why})")


class PartitionGone(StoreError):
    """The partition's stream is not there: the topic was deleted, or the store evicted or flushed it."""

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what} is not in the store")


class LeftToLeader(StoreError):
    """The store lost records that another node may have: the partition's leader makes them good, or notes the loss."""

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"the store lost records of {what}: its leader restores them")


_REFUSED_EXEC = "EXECABORT Transaction discarded because of: "
"""How servers begin the refusal of EXEC itself; the usual words follow."""


class RedisError(StoreError):
    """Redis refused a command, with its own words."""

    def __init__(self, text: str, where: str = "") -> None:
        self.text = text
        self.where = where
        """The server, if it refused a connection, or all writes."""
        self.kind = text.removeprefix(_REFUSED_EXEC).split(" ", 1)[0]
        code = KAFKA_ERROR_BY_KIND.get(self.kind, ErrorCode.UNKNOWN_SERVER_ERROR)
        super().__init__(code, f"Redis says: {text}")

    @property
    def is_refused_id(self) -> bool:
        """XADD refused an id that is not above the last one: another writer appended."""
        return "equal or smaller" in str(self)

    @property
    def is_redirect(self) -> bool:
        """Another server has the slot: nothing was done."""
        return self.kind in ("MOVED", "ASK")

    @property
    def passes_by_itself(self) -> bool:
        """Waiting is enough: the server starts, fails over or is busy."""
        return self.kind in PASSING_KINDS


KAFKA_ERROR_BY_KIND = {
    "LOADING": ErrorCode.KAFKA_STORAGE_ERROR,
    "READONLY": ErrorCode.KAFKA_STORAGE_ERROR,
    "MASTERDOWN": ErrorCode.KAFKA_STORAGE_ERROR,
    "CLUSTERDOWN": ErrorCode.KAFKA_STORAGE_ERROR,
    "TRYAGAIN": ErrorCode.KAFKA_STORAGE_ERROR,
    "MOVED": ErrorCode.KAFKA_STORAGE_ERROR,
    "ASK": ErrorCode.KAFKA_STORAGE_ERROR,
    "BUSY": ErrorCode.KAFKA_STORAGE_ERROR,
    "NOREPLICAS": ErrorCode.NOT_ENOUGH_REPLICAS,
    "OOM": ErrorCode.KAFKA_STORAGE_ERROR,
    "MISCONF": ErrorCode.KAFKA_STORAGE_ERROR,
    "NOAUTH": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "NOPERM": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "WRONGPASS": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "WRONGTYPE": ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""First word of Redis's error -> what clients get. docs/behaviour.md shows it to people."""

PASSING_KINDS = frozenset({"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY"})


WRITE_REFUSALS = {
    "OOM": "raise its maxmemory, or delete keys of others",
    "NOREPLICAS": "attach its replicas, or lower its min-replicas-to-write",
    "MISCONF": "check its disk and its log",
}
"""What a server says while it takes no writes at all -> what to do."""


class StoreRefused(Exception):
    """This Redis is unusable for a log; the message has the reason and the remedy."""

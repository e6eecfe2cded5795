"""Client-side errors, and the broker errors that are retriable."""

from __future__ import annotations

from typing import Final

from headrace.wire.errors import ErrorCode, KafkaError


class BrokerUnreachable(ConnectionError):
    """The broker cannot be reached, or the connection broke. `request_sent`: it may have executed the request."""

    def __init__(self, message: str, *, request_sent: bool = False) -> None:
        super().__init__(message)
        self.request_sent = request_sent


class UnsupportedApi(Exception):
    """The broker does not offer this API, or no version that we support."""


class PropertyError(ValueError):
    """A missing, unknown or wrong property, as one sentence that begins with its name."""

    def __init__(self, name: str, trouble: str) -> None:
        super().__init__(f"'{name}' {trouble}")
        self.name = name
        self.trouble = trouble


class RetriableError(KafkaError):
    """A temporary error: a retry with fresh metadata may succeed."""


RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        # The topic was recreated: fresh metadata has its new id, or shows that it is gone.
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

AWAY: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors that may last for as long as a part of the broker's store is away, while all else is answered."""

TEMPORARY: Final = {
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader now",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition is moving to another node",
    ErrorCode.REQUEST_TIMED_OUT: "the broker did not finish in time",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no coordinator is available now",
    ErrorCode.NOT_COORDINATOR: "no node is the coordinator now",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too few replicas are in sync",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "stored, but too few replicas confirmed it in time",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's store is unavailable now",
    ErrorCode.OFFSET_NOT_AVAILABLE: "too few replicas have confirmed the end of the partition",
}
"""In words, for people: responses seldom have room for them."""


def kafka_error(code: int, message: str | None = None, *, retriable: bool = False) -> KafkaError:
    """The exception for an error code, known or unknown to us."""
    try:
        known = ErrorCode(code)
    except ValueError:
        known, message = ErrorCode.UNKNOWN_SERVER_ERROR, f"error {code}: {message or 'unknown to this client'}"
    kind = RetriableError if retriable or known in RETRIABLE else KafkaError
    return kind(known, message or "")

"""Remembers where a connection's batches were refused temporarily, so that those sent after them are refused too.

An idempotent producer has up to five requests in flight. If one is refused temporarily (another node leads, the store
is unavailable) and the next one arrives after the trouble is over, that one does not follow the log. It was sent before
its client knew of the refusal, and OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka raise its epoch and resend
everything in doubt, in all partitions: batches already in the log would be duplicated. So it gets a retriable error as
well, and the client resends both in order.

While partitions move between nodes the refusal may have come from another node, unknown here, or come from one that
hangs: until things have settled, every batch that does not follow gets a retriable error.
"""

from __future__ import annotations

import asyncio
from functools import partial

from headrace.store.cluster.catalogue import Topic
from headrace.store.partition.appending import Appended
from headrace.wire.errors import ErrorCode, KafkaError

_BEHIND_MOST = 4
"""A producer that has not seen the answer to one request has sent at most so many behind it."""

_FOR_NOW = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Refusal:
    """One refusal, and how many more batches may have been on their way behind it."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _BEHIND_MOST


class RefusedBatches:
    """The last refusal in each partition, until a batch that was sent after it is in the log."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[bytes, int], Refusal] = {}
        self.are_any = False
        """Whether there may be some: a connection without trouble never has."""

    def watch(self, topic: Topic, number: int, appended: asyncio.Future[Appended]) -> None:
        """Learns a batch's outcome the moment it is known: before that of the next one is."""
        appended.add_done_callback(partial(self._learn, topic, number, self.last(topic, number)))

    def _learn(self, topic: Topic, number: int, before: Refusal | None, appended: asyncio.Future[Appended]) -> None:
        if appended.cancelled():
            return
        error = appended.exception()
        if isinstance(error, KafkaError):
            self.note(topic, number, error)
        elif before is not None:
            self.is_over(topic, number, before)

    def last(self, topic: Topic, number: int) -> Refusal | None:
        """The last refusal before a batch that is queued now."""
        return self._refusals.get((topic.uuid, number)) if self.are_any else None

    def is_over(self, topic: Topic, number: int, before: Refusal) -> None:
        """A batch that was sent after a refusal is in the log."""
        if self._refusals.get((topic.uuid, number)) is before:
            del self._refusals[topic.uuid, number]

    def note(self, topic: Topic, number: int, error: KafkaError) -> None:
        """A batch was refused."""
        if error.code in _FOR_NOW:
            self._refusals[topic.uuid, number] = Refusal()
            self.are_any = True

    def verdict(self, topic: Topic, number: int, error: KafkaError, *, is_settled: bool) -> KafkaError:
        """The error to answer; another one if it may only result from a refusal the client had not seen yet."""
        if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return error
        refusal = self._refusals.get((topic.uuid, number))
        if refusal is not None and refusal.left:
            refusal.left -= 1
        elif is_settled:
            return error
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "An earlier batch got a retriable error.")

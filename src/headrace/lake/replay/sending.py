"""The sending half of a replay: a thread that sends encoded batches and waits until they are stored.

If the producer of an earlier run is continued, its first batch in each partition is verified by reading it back: a
broker treats a batch with known sequences as a duplicate, and the earlier run may have had such a batch in flight.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping

from headrace.client import Cluster, Reader
from headrace.client.batch_sender import BatchSender
from headrace.lake.records.decode import decode
from headrace.lake.replay.batches import ReplayBatch
from headrace.lake.replay.origin import Arrived, Origin, origins
from headrace.wire.errors import ErrorCode, KafkaError

QUEUED_REQUESTS = 4


class Overtaken(Exception):
    """A batch of another run arrived after the target was read."""


class Sending:
    """The sending thread and its queue."""

    def __init__(self, cluster: Cluster, topic: str, origin: Origin, arrived: Arrived) -> None:
        self._cluster, self._topic, self._origin = cluster, topic, origin
        self._sender = BatchSender(cluster, topic, arrived.producers)
        self._unproved = set(arrived.producers)
        self._waiting: queue.Queue[Mapping[int, ReplayBatch] | None] = queue.Queue(QUEUED_REQUESTS)
        self._failure: BaseException | None = None
        self.records = self.size_bytes = 0
        """Records stored so far."""
        self._thread = threading.Thread(target=self._run, name="headrace-replay", daemon=True)

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._failure = self._failure or InterruptedError()
        self._end()

    def put(self, request: Mapping[int, ReplayBatch]) -> None:
        """Queues a request; raises the errors of earlier ones."""
        while True:
            if self._failure is not None:
                raise self._failure
            try:
                return self._waiting.put(request, timeout=0.1)
            except queue.Full:
                continue

    def finish(self) -> None:
        """Waits until all is stored."""
        self._end()
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        if self._thread.is_alive():
            while self._failure is not None and not self._waiting.empty():
                self._waiting.get_nowait()
            self._waiting.put(None)
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._failure is None and (request := self._waiting.get()) is not None:
                self._send(request)
        except BaseException as error:  # raised when the next request is queued
            self._failure = error

    def _send(self, request: Mapping[int, ReplayBatch]) -> None:
        try:
            offsets = self._sender.send({target: one.batch for target, one in request.items()})
        except KafkaError as error:
            if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise Overtaken(error.message) from None
            raise
        for target in self._unproved & set(request):
            self._prove(target, offsets[target], request[target])
            self._unproved.discard(target)
        self.records += sum(one.records for one in request.values())
        self.size_bytes += sum(len(one.batch) for one in request.values())

    def _prove(self, target: int, offset: int, sent: ReplayBatch) -> None:
        """Checks the first batch of a continued producer, which may be taken for one of an earlier run."""
        if offset >= 0:
            fetched = Reader(self._cluster, max_bytes=1).fetch_raw(self._topic, target, offset)
            for rows in decode(fetched.batches, topic=self._topic, partition=target, first_offset=offset):
                found = origins(self._origin, rows.column("headers").slice(0, 1))
                if [*found] == [sent.source] and found[sent.source][0] == sent.first_offset:
                    return
                break
        raise Overtaken(f"partition {target} has another batch at {offset}")

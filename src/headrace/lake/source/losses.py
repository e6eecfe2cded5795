"""Lost records of a query: an error, or a warning if its options say so."""

from __future__ import annotations

import logging

from headrace.client import Admin, Cluster
from headrace.lake.fetching import OffsetRange, Silence
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.special_times import EARLIEST, LATEST

log = logging.getLogger(__name__)

STALL_TIMEOUT_S = 60.0
"""How long records that a broker claims to have may be missing, as after a change of leader."""

_TOPIC_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class DataLost(Exception):
    """Records of the query's range no longer exist."""


class Undecided(Exception):
    """Records of the query's range are held back by an open transaction."""


class Losses:
    """A query's view of missing records: they were planned, so they are lost."""

    def __init__(self, *, are_errors: bool) -> None:
        self._are_errors = are_errors

    def report(self, message: str) -> None:
        """Raises, or continues with a warning."""
        if self._are_errors:
            raise DataLost(f"{message} To continue without the lost records, set failOnDataLoss to false.")
        log.warning("%s Continuing without the lost records.", message)

    def gone(self, cluster: Cluster, wanted: OffsetRange, position: int, error: KafkaError) -> int:
        """The position to continue at after an error for deleted records; other errors are raised."""
        if error.code in _TOPIC_GONE:
            self.report(f"{wanted} is gone, and with it offsets {position} to {wanted.stop - 1}.")
            return wanted.stop
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise error
        partition = (wanted.topic, wanted.partition)
        admin = Admin(cluster)
        first = admin.list_offsets({partition: EARLIEST})[partition].offset
        end = admin.list_offsets({partition: LATEST})[partition].offset
        if first <= position < end:
            raise error
        resume = min(first, wanted.stop) if first > position else wanted.stop
        self.report(
            f"Offsets {position} to {resume - 1} of {wanted} are gone: it now holds {first} to {end - 1}."
            if end > first
            else f"Offsets {position} to {resume - 1} of {wanted} are gone: it is empty, and continues at {end}."
        )
        return resume

    def silent(self, wanted: OffsetRange, silence: Silence) -> int | None:
        """Retries for a while. Records held back by an open transaction are not lost, and never skipped."""
        if silence.seconds <= STALL_TIMEOUT_S:
            return silence.position
        if 0 <= silence.last.last_stable_offset <= silence.position < silence.last.high_watermark:
            raise Undecided(
                f"Offsets {silence.position} to {wanted.stop - 1} of {wanted} did not arrive in {STALL_TIMEOUT_S:.0f} "
                f"s: a transaction is open since offset {silence.last.last_stable_offset}. End the query there, wait "
                "for the transaction, or set kafka.isolation.level to read_uncommitted."
            )
        self.report(
            f"Offsets {silence.position} to {wanted.stop - 1} of {wanted} did not arrive in {STALL_TIMEOUT_S:.0f} s; "
            f"the broker says that it ends at {silence.last.high_watermark}."
        )
        return wanted.stop

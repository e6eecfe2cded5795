"""Why a record batch is refused, each reason with the error code that Kafka answers for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple


class RecordError(NamedTuple):
    """What is wrong with one record of a batch (KIP-467)."""

    place: int
    """In the batch, from 0."""
    message: str


class BatchError(ValueError):
    """Why a batch is refused, as a sentence, with the error code that Kafka answers for it.

    `record_errors` names the records that it is refused for, where it is not the batch as a whole: a client then
    tells its user of those, and may send the others again.
    """

    error_code: ClassVar[int]

    def __init__(self, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class CorruptBatch(BatchError):
    """The bytes are damaged: CORRUPT_MESSAGE, which clients answer by sending again."""

    error_code = 2


class BatchTooLarge(BatchError):
    """The batch, or what it decompresses to, is over the limit: MESSAGE_TOO_LARGE. Java's producer then splits it."""

    error_code = 10


class InvalidTimestamp(BatchError):
    """The producer set a time that is the broker's to set: INVALID_TIMESTAMP."""

    error_code = 32


class UnsupportedFormat(BatchError):
    """A message of format 0 or 1, met while reading: UNSUPPORTED_FOR_MESSAGE_FORMAT."""

    error_code = 43


class UnsupportedCompression(BatchError):
    """A codec that does not exist, or not in that request version: UNSUPPORTED_COMPRESSION_TYPE."""

    error_code = 76


class InvalidBatch(BatchError):
    """The bytes arrived as they were sent and say something impossible: INVALID_RECORD."""

    error_code = 87

"""Reasons for refusing a record batch, each with the error code that Kafka answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple


class RecordError(NamedTuple):
    """The error of one record in a batch (KIP-467)."""

    place: int
    """Index in the batch, from 0."""
    message: str


class BatchError(ValueError):
    """A batch is refused: the reason as a sentence, and the error code that Kafka answers.

    If single records are to blame, `record_errors` lists them, so that a client can report those and resend the rest.
    """

    error_code: ClassVar[int]

    def __init__(self, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class CorruptBatch(BatchError):
    """The bytes are damaged: CORRUPT_MESSAGE, which clients retry."""

    error_code = 2


class BatchTooLarge(BatchError):
    """The batch, compressed or not, exceeds the limit: MESSAGE_TOO_LARGE. Java's producer then splits it."""

    error_code = 10


class InvalidTimestamp(BatchError):
    """The producer set a timestamp that only the broker may set: INVALID_TIMESTAMP."""

    error_code = 32


class UnsupportedFormat(BatchError):
    """A message in the old format 0 or 1 was read: UNSUPPORTED_FOR_MESSAGE_FORMAT."""

    error_code = 43


class UnsupportedCompression(BatchError):
    """An unknown codec, or one not allowed in that request version: UNSUPPORTED_COMPRESSION_TYPE."""

    error_code = 76


class InvalidBatch(BatchError):
    """The bytes are intact but their content is impossible: INVALID_RECORD."""

    error_code = 87

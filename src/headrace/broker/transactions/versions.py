"""Older error codes for older request versions."""

from __future__ import annotations

from headrace.wire.errors import ErrorCode

_FENCED_SINCE = 2
_INIT_FENCED_SINCE = 4


def end_error(error: ErrorCode, version: int) -> ErrorCode:
    """For AddPartitionsToTxn, AddOffsetsToTxn and EndTxn."""
    return _before(error, version, _FENCED_SINCE)


def init_error(error: ErrorCode, version: int) -> ErrorCode:
    return _before(error, version, _INIT_FENCED_SINCE)


def _before(error: ErrorCode, version: int, since: int) -> ErrorCode:
    is_new = error is ErrorCode.PRODUCER_FENCED and version < since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_new else error

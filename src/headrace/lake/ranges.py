"""Ranges of offsets and their loss: what planning and reading have in common, without what reading needs."""

from __future__ import annotations

import msgspec


class DataLost(Exception):
    """Records that were to be read are not there any more."""


class OffsetRange(msgspec.Struct, frozen=True):
    """The offsets [start, stop) of a partition."""

    topic: str
    partition: int
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

"""The two log formats, and the configs of a topic that the store itself acts on.

The broker's table of topic configs says what may be set; here is what the store makes of it, so that every node reads
a topic in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

FORMAT = "headrace.format"
LOG, STREAM = "log", "stream"
SEQUENCE_BITS = "headrace.stream.sequence.bits"
DEFAULT_SEQUENCE_BITS = 10
MOST_SEQUENCE_BITS = 22
"""An id of today fits 63 bits with 22 bits of sequence, until 2039."""
FOREIGN = "headrace.stream.foreign"
FOREIGN_CHOICES = ("json", "skip")
CLEANUP_POLICY = "cleanup.policy"
TIMESTAMP_TYPE = "message.timestamp.type"
CREATE_TIME, APPEND_TIME = "CreateTime", "LogAppendTime"

TIERED = "remote.storage.enable"


class StreamSettings(NamedTuple):
    """How a topic of format `stream` is written and read."""

    bits: int
    """Of an offset, for the sequence; the milliseconds lie above them."""
    append_time: bool
    """Whether a record's time is its id's; otherwise it is the producer's."""
    skips_foreign: bool
    """Whether entries with fields of their own are left out, rather than delivered as JSON."""
    compacts: bool
    """Whether only the last record of each key stays."""


def is_stream(configs: Mapping[str, str]) -> bool:
    """Whether a topic keeps one entry per record."""
    return configs.get(FORMAT) == STREAM


def is_tiered(configs: Mapping[str, str]) -> bool:
    """Whether a topic's old records are left to the lake."""
    return configs.get(TIERED) == "true" and not is_stream(configs)


def default_timestamp_type(configs: Mapping[str, str]) -> str:
    """What a topic that does not say gets: look-ups by time come straight from a stream's ids."""
    return APPEND_TIME if is_stream(configs) else CREATE_TIME


def stream_settings(configs: Mapping[str, str]) -> StreamSettings:
    """What a topic's configs say of its streams."""
    return StreamSettings(
        int(configs.get(SEQUENCE_BITS, DEFAULT_SEQUENCE_BITS)),
        configs.get(TIMESTAMP_TYPE, default_timestamp_type(configs)) == APPEND_TIME,
        configs.get(FOREIGN) == "skip",
        "compact" in configs.get(CLEANUP_POLICY, "").split(","),
    )

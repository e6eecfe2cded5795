"""The options of the Spark source: those of Spark's own Kafka source, checked before anything is read.

Rule kept here: an option is honoured, or refused in one sentence that names it and its allowed values. Separate from
data_source.py because none of this needs Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from headrace.lake.connecting import Connecting, OptionError, parse_connecting
from headrace.wire.special_times import EARLIEST, LATEST
from headrace.wire.topic_partition import TopicPartition

"""Special values for the start and end of a partition, in JSON offsets and in plans."""

_KAFKA_PREFIX = "kafka."

# By lower case, as Spark passes options.
_OPTIONS = {
    name.lower(): name
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "maxOffsetsPerTrigger",
        "minPartitions",
        "maxRecordsPerPartition",
        "failOnDataLoss",
        "includeHeaders",
    )
}
_TOPICS = ("subscribe", "subscribePattern", "assign")
_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


class Bound(msgspec.Struct, frozen=True):
    """A start or end: one offset or timestamp for all partitions, or one for each."""

    kind: Literal["offset", "timestamp"]
    everywhere: int | None = None
    each: dict[TopicPartition, int] = {}
    latest_if_none: bool = False
    """By timestamp: a partition without a record that late starts at its end, instead of an error."""


class SourceOptions(msgspec.Struct, frozen=True):
    """What to read, from where, and how."""

    connecting: Connecting
    subscribe: list[str] = []
    subscribe_pattern: str | None = None
    assign: list[TopicPartition] = []
    starting: Bound | None = None
    ending: Bound | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False

    def for_batch(self) -> SourceOptions:
        """Checks the options of a batch query: it needs a definite start and end."""
        if self.max_offsets_per_trigger is not None:
            raise OptionError("Option 'maxOffsetsPerTrigger' is for streaming queries.")
        if self.starting is not None and self.starting.everywhere == LATEST:
            raise OptionError("Option 'startingOffsets' is 'latest', but a batch query finds no records there.")
        if self.ending is not None and self.ending.everywhere == EARLIEST:
            raise OptionError("Option 'endingOffsets' is 'earliest', but a batch query finds no records there.")
        return self

    def for_stream(self) -> SourceOptions:
        """Checks the options of a streaming query, which has no end."""
        if self.ending is not None:
            raise OptionError(f"A streaming query has no end: {' and '.join(_ENDING)} are for batch queries.")
        return self


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Parses the user's options; names are case-insensitive."""
    kafka: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith(_KAFKA_PREFIX):
            kafka[lower.removeprefix(_KAFKA_PREFIX)] = value
        elif lower in _OPTIONS:
            own[_OPTIONS[lower]] = value
        else:
            raise OptionError(f"There is no option '{name}'; there are kafka.* and {', '.join(_OPTIONS.values())}.")
    given = [name for name in _TOPICS if name in own]
    if len(given) != 1:
        raise OptionError(f"Give one of {', '.join(_TOPICS)}" + (f", not {' and '.join(given)}." if given else "."))
    return SourceOptions(
        connecting=parse_connecting(kafka),
        subscribe=_topics(own["subscribe"]) if "subscribe" in own else [],
        subscribe_pattern=_pattern(own["subscribePattern"]) if "subscribePattern" in own else None,
        assign=_assign(own["assign"]) if "assign" in own else [],
        starting=_bound(own, "starting"),
        ending=_bound(own, "ending"),
        max_offsets_per_trigger=_positive(own, "maxOffsetsPerTrigger"),
        min_partitions=_positive(own, "minPartitions"),
        max_records_per_partition=_positive(own, "maxRecordsPerPartition"),
        fail_on_data_loss=_boolean(own, "failOnDataLoss", default=True),
        include_headers=_boolean(own, "includeHeaders", default=False),
    )


def _topics(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise OptionError("Option 'subscribe' has no topic.")
    return sorted(set(names))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(
            f"Option 'subscribePattern' is '{text}', which is not a regular expression: {error}."
        ) from None
    return text


def _assign(text: str) -> list[TopicPartition]:
    example = '{"orders": [0, 1]}'
    try:
        found = msgspec.json.decode(text, type=dict[str, list[int]])
    except msgspec.DecodeError as error:
        raise OptionError(f"Option 'assign' must be partitions by topic, such as {example}: {error}.") from None
    partitions = sorted({(topic, partition) for topic, listed in found.items() for partition in listed})
    if not partitions:
        raise OptionError("Option 'assign' has no partition.")
    return partitions


def _bound(own: Mapping[str, str], role: Literal["starting", "ending"]) -> Bound | None:
    """The start or end; as in Spark, a timestamp takes precedence over offsets by timestamp, and those over offsets."""
    strategy = own.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"Option 'startingOffsetsByTimestampStrategy' is '{strategy}'; it must be error or latest.")
    latest_if_none = role == "ending" or strategy == "latest"
    name = f"{role}Timestamp"
    if name in own:
        return Bound("timestamp", _milliseconds(own[name], name), latest_if_none=latest_if_none)
    name = f"{role}OffsetsByTimestamp"
    if name in own:
        return Bound("timestamp", None, _per_partition(own[name], name, least=0), latest_if_none)
    name = f"{role}Offsets"
    if name not in own:
        return None
    ends = {"earliest": EARLIEST, "latest": LATEST}
    if own[name].strip().lower() in ends:
        return Bound("offset", ends[own[name].strip().lower()])
    return Bound("offset", None, _per_partition(own[name], name, least=EARLIEST if role == "starting" else LATEST))


def _milliseconds(text: str, name: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(f"Option '{name}' is '{text}'; it must be milliseconds since 1970.")
    return int(text)


def _per_partition(text: str, name: str, least: int) -> dict[TopicPartition, int]:
    """Parses JSON with a number per partition of each topic."""
    example = json.dumps({"orders": {"0": 23, "1": 0}})
    either = "" if "Timestamp" in name else "earliest, latest or "
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.DecodeError:
        raise OptionError(f"Option '{name}' is '{text}'; it must be {either}JSON such as {example}.") from None
    flat = {(topic, partition): at for topic, listed in found.items() for partition, at in listed.items()}
    for (topic, partition), at in flat.items():
        if at < least:
            raise OptionError(f"Option '{name}' has {at} for {topic}-{partition}; the minimum is {least}.")
    return flat


def _positive(own: Mapping[str, str], name: str) -> int | None:
    if name not in own:
        return None
    text = own[name].strip()
    if not text.isdecimal() or not int(text):
        raise OptionError(f"Option '{name}' is '{text}'; it must be a whole number above 0.")
    return int(text)


def _boolean(own: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = own.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"Option '{name}' is '{text}'; it must be true or false.")
    return text == "true"

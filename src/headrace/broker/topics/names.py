"""Valid topic names, with Kafka's messages, and reserved ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.offsets_topic import OFFSETS_TOPIC

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST = 249
INTERNAL = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})


def is_internal(name: str | None) -> bool:
    """Whether clients take the topic for the broker's own: one that they cannot make or write to."""
    return name in INTERNAL


def check_not_internal(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION for a topic that clients must not change."""
    if name in INTERNAL:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic '{name}' is internal; clients cannot write to it."
        )


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION with the reason."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > _LONGEST:
        reason = f"the length of '{name}' is longer than the max allowed length {_LONGEST}"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Kafka refuses names that differ in '.' and '_' only: their metrics would be one."""
    folded = name.replace(".", "_")
    if "_" not in folded:
        return
    for other in existing:
        if other != name and other.replace(".", "_") == folded:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")

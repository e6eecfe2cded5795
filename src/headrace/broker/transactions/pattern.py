"""Patterns for transactional ids (KIP-1152), limited to syntax with bounded running time.

Kafka matches with RE2, whose time is linear in the text. Python's `re` can backtrack without end, so repeated groups,
back-references and more than two repetitions are rejected like an invalid pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headrace.wire.errors import ErrorCode, KafkaError

_LONGEST = 1_000
_REPETITIONS_MOST = 2
_REPETITION = re.compile(r"(?<!\\)[*+{?]")
_DANGEROUS = re.compile(r"\)[*+{?]|\\[1-9]|\(\?")


def compile_pattern(pattern: str | None) -> Callable[[str], bool]:
    """Whether an id matches as a whole; INVALID_REGULAR_EXPRESSION if that cannot be told."""
    if not pattern:
        return lambda name: True
    too_much = len(_REPETITION.findall(pattern)) > _REPETITIONS_MOST or len(pattern) > _LONGEST
    if too_much or _DANGEROUS.search(pattern):
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, "The pattern is too complex.")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
    return lambda name: compiled.fullmatch(name[:_LONGEST]) is not None

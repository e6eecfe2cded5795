"""Times as people write and read them: ISO 8601, milliseconds since 1970, or an age.

All in UTC unless a zone is given, as in Kafka's own tools, so that a command means the same on every machine.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

from headrace.cli.quantities import parse_time

FORMS = "a time such as 2026-05-01, 2026-05-01T10:00:00Z or @1777629600000 (milliseconds), or an age such as 10m"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def parse_moment(text: str, now_ms: int | None = None) -> int | None:
    """Milliseconds since 1970; None if the text is not a time. A bare number is not one: it may mean an offset."""
    text = text.strip()
    if re.fullmatch(r"@[0-9]{1,15}", text):
        return int(text[1:])
    if re.fullmatch(r"[0-9.]+\s*[a-zA-Z]+", text) and (ago_ms := parse_time(text)) is not None:
        return (time.time_ns() // 1_000_000 if now_ms is None else now_ms) - ago_ms
    if not re.match(r"[0-9]{4}-", text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - _EPOCH) // _MILLISECOND


def show_moment(time_ms: int) -> str:
    """`2026-05-01T10:00:00.123Z`; a number outside the range of dates stays a number."""
    try:
        moment = _EPOCH + time_ms * _MILLISECOND
    except OverflowError:
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""Special timestamps of ListOffsets: earliest, latest and the like."""

from __future__ import annotations

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6

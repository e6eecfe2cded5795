"""Every limit and timeout of a group, with Kafka's default; except the size, which Kafka does not limit."""

import msgspec

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    min_session_timeout_ms: int = 6 * SECOND_MS
    max_session_timeout_ms: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3 * SECOND_MS
    """How long the first rebalance of an Empty group waits for more members; 0 completes it at once."""
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """How long a new member's Join may stay parked: it cannot heartbeat yet, so its session cannot end."""
    max_size: int = 5_000
    offsets_retention_ms: int = 7 * DAY_MS

"""The last position of each key, for compaction: bounded, so that more keys take several passes."""

from __future__ import annotations

from hashlib import blake2b

MOST_KEYS = 500_000
"""Maximum keys per pass, about 100 MB. With more keys a pass ends earlier, and the next one continues there."""
_LONGEST_PLAIN_KEY = 16


def digest(key: bytes) -> bytes:
    """A key, or 17 bytes that stand for a longer one: no plain key is as long."""
    return key if len(key) <= _LONGEST_PLAIN_KEY else blake2b(key, digest_size=_LONGEST_PLAIN_KEY + 1).digest()

"""Where a topic's table lies: one folder per topic, two topics never in one, on disks that ignore case too.

Topic names are made of letters, digits, `.`, `_` and `-`. A capital becomes `_` and its small letter, `_` becomes
`__`. So `_` before anything else never comes from a topic, and names made with it are ours: a table whose topic was
deleted, a name too long for a file system. Apart because the archive, the broker and a person must agree on it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

LONGEST = 180
"""Characters of a folder's name; file systems allow 255, and a deleted topic's table gets its id behind it."""


def folder_of(topic: str) -> str:
    """The folder's name of a topic's table."""
    name = "".join("__" if char == "_" else f"_{char.lower()}" if char.isupper() else char for char in topic)
    if len(name) <= LONGEST:
        return name
    return f"{name[:100].rstrip('_')}_.{hashlib.sha256(topic.encode()).hexdigest()}"


def folder_of_deleted(topic: str, topic_id: bytes) -> str:
    """The folder's name of a table whose topic was deleted and made again."""
    return f"{folder_of(topic)}_.{topic_id.hex()}"


def local_lake(lake: str) -> Path:
    """The lake's root. Object stores are refused until a commit there is as safe as on a file system."""
    if "://" in lake and not lake.startswith("file://"):
        raise ValueError(f"{lake} is no folder of a file system; the archive writes to those only.")
    return Path(lake.removeprefix("file://")).absolute()

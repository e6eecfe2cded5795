"""Where a topic's table lies: one folder per topic, two topics never in one, on disks that ignore case too.

Topic names are made of letters, digits, `.`, `_` and `-`. A capital becomes `_` and its small letter, `_` becomes
`__`. So `_` before anything else never comes from a topic, and names made with it are ours: a table whose topic was
deleted, a name too long for a file system, tables made from a topic's (`orders_.typed`). Apart because the archive, the
broker and a person must agree on it.
"""

from __future__ import annotations

import hashlib
import re

from headrace.organisations import DEFAULT_ORGANISATION

_ORGANISATIONS = "_.orgs"
LONGEST = 180
"""Characters of a folder's name; file systems allow 255, and a deleted topic's table gets its id behind it."""
_TOPIC_ID = re.compile("[0-9a-f]{32}")


def folder_of(topic: str) -> str:
    """The folder's name of a topic's table."""
    name = "".join("__" if char == "_" else f"_{char.lower()}" if char.isupper() else char for char in topic)
    if len(name) <= LONGEST:
        return name
    return f"{name[:100].rstrip('_')}_.{hashlib.sha256(topic.encode()).hexdigest()}"


def folder_of_organisation(organisation: str) -> str:
    """The folder below which an organisation's tables lie, other than those of the one that has the lake itself."""
    return f"{_ORGANISATIONS}/{organisation}"


def organisation_of_folder(root: str) -> str:
    """Whose tables lie directly in a folder."""
    above, _, organisation = root.rstrip("/").rpartition("/")
    return organisation if above.rpartition("/")[2] == _ORGANISATIONS else DEFAULT_ORGANISATION


def folder_with_id(topic: str, topic_id: bytes) -> str:
    """The folder's name of a table that shares its topic's name with another: the topic was deleted and made again."""
    return f"{folder_of(topic)}_.{topic_id.hex()}"


def folder_of_derived(folder: str, what: str) -> str:
    """The folder's name of a table that is made from the one in `folder`: its typed rows, or its rejects."""
    return f"{folder}_.{what}"


def is_derived(folder: str) -> bool:
    """Whether a folder holds such a table."""
    return folder.endswith(("_.typed", "_.rejects"))


def is_folder_of(folder: str, topic: str) -> bool:
    """Whether a folder is for the table of a topic of this name, of today or of before."""
    plain = folder_of(topic)
    return folder == plain or (
        folder.startswith(f"{plain}_.") and _TOPIC_ID.fullmatch(folder[len(plain) + 2 :]) is not None
    )

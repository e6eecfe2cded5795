"""The folder of a topic's table: one per topic, never shared, even on disks that ignore case.

Topic names consist of letters, digits, `.`, `_` and `-`. A capital becomes `_` and its lower case letter, `_` becomes
`__`. So `_` before anything else never comes from a topic, and such names are ours: the table of a deleted topic, a
name too long for a file system, derived tables (`orders_.typed`). Separate because the archive, the broker and people
must agree on it.
"""

from __future__ import annotations

import hashlib
import re

from headrace.organisations import DEFAULT_ORGANISATION

_ORGANISATIONS = "_.orgs"
LONGEST = 180
"""Maximum length of a folder's name; file systems allow 255, and a deleted topic's table gets its id appended."""
_TOPIC_ID = re.compile("[0-9a-f]{32}")


def folder_of(topic: str) -> str:
    """The folder name of a topic's table."""
    name = "".join("__" if char == "_" else f"_{char.lower()}" if char.isupper() else char for char in topic)
    if len(name) <= LONGEST:
        return name
    return f"{name[:100].rstrip('_')}_.{hashlib.sha256(topic.encode()).hexdigest()}"


def folder_of_organisation(organisation: str) -> str:
    """The folder of an organisation's tables, unless the organisation owns the whole lake."""
    return f"{_ORGANISATIONS}/{organisation}"


def organisation_of_folder(root: str) -> str:
    """The organisation whose tables are directly in a folder."""
    above, _, organisation = root.rstrip("/").rpartition("/")
    return organisation if above.rpartition("/")[2] == _ORGANISATIONS else DEFAULT_ORGANISATION


def folder_with_id(topic: str, topic_id: bytes) -> str:
    """The folder name of a table whose topic was deleted and recreated, so that two tables share the name."""
    return f"{folder_of(topic)}_.{topic_id.hex()}"


def folder_of_derived(folder: str, what: str) -> str:
    """The folder name of a table derived from the one in `folder`: its typed rows, or its rejects."""
    return f"{folder}_.{what}"


def is_derived(folder: str) -> bool:
    """Whether a folder has a derived table."""
    return folder.endswith(("_.typed", "_.rejects"))


def is_folder_of(folder: str, topic: str) -> bool:
    """Whether a folder is for a topic of this name, current or deleted."""
    plain = folder_of(topic)
    return folder == plain or (
        folder.startswith(f"{plain}_.") and _TOPIC_ID.fullmatch(folder[len(plain) + 2 :]) is not None
    )

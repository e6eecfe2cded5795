"""Login names: `<organisation>/<user>`, or a bare name for a user of the organisation `default`."""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.organisations import DEFAULT_ORGANISATION

ORGANISATION = re.compile(r"[a-z0-9-]{1,63}")
_LONGEST_NAME = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class LoginName(NamedTuple):
    """A user, and the organisation that it belongs to."""

    organisation: str
    user: str

    def __str__(self) -> str:
        return f"{self.organisation}/{self.user}"


def parse_login_name(text: str) -> LoginName | None:
    """The user that a login names; None if no user can have that name."""
    organisation, slash, user = text.partition("/")
    if not slash:
        organisation, user = DEFAULT_ORGANISATION, text
    return LoginName(organisation, user) if ORGANISATION.fullmatch(organisation) and is_user_name(user) else None


def is_user_name(text: str) -> bool:
    """Whether a user may have this name. A slash would make two logins of one name."""
    return 0 < len(text) <= _LONGEST_NAME and "/" not in text and not _CONTROL.search(text)

"""The audit log of logins: one structured line each, in the logger of all audits.

Clients that are refused in a loop must not fill the disk, and the names they claim cost nothing: refusals are limited
per name, per address and for the node in each minute, and a later line says how many were left out.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from headrace.security.caller import Caller

log = logging.getLogger("headrace.audit")

_A_MINUTE = {"claimed": 10, "host": 100, "node": 1_000}
"""Lines about one name, about one address, and about all of them."""
_MINUTE_S = 60.0
_REMEMBERED = 10_000
_LONGEST_NAME = 100


class LoginAudit:
    """This node's lines."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._told: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        """A name or an address -> start of its minute, and the number of refusals in it."""

    def let_in(self, what: str, caller: Caller, mechanism: str) -> None:
        """A successful login."""
        log.info(
            what,
            extra={
                "principal": str(caller.principal),
                "organisation": caller.organisation,
                "listener": caller.listener,
                "host": caller.host,
                "mechanism": mechanism,
            },
        )

    def refused(self, claimed: str, listener: str, host: str, mechanism: str, why: str) -> None:
        """A failed login. The name is the client's: it may be long, or a mistyped password."""
        who = claimed[:_LONGEST_NAME]
        if all(self._has_room(kind, value) for kind, value in (("claimed", who), ("host", host), ("node", ""))):
            fields = {"claimed": who, "listener": listener, "host": host, "mechanism": mechanism, "why": why}
            log.warning("login refused", extra=fields)

    def _has_room(self, kind: str, value: str) -> bool:
        """Whether there is room for one more line in this minute."""
        now_s = self._now_s()
        began, count = self._told.pop((kind, value), (now_s, 0))
        if now_s - began >= _MINUTE_S:
            left_out = count - _A_MINUTE[kind]
            if left_out > 0 and (kind == "node" or self._has_room("node", "")):
                log.warning("refused logins were not logged", extra={kind: value, "number": left_out})
            began, count = now_s, 0
        self._told[kind, value] = (began, count + 1)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        return count < _A_MINUTE[kind]

"""The audit log of logins: one structured line each, in the logger of all audits.

A client that is refused in a loop must not fill the disk: refusals are limited per name and minute, and a later line
says how many were left out.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from headrace.security.caller import Caller

log = logging.getLogger("headrace.audit")

_REFUSALS_A_MINUTE = 10
_MINUTE_S = 60.0
_REMEMBERED = 10_000
_LONGEST_NAME = 100


class LoginAudit:
    """This node's lines."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._told: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Refused user -> start of its minute, and the number of refusals in it."""

    def let_in(self, what: str, caller: Caller, mechanism: str) -> None:
        """Somebody proved who it is."""
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
        """Somebody did not. The name is what the client sent: it may be long, or a mistake."""
        who = claimed[:_LONGEST_NAME]
        fields = {"claimed": who, "listener": listener, "host": host, "mechanism": mechanism, "why": why}
        now_s = self._now_s()
        began, count = self._told.pop(who, (now_s, 0))
        if now_s - began >= _MINUTE_S:
            if count > _REFUSALS_A_MINUTE:
                log.warning(
                    "refused logins were not logged", extra={"claimed": who, "number": count - _REFUSALS_A_MINUTE}
                )
            began, count = now_s, 0
        self._told[who] = (began, count + 1)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        if count < _REFUSALS_A_MINUTE:
            log.warning("login refused", extra=fields)

"""The audit log: denied operations and administrative changes, one line each, in a separate logger.

A denied client retries again and again, so a denial is logged once a minute per caller and resource, with a limit per
principal and minute; a later line says how many were left out. Changes are always logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.security.acls import Operation, ResourceType
from headrace.security.caller import Caller

audit_log = logging.getLogger("headrace.audit")

_WINDOW_S = 60.0
_REFUSALS_PER_WINDOW = 30
_PRINCIPALS_MAX = 10_000
_LONGEST_NAME = 249


class _Told:
    """Refusals logged for one principal in this window."""

    __slots__ = ("began", "left_out", "things")

    def __init__(self, began: float) -> None:
        self.began = began
        self.things: set[tuple[str, Operation, ResourceType, str]] = set()
        self.left_out = 0


class Audit:
    """One node's lines."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[tuple[str, str], _Told] = {}

    def refused(self, caller: Caller, operation: Operation, kind: ResourceType, name: str) -> None:
        """A refused operation."""
        told = self._window(caller)
        thing = (caller.host, operation, kind, name)
        if thing in told.things:
            return
        if len(told.things) >= _REFUSALS_PER_WINDOW:
            told.left_out += 1
            return
        told.things.add(thing)
        audit_log.info(
            "refused",
            extra={**_who(caller), "operation": operation.name, "resource": kind.name, "name_": name[:_LONGEST_NAME]},
        )

    def changed(self, caller: Caller, what: str, **details: object) -> None:
        """An administrator changed something."""
        audit_log.info("changed", extra={**_who(caller), "what": what, **details})

    def _window(self, caller: Caller) -> _Told:
        now = self._clock()
        key = (caller.organisation, str(caller.principal))
        told = self._told.get(key)
        if told is not None and now - told.began < _WINDOW_S:
            return told
        if told is not None and told.left_out:
            audit_log.info("refusals were not logged", extra={**_who(caller), "number": told.left_out})
        if len(self._told) >= _PRINCIPALS_MAX:
            self._told.clear()
        self._told[key] = told = _Told(now)
        return told


def _who(caller: Caller) -> dict[str, object]:
    return {"principal": str(caller.principal), "organisation": caller.organisation, "host": caller.host}

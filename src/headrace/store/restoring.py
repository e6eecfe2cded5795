"""Restores the partitions that this node led when the store went back in time, before any client asks.

A store may lose its last second, or fail over to a replica that lags. What it lost is still in the tail caches, for a
while: so the caches are compared with it at once, and not when somebody reads. Each partition by itself: one that
cannot be read, or whose server is away, is tried again and does not hold up the others.

Whoever led one until just now compares it too: the node that leads it again may never have seen what was appended
meanwhile, and the store forgot that. What cannot be restored any more is at least reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from headrace.store.confidence import Confidence, Level, View
from headrace.store.partition import origin
from headrace.store.partition.base import Partition
from headrace.store.redis.errors import PartitionGone, StoreError

log = logging.getLogger(__name__)


class Restoring:
    """Which run of the servers the led partitions were last compared with."""

    def __init__(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        self._partitions = partitions
        self._confidence = Confidence()
        self._is_under_way = False

    def is_due(self, timeline: View) -> bool:
        """Whether partitions have to be compared with the servers of now."""
        return self._confidence.level(timeline) is not Level.SURE and not self._is_under_way

    async def run(self, timeline: View) -> None:
        """Compares all of them, and restores what is missing."""
        look, self._is_under_way = self._confidence.begin(timeline), True
        try:
            confirmed = [await _confirm(one) for one in self._partitions() if origin.leads(one) or origin.just_led(one)]
            if all(confirmed):
                self._confidence.end(look)
        finally:
            self._is_under_way = False


async def _confirm(partition: Partition) -> bool:
    try:
        await partition.confirm()
    except PartitionGone:
        pass
    except StoreError as error:
        log.debug("restoring is postponed", extra={"partition": repr(partition), "why": str(error)})
        return False
    return True

"""Who led partitions before: a node's cache of a partition is outdated once another node may have led it since.

Normally the store tells: it has what the other node wrote. A store that lost everything does not.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.clock import Clock
from headrace.store.cluster.nodes.leadership import Leadership
from headrace.store.cluster.nodes.nodes import Nodes
from headrace.store.cluster.nodes.time_away import HARDLY_LOST_S

if TYPE_CHECKING:
    from headrace.store.cluster.catalogue import Topic

_KEPT: Final = 16
"""Lists of live nodes that are remembered: with a cache that is older, another node may have led."""


class _Past(NamedTuple):
    last_term: int
    ended_at: float
    leadership: Leadership


class PastLeaders:
    """The leaders in past terms, as this node saw them."""

    def __init__(self, nodes: Nodes, clock: Clock) -> None:
        self._nodes = nodes
        self._now_s = clock.monotonic_s
        self._live = nodes.live
        self._past: deque[_Past] = deque(maxlen=_KEPT)
        nodes.on_change.append(self._note)

    def _note(self) -> None:
        self._past.append(_Past(self._nodes.term - 1, self._now_s(), Leadership(self._live)))
        self._live = self._nodes.live

    def others_led_since(self, term: int, topic: Topic, partition: int) -> bool:
        """Whether another node may have led a partition after this one read it in a term."""
        if self._nodes.was_away_since(term) or (len(self._past) == _KEPT and term <= self._past[0].last_term):
            return True
        return self._others_led(term, topic, partition, -math.inf)

    def others_just_led_since(self, term: int, topic: Topic, partition: int) -> bool:
        """The same, as far as it is known and only just."""
        return self._others_led(term, topic, partition, self._now_s() - HARDLY_LOST_S)

    def just_led(self, topic: Topic, partition: int) -> bool:
        """Whether this node led a partition until just now."""
        after_s, me = self._now_s() - HARDLY_LOST_S, self._nodes.me.id
        return any(one.leadership.leader(topic, partition).id == me for one in self._past if one.ended_at > after_s)

    def _others_led(self, term: int, topic: Topic, partition: int, after_s: float) -> bool:
        since = [past.leadership for past in self._past if past.last_term >= term and past.ended_at > after_s]
        return any(one.leader(topic, partition).id != self._nodes.me.id for one in since)

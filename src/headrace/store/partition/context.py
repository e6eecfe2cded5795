"""A partition's context: its server, a clock, and a few services of its node.

A partition does not know the store. Its slot is looked up when it is opened; all its commands go to the server that
currently has the slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.clock import Clock
from headrace.cold_log import ColdLog
from headrace.store.cluster.catalogue import Catalogue
from headrace.store.cluster.nodes.nodes import Nodes
from headrace.store.cluster.nodes.past_leaders import PastLeaders
from headrace.store.confidence import Outlook
from headrace.store.end_of_turn import EndOfTurn
from headrace.store.keys import Keys
from headrace.store.options import StoreOptions
from headrace.store.partition.ahead_room import AheadRoom
from headrace.store.partition.tail import TailCache
from headrace.store.redis.topology import Slot
from headrace.store.topic_configs.policy import TopicPolicies
from headrace.store.unpacking import Unpacking

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition


@dataclass(slots=True, kw_only=True)
class PartitionContext:
    """Handed to a partition when it is opened."""

    slot_of: Callable[[str], Slot]
    """Where a key is: the server that has it, now and later."""
    outlook_of: Callable[[Slot], Outlook]
    """The confidence in what was read from a slot."""
    clock: Clock
    options: StoreOptions
    nodes: Nodes
    past_leaders: PastLeaders
    catalogue: Catalogue
    keys: Keys
    policies: TopicPolicies
    tails: TailCache
    ahead: AheadRoom
    unpacking: Unpacking
    process: str
    """The name of this process in what it writes: to be known again by it, and by nobody else."""
    events: Counter[str]
    """Events for the metrics: gaps, restored entries."""
    cold: Callable[[], ColdLog]
    """The reader of the lake, which may be plugged in later."""
    end_of_turn: EndOfTurn
    spawn: Callable[[Coroutine[Any, Any, Any]], None]
    replicas_of: Callable[[int], int]
    """How many of the replicas that a topic asks for count on this store."""
    announce: Callable[[Partition], None]
    """Tells other nodes of an append."""
    watch: Callable[[Any], None]
    """Has long polls woken when Redis code appends to a stream."""

"""The classic protocol: members join and sync, a leader among them assigns partitions.

`machine.ClassicMachine.decide` is the way in; `table` shows the states.
"""

from headrace.groups.classic.machine import ClassicMachine
from headrace.groups.classic.scene import ClassicDecision, Reply
from headrace.groups.classic.snapshot import BadSnapshot, StoredGroup
from headrace.groups.classic.state import Group
from headrace.groups.classic.table import ClassicState
from headrace.groups.classic.timers import TimerKey, TimerKind

__all__ = [
    "BadSnapshot",
    "ClassicDecision",
    "ClassicMachine",
    "ClassicState",
    "Group",
    "Reply",
    "StoredGroup",
    "TimerKey",
    "TimerKind",
]

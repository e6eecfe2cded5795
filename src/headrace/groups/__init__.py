"""Consumer groups as a pure state machine.

The rule of this room: (group, event, now) gives what to store, what to answer and which timers to set.
It reads no clock, draws no random number and touches no socket or store, so every behaviour of a group
can be tested on a virtual clock. `machine.Machine.decide` is the way in; `table` shows the states.
"""

from headrace.groups.machine import Machine
from headrace.groups.scene import Decision, Reply
from headrace.groups.settings import GroupSettings
from headrace.groups.snapshot import BadSnapshot, StoredGroup, dump, parse
from headrace.groups.state import Group
from headrace.groups.table import State
from headrace.groups.timers import TimerKey, TimerKind, Timers

__all__ = [
    "BadSnapshot",
    "Decision",
    "Group",
    "GroupSettings",
    "Machine",
    "Reply",
    "State",
    "StoredGroup",
    "TimerKey",
    "TimerKind",
    "Timers",
    "dump",
    "parse",
]

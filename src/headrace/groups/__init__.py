"""Groups of consumers as pure state machines, one package per protocol, and what the protocols share.

The rule of this room: (state, event, now) gives what to store, what to answer and which timers to set. It reads no
clock, draws no random number and touches no socket or store, so every behaviour of a group can be tested on a virtual
clock.
"""

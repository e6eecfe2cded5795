"""The runtime for owned state: things that one node looks after, decided by a pure machine, stored before answered.

A consumer group is such a thing, and so is a transactional id. Each is owned by one node, the one with the highest
rendezvous hash. That node loads it at its first use, decides what happens to it with a pure machine (`contract.py`),
stores what the decision changes under its own token, and only then adopts the decision and sends the answers. Nothing
here knows what a group is: `tests/broker/owned` runs a machine of ten lines on the same runtime.

The rules, and where they are kept:

1. One event of a thing at a time, in the order in which they came, each decided once (`thing.py`). What changes
   nothing durable is decided and answered at once, in the same turn of the event loop.
2. A write names the owner's token; a node that was replaced without knowing changes nothing (`store/cluster/owned.py`).
3. What is known is only as good as the last sign of trouble (`store/confidence.py`). After one the thing is taken
   again: if another node had it meanwhile, what we know is dropped; if the store went back in time, it gets back what
   was acknowledged.
4. A name of which nothing is stored leaves nothing behind (`runtime.py`).
5. Whoever owns a thing looks after it although nobody asks, for its timers have to end (`upkeep.py`).
"""

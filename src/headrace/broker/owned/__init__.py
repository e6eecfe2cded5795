"""The runtime for owned state: things that one node owns, decided by a pure machine, stored before they are answered.

A consumer group is such a thing, and so is a transactional id. Each is owned by one node, the one with the highest
rendezvous hash. That node loads it at its first use, decides its events with a pure machine (`contract.py`), stores
what a decision changes under its own token, and only then adopts the decision and sends the answers. Nothing here
knows what a group is: `tests/broker/owned` runs a tally on the same runtime.

The rules, and where they are kept:

1. A thing has one event at a time, in order of arrival, each decided once (`thing.py`). An event that changes nothing
   durable is decided and answered at once, in the same iteration of the event loop.
2. Every write carries the owner's token; the write of a node that was replaced without knowing it is refused
   (`store/cluster/owned/things.py`). What is read for a client is compared with the token too (`current` in
   `runtime.py`), and so is a decision of which nothing is left to write.
3. Cached state is only as good as the last sign of trouble (`store/confidence.py`). After one the thing is taken
   again: if another node owned it meanwhile, the cache is dropped; if the store went back in time, it gets back what
   was acknowledged. Its names, which may be on a server that is away, are written again only if they may be lost
   (`names.py`). That goes for what was left to another node within a lease, too (`just_left.py`).
4. A name without stored state leaves nothing behind (`runtime.py`).
5. The owner loads its things without being asked, because their timers must fire (`upkeep.py`).
"""

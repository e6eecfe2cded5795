"""Open transactions as stored, and as the machine sees them."""

from __future__ import annotations

from headrace.broker.owned.contract import Name
from headrace.broker.owned.runtime import Runtime
from headrace.broker.owned.thing import Thing
from headrace.store.cluster.owned.transactions import StoredOpen
from headrace.transactions.events import Expire
from headrace.transactions.state import Open, TransactionalId


def open_from(stored: StoredOpen) -> Open:
    """An open transaction in the machine's form."""
    partitions = tuple((place.topic_id, place.number) for place in stored.parts.partitions)
    return Open(stored.number, stored.start_ms, partitions, tuple(stored.parts.groups))


async def expire(
    ids: Runtime[TransactionalId], name: Name, seen: Open, *, commit: bool = False, is_lost: bool = False
) -> Thing[TransactionalId]:
    """Aborts a transaction that is still open, or commits it if that was decided."""
    return await ids.look(name, lambda thing: Expire(seen, commit, is_lost, thing.owner))

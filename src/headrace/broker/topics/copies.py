"""Topics that ask for more copies than their store has."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from headrace.store.redis.errors import StoreError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def warn_of_copies(broker: Broker, topic: str, replicas: int) -> None:
    """Has it logged if min.insync.replicas of a topic that was made or changed counts as less."""
    if replicas:
        with contextlib.suppress(StoreError):
            await broker.store.replicas.warn(topic, replicas)

"""Transactional ids of this node by state, and for how long the oldest open transaction has been open."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headrace.metrics.text import Sample

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def transaction_samples(broker: Broker) -> list[Sample]:
    """One round over the organisations."""
    states: Counter[tuple[str, str]] = Counter()
    oldest_s: dict[str, float] = {}
    now_ms = broker.store.clock.wall_ms()
    for organisation in list(broker.store.organisations):
        found, _ = await broker.transactions.all(organisation)
        for shown in found:
            states[organisation, str(shown.state)] += 1
            age_ms = now_ms - shown.start_ms if shown.is_open and shown.start_ms >= 0 else 0
            oldest_s[organisation] = max(oldest_s.get(organisation, 0.0), age_ms / 1000)
    samples = [Sample("headrace_transactions", key, count) for key, count in sorted(states.items())]
    samples += [Sample("headrace_transaction_oldest_seconds", (one,), age) for one, age in sorted(oldest_s.items())]
    return samples

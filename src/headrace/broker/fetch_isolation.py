"""read_committed: nothing beyond the last stable offset, and the list of aborted transactions.

Aborted records are sent too, with the list of their transactions, and the client skips them. So batches are sent as
stored, whoever reads them.
"""

from __future__ import annotations

from headrace.store.partition.base import Partition
from headrace.store.partition.entries import Batches, before
from headrace.wire.batch import end_offset
from headrace.wire.messages.fetch import AbortedTransaction


def isolated(partition: Partition, offset: int, taken: Batches) -> tuple[Batches, list[AbortedTransaction]]:
    """The batches that are stable, and the aborted transactions that have records among them."""
    taken = before(taken, partition.stable_end)
    aborted = partition.producers.aborted
    if not taken.chunks or not len(aborted) or partition.is_cold(offset):
        return taken, []
    end = end_offset(taken.chunks[-1])
    return taken, [AbortedTransaction(row.producer_id, row.first) for row in aborted.between(offset, end)]

"""What a reader of committed records is given: nothing beyond the last stable offset, and what to leave out.

Aborted records are sent all the same, with the list of their transactions: the client leaves them out. So batches
travel as they are stored, whoever reads them.
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

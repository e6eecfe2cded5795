"""read_committed: the list of aborted transactions.

Aborted records are sent too, with the list of their transactions, and the client skips them. So batches are sent as
stored, whoever reads them.
"""

from __future__ import annotations

from headrace.store.partition.base import Partition
from headrace.store.partition.entries import Batches
from headrace.wire.batch import end_offset, read_header
from headrace.wire.messages.fetch import AbortedTransaction


def aborted_among(partition: Partition, offset: int, taken: Batches) -> list[AbortedTransaction]:
    """The aborted transactions that have records among some batches."""
    aborted = partition.producers.aborted
    if not taken.chunks or not len(aborted):
        return []
    # One whose marker lies before the first batch is left out: without the marker, which may be cold and is not sent
    # then, a client would skip what the same producer wrote next.
    start = max(offset, read_header(taken.chunks[0]).base_offset)
    end = end_offset(taken.chunks[-1])
    return [AbortedTransaction(row.producer_id, row.first) for row in aborted.between(start, end)]

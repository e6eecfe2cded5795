"""Transactions of an earlier epoch that are open in a partition though their id has begun the next one.

Nobody else ends these: the store lost that the partition was added, while the partition's leader restored the records.
The marker of the next transaction would end both, and aborted records would be read as committed. So the leader aborts
what is left over, after the script that adds to the next transaction has said that all verdicts before it were spread.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from headrace.store.partition.base import Partition
from headrace.store.partition.sequences.verification import Verification
from headrace.wire.batch import read_header
from headrace.wire.control import EndMarker, end_marker
from headrace.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

_WAIT_S = 5.0


async def has_left_over(partition: Partition, producer_id: int, epoch: int) -> bool:
    """Whether something is left over, to be asked after all verdicts were spread: another node wrote their markers."""
    if not partition.producers.has_left_over(producer_id, epoch):
        return False
    partition.doubt()
    await partition.confirm()
    return partition.producers.has_left_over(producer_id, epoch)


async def abort_left_over(
    partition: Partition, producer: tuple[int, int], ended: int, check: Callable[[], Awaitable[object]]
) -> None:
    """Aborts left-over transactions; `ended` is the number of the last finished one."""
    if not await has_left_over(partition, *producer):
        return

    async def ask() -> None:
        await check()
        if not partition.producers.has_left_over(*producer):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "The transaction has ended.")

    known = partition.producers.by_id[producer[0]]
    marker = EndMarker(False, max(known.coordinator_epoch, 0), b"%d" % ended)
    batch = end_marker(marker, *producer, partition.now_ms())
    verification = Verification(ask, marker=marker)
    extra = {"partition": repr(partition), "producer_id": producer[0], "from_offset": known.open_from}
    try:
        await partition.writer.submit(
            memoryview(bytearray(batch)), read_header(batch), _WAIT_S, verification=verification
        )
    except KafkaError:
        if partition.producers.has_left_over(*producer):
            raise
    else:
        log.warning("a transaction unknown to its coordinator was open: it is aborted", extra=extra)

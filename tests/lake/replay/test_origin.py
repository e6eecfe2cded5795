"""What of a source is in a target: records that transactions of others put there count unless they were aborted."""

from __future__ import annotations

import numpy as np

from headrace.client.batch_sender import ProducerState
from headrace.client.reader import Fetched
from headrace.lake.replay.origin import HEADER, Arrived, Origin, note_fetched
from headrace.wire.records import Header, Record, encode_batch
from tests.lake.made_table import IDENTITY
from tests.lake.transactional import marker, transactional

ORIGIN = Origin(IDENTITY)


def header(offset: int) -> Header:
    return HEADER, f"{ORIGIN.prefix}0/{offset}".encode()


def noted(*batches: bytes, aborted: list[tuple[int, int]]) -> Arrived:
    arrived = Arrived()
    fetched = Fetched([memoryview(batch) for batch in batches], 100, 100, 0, aborted)
    note_fetched(arrived, ORIGIN, "copy", 0, fetched)
    return arrived


def test_what_was_aborted_did_not_arrive_and_who_has_transactions_is_not_continued() -> None:
    """An application copied records of an earlier replay, headers and all, within transactions."""
    ours = encode_batch([Record(0, 0, None, b"", [header(0)])], producer_id=3, producer_epoch=1, base_sequence=40)
    arrived = noted(
        ours,
        transactional(1, 1, producer_id=7, headers=[header(1)]),
        marker(2, 7, commits=False),
        transactional(3, 1, producer_id=7, headers=[header(2)]),
        marker(4, 7, commits=True),
        aborted=[(7, 1)],
    )
    assert arrived.of(0).has(np.arange(4)).tolist() == [True, False, True, False]
    assert arrived.producers == {0: ProducerState(3, 1, 41)}


def test_where_only_transactions_put_records_nobody_is_continued() -> None:
    arrived = noted(transactional(0, 1, 7, headers=[header(5)]), marker(1, 7, commits=True), aborted=[])
    assert arrived.of(0).has(np.arange(5, 6)).tolist() == [True]
    assert arrived.producers == {}

"""Which aborted transactions an answer names."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from headrace.broker.fetching.fetch import aborted_among
from headrace.store.partition.base import Partition
from headrace.store.partition.entries import Batches
from headrace.store.partition.sequences.aborted import Aborted, AbortedList
from headrace.wire.batch import stamp
from tests.broker.peers import batch_of

FIRST = Aborted(marker=10, first=0, producer_id=5, stable=11)
SECOND = Aborted(marker=30, first=21, producer_id=5, stable=31)


def batch_at(offset: int, count: int) -> bytes:
    batch = bytearray(batch_of(*[b"value"] * count))
    stamp(batch, 0, offset, 0)
    return bytes(batch)


@pytest.mark.parametrize(
    ("offset", "base", "count", "expected"),
    [
        pytest.param(0, 0, 10, [FIRST], id="its records"),
        pytest.param(5, 0, 10, [FIRST], id="some of its records"),
        pytest.param(11, 11, 10, [], id="what was committed behind it"),
        pytest.param(3, 11, 10, [], id="what follows when it and its marker are cold"),
        pytest.param(3, 11, 15, [SECOND], id="the next one"),
    ],
)
def test_those_with_records_in_the_answer(offset: int, base: int, count: int, expected: list[Aborted]) -> None:
    partition = Mock(spec=Partition)
    partition.producers = Mock(aborted=AbortedList([FIRST, SECOND]))
    found = aborted_among(partition, offset, Batches([batch_at(base, count)], 0))
    assert [(one.producer_id, one.first_offset) for one in found] == [(one.producer_id, one.first) for one in expected]

"""Which markers end a transaction in a partition: not those of one that has ended there."""

from __future__ import annotations

import pytest

from headrace.store.partition.sequences.producers import Producers
from headrace.store.partition.sequences.verification import Verification
from headrace.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader
from headrace.wire.control import EndMarker
from headrace.wire.errors import ErrorCode, KafkaError

PRODUCER, COORDINATOR = 7, 3
RISES = {1: 0, 2: 1}
"""By version of the protocol: how far the epoch of a marker is above that of the records."""


def _header(epoch: int, attributes: int = TRANSACTIONAL) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, attributes, 0, 0, 0, PRODUCER, epoch, 0, 1)


def _add(producers: Producers, offset: int, epoch: int) -> None:
    producers.add(_header(epoch), offset, 0)


def _end(producers: Producers, offset: int, epoch: int, number: int, *, commit: bool) -> None:
    marker = EndMarker(commit, COORDINATOR, b"%d" % number if number else b"")
    producers.end(_header(epoch, TRANSACTIONAL | CONTROL), marker, offset, 0)


async def _wanted() -> None:
    """It is."""


def _check(producers: Producers, epoch: int, number: int, version: int) -> None:
    verification = Verification(_wanted, marker=EndMarker(True, COORDINATOR, b"%d" % number), exceeds=version == 2)
    producers.check_marker(_header(epoch, TRANSACTIONAL | CONTROL), verification)


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def _begun(version: int, *, commit: bool) -> tuple[Producers, int]:
    """Transaction 5 has ended, and the next one is open from offset 2 on; the epoch of the next one."""
    producers, epoch = Producers(), 4 + RISES[version]
    _add(producers, 0, 4)
    _end(producers, 1, epoch, 5, commit=commit)
    _add(producers, 2, epoch)
    return producers, epoch


@pytest.mark.parametrize("number", [5, 4], ids=["the last", "an earlier one"])
@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_marker_that_is_repeated_does_not_end_the_next_transaction(
    version: int, is_loaded: bool, number: int
) -> None:
    producers, epoch = _begun(version, commit=True)
    if is_loaded:
        loaded = Producers()
        loaded.load(producers.snapshot(3))
        producers = loaded
    with pytest.raises(KafkaError) as raised:
        _check(producers, epoch, number, version)
    assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    _end(producers, 3, epoch, number, commit=True)  # by another node
    assert producers.open == {PRODUCER: 2}
    known = producers.by_id[PRODUCER]
    assert (known.ended, known.committed, producers.last_marker(PRODUCER)) == (5, True, 3)
    _check(producers, epoch + RISES[version], 6, version)
    _end(producers, 4, epoch + RISES[version], 6, commit=False)
    assert producers.open == {}
    assert [(row.first, row.marker) for row in producers.aborted.rows] == [(2, 4)]


def test_a_marker_that_is_repeated_while_nothing_is_open_may_pass(version: int) -> None:
    producers = Producers()
    _end(producers, 0, 4, 5, commit=True)
    _check(producers, 4, 5, version)


def test_a_marker_of_an_earlier_epoch_ends_nothing() -> None:
    producers = Producers()
    _end(producers, 0, 4, 5, commit=True)
    _add(producers, 1, 6)
    _end(producers, 2, 5, 9, commit=True)
    assert producers.open == {PRODUCER: 1}
    assert producers.by_id[PRODUCER].epoch == 6


def test_numbers_that_went_back_with_the_store_count_from_the_next_epoch_on() -> None:
    """A producer is fenced whenever they may have gone back."""
    producers = Producers()
    _end(producers, 0, 4, 9, commit=True)
    _add(producers, 1, 5)
    _end(producers, 2, 5, 6, commit=True)
    assert producers.open == {}
    assert producers.by_id[PRODUCER].ended == 6


def test_a_marker_without_a_number_ends_what_is_open(version: int) -> None:
    """An operator's."""
    producers, epoch = _begun(version, commit=True)
    _end(producers, 3, epoch, 0, commit=False)
    assert producers.open == {}
    assert producers.is_late(PRODUCER, epoch, 5)

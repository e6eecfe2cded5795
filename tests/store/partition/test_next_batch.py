"""The short question about a producer's batch says yes only where the long ones have nothing against it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.store.partition.sequences.producers import Coming, Producers
from headrace.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader

LAST = (1 << 31) - 1
EPOCHS = st.integers(0, 2)
FIRSTS = st.integers(0, 4) | st.integers(LAST - 3, LAST)
ATTRIBUTES = st.sampled_from([0, 0, 0, TRANSACTIONAL, CONTROL])


def batch(producer_id: int, epoch: int, first: int, count: int, attributes: int) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, attributes, count - 1, 1, 1, producer_id, epoch, first, count)


BATCHES = st.builds(batch, st.integers(0, 1), EPOCHS, FIRSTS, st.integers(1, 3), ATTRIBUTES)
COMING = st.dictionaries(st.integers(0, 1), st.builds(Coming, EPOCHS, FIRSTS, st.booleans()), max_size=2)


@given(known=st.lists(BATCHES, max_size=3), coming=COMING, header=BATCHES)
def test_what_is_next_is_no_duplicate_and_breaks_no_rule(
    known: list[BatchHeader], coming: dict[int, Coming], header: BatchHeader
) -> None:
    producers = Producers()
    for at, one in enumerate(known):
        producers.add(one, at, 0)
    before = dict(coming)
    if not producers.is_next(header, coming):
        assert coming == before
        return
    assert not header.is_control
    assert producers.find_duplicate(header) is None
    producers.check(header, before)
    assert coming == before | {header.producer_id: Coming(header.producer_epoch, header.last_sequence, False)}


def test_the_batch_behind_the_last_one_is_next_known_or_coming() -> None:
    producers, coming = Producers(), dict[int, Coming]()
    producers.add(batch(7, 0, LAST - 1, 2, 0), 0, 0)
    assert producers.is_next(batch(7, 0, 0, 3, 0), coming)
    assert producers.is_next(batch(7, 0, 3, 1, 0), coming)
    assert not producers.is_next(batch(7, 0, 3, 1, 0), coming)
    assert not producers.is_next(batch(7, 1, 0, 1, 0), coming)

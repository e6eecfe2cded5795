"""The list of aborted transactions: a fetch is told of those whose records it meets, at the cost of what it finds."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.store.partition.sequences.aborted import Aborted, AbortedList, parse
from headrace.store.partition.sequences.producers import Producers
from headrace.wire.batch import TRANSACTIONAL, BatchHeader
from headrace.wire.control import EndMarker, end_marker, read_marker


def header(producer_id: int, offset: int, count: int = 1) -> BatchHeader:
    return BatchHeader(offset, 100, 0, 2, 0, TRANSACTIONAL, count - 1, 0, 0, producer_id, 0, 0, count)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["batch", "commit", "abort"])), max_size=60))
def test_a_range_has_the_transactions_whose_records_and_markers_say_so(events: list[tuple[int, str]]) -> None:
    producers = Producers()
    expected: list[tuple[int, int, int]] = []
    for offset, (producer_id, event) in enumerate(events):
        if event == "batch":
            producers.add(header(producer_id, offset), offset, 0)
            continue
        first = producers.open.get(producer_id)
        producers.end(header(producer_id, offset), EndMarker(event == "commit", 1), offset, 0)
        if first is not None and event == "abort":
            expected.append((offset, first, producer_id))
    stable = producers.first_open()
    assert stable == min(producers.open.values(), default=None)
    for start in range(len(events) + 1):
        for end in range(start, len(events) + 1):
            found = producers.aborted.between(start, end)
            assert {(row.marker, row.first, row.producer_id) for row in found} == {
                row for row in expected if row[0] >= start and row[1] < end
            }


def test_a_search_at_the_beginning_of_many_ends_early() -> None:
    class Counting(list[Aborted]):
        looked = 0

        def __getitem__(self, at: Any) -> Any:
            self.looked += 1
            return super().__getitem__(at)

    many = AbortedList(Aborted(2 * n + 1, 2 * n, n, 2 * n + 2) for n in range(10_000))
    many.rows = rows = Counting(many.rows)
    assert [row.producer_id for row in many.between(0, 20)] == list(range(10))
    assert rows.looked < 20


def test_a_row_is_stored_and_read_as_it_is() -> None:
    row = Aborted(7, 3, 1 << 60, 5)
    assert parse(7, row.value()) == row


def test_a_marker_has_kafkas_bytes_and_says_which_transaction_it_ends() -> None:
    batch = end_marker(EndMarker(True, 3, b"12"), 77, 5, 1_700_000_000_000)
    assert read_marker(batch) == EndMarker(True, 3, b"12")
    plain = end_marker(EndMarker(False, 258), 77, 5, 0)
    assert plain[61:].endswith(b"\x08\x00\x00\x00\x00\x0c\x00\x00\x00\x00\x01\x02\x00")
    assert plain[21:23] == b"\x00\x30"

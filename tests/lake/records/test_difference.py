"""What counts as a difference between a table and its topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.lake.records.difference import COMPARED, Row, first_difference


def rows(*offsets: int, value: bytes = b"v") -> Iterator[Row]:
    return iter([dict.fromkeys(COMPARED) | {"offset": offset, "value": value} for offset in offsets])


def in_a_hole(offset: int) -> bool:
    return 10 <= offset < 20


@pytest.mark.parametrize(
    ("live", "cold"),
    [((), ()), ((1, 2), (1, 2)), ((1, 25), (1, 10, 19, 25)), ((), (11, 12))],
)
def test_a_table_may_have_what_its_topic_let_go_of(live: tuple[int, ...], cold: tuple[int, ...]) -> None:
    assert first_difference(rows(*live), rows(*cold), in_a_hole) is None


@pytest.mark.parametrize(
    ("live", "cold", "at", "what"),
    [
        ((1, 2, 3), (1, 3), 2, "the topic has this record and the table does not"),
        ((1, 2), (1,), 2, "the topic has this record and the table does not"),
        ((1, 3), (1, 2, 3), 2, "the table has this row twice or the topic does not have it"),
        ((1, 2), (1, 1, 2), 1, "the table has this row twice or the topic does not have it"),
        ((9, 20), (9, 15, 21), 20, "the topic has this record and the table does not"),
    ],
)
def test_everything_else_is_a_difference(live: tuple[int, ...], cold: tuple[int, ...], at: int, what: str) -> None:
    assert first_difference(rows(*live), rows(*cold), in_a_hole) == (at, what)


def test_a_row_that_differs_is_found_with_what_differs() -> None:
    assert first_difference(rows(1), rows(1, value=b"x"), in_a_hole) == (1, "value differ from the topic's")

"""What a query says of records that do not come."""

from __future__ import annotations

import pytest

from headrace.client.reader import Fetched
from headrace.lake.fetching import OffsetRange, Silence
from headrace.lake.source.losses import STALL_TIMEOUT_S, DataLost, Losses, Undecided

WANTED = OffsetRange("orders", 0, 0, 20)


def silence(stable: int, seconds: float = STALL_TIMEOUT_S + 1) -> Silence:
    return Silence(10, 3, seconds, Fetched([], 20, stable, 0))


@pytest.mark.parametrize("are_errors", [True, False])
def test_what_an_open_transaction_holds_back_is_not_lost(are_errors: bool) -> None:
    """An end that was given by hand may lie behind the last stable offset."""
    assert Losses(are_errors=are_errors).silent(WANTED, silence(10, seconds=1)) == 10
    with pytest.raises(Undecided, match="a transaction is open since offset 10"):
        Losses(are_errors=are_errors).silent(WANTED, silence(10))


@pytest.mark.parametrize("stable", [20, -1])
def test_what_does_not_come_otherwise_is(stable: int) -> None:
    """-1 is what Kafka says to those who read uncommitted."""
    with pytest.raises(DataLost, match="did not arrive"):
        Losses(are_errors=True).silent(WANTED, silence(stable))
    assert Losses(are_errors=False).silent(WANTED, silence(stable)) == 20

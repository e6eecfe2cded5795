"""What a round could not do is one sentence, the pause before the next try grows, and nothing stays behind."""

from __future__ import annotations

import errno
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headrace.client import BrokerUnreachable
from headrace.client.errors import kafka_error
from headrace.lake.archive.troubles import Setbacks, failure_sentence, pauses
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from headrace.wire.errors import ErrorCode
from tests.lake.made_table import make_table, written


def test_a_cause_is_said_once_however_many_partitions_it_met() -> None:
    setbacks = Setbacks()
    assert not setbacks
    for partition in range(12):
        setbacks.add(f"orders-{partition}", "No space left on device")
    setbacks.add("payments", "Permission denied")
    assert setbacks.sentence() == (
        "orders-0, orders-1, orders-2 and 9 more: No space left on device; payments: Permission denied"
    )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (kafka_error(ErrorCode.NOT_CONTROLLER), "the broker answers NOT_CONTROLLER"),
        (kafka_error(ErrorCode.NOT_CONTROLLER, "It moved"), "the broker answers NOT_CONTROLLER: It moved"),
        (BrokerUnreachable("No broker answers"), "waiting for the broker: No broker answers"),
        (OSError(errno.ENOSPC, "No space left on device", "/lake/a"), "No space left on device: /lake/a"),
        (KeyError("a"), "KeyError: 'a'"),
    ],
)
def test_a_round_that_came_to_nothing_is_told_by_its_cause(error: Exception, sentence: str) -> None:
    assert failure_sentence(error) == sentence


def test_pauses_grow_up_to_a_minute() -> None:
    assert [*islice(pauses(), 8)] == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("is_made", [False, True], ids=["before", "after"])
def test_a_commit_that_fails_leaves_its_files_only_if_it_was_made(
    is_made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk may refuse the commit, or the checkpoint that follows it."""
    table = make_table(tmp_path)
    file = written(table.place, 0, 0, 10)
    commit = DeltaTable.create_write_transaction

    def fail(delta: DeltaTable, *arguments: Any, **named: Any) -> None:
        if is_made:
            commit(delta, *arguments, **named)
        raise OSError("No space left on device")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", fail)
    with pytest.raises(OSError, match="No space left"):
        table.commit([file])
    monkeypatch.undo()
    left = [found.path for found in table.place.files("p0")]
    assert left == ([file.file.path] if is_made else [])
    table.refresh()
    assert table.position(0) == (10 if is_made else 0)
    table.commit([written(table.place, 0, table.position(0), 20)])
    assert verify_lake(place_of(tmp_path), None).findings == []

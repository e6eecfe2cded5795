"""The parts of the archive that need no Spark: names of folders and files, digests, standing by."""

from __future__ import annotations

import string

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.lake.archive.plan import Standby
from headrace.lake.archive.task import ArchiveTask, LastRecord, Outcome, in_sequence, split_task
from headrace.lake.fetching import OffsetRange
from headrace.lake.records.digest import RowDigest
from headrace.lake.records.table_schema import TABLE_SCHEMA
from headrace.lake.storage.place import place_of
from headrace.lake.table.delta_log import Written
from headrace.lake.table.names import RangeFile, folder_of, folder_with_id, is_folder_of, name_file, read_name
from headrace.lake.table.snapshot import Coverage, coverage_by_partition

TOPICS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249)
BYTES = st.none() | st.binary(max_size=5)
Records = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
RECORDS = st.lists(
    st.tuples(BYTES, BYTES, st.lists(st.tuples(st.text("ab", max_size=2), BYTES), max_size=2)), max_size=8
)


@given(TOPICS, TOPICS)
def test_two_topics_never_share_a_folder_even_where_case_is_ignored(one: str, other: str) -> None:
    assert (folder_of(one).lower() == folder_of(other).lower()) == (one == other)
    assert len(folder_with_id(one, bytes(16))) <= 255


@given(TOPICS)
def test_a_deleted_topics_table_never_takes_a_topics_folder(topic: str) -> None:
    assert folder_with_id("orders", bytes(16)) != folder_of(topic)


@given(TOPICS, TOPICS)
def test_a_name_finds_the_folders_of_its_own_topics_alone(one: str, other: str) -> None:
    for folder in (folder_of(one), folder_with_id(one, bytes(16))):
        assert is_folder_of(folder, one)
        assert is_folder_of(folder, other) == (one == other)


def rows(records: Records, first: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "partition": 0, "offset": first + n, "timestamp": 0, "timestamp_ms": n, "timestamp_type": 0, "day": 0,
                "key": key, "value": value, "headers": [{"key": name, "value": held} for name, held in headers] or None,
            }
            for n, (key, value, headers) in enumerate(records)
        ],
        schema=TABLE_SCHEMA,
    )  # fmt: skip


@given(RECORDS, st.integers(0, 8))
def test_a_digest_does_not_depend_on_how_rows_are_cut(records: Records, cut: int) -> None:
    batch = rows(records, 5)
    whole, parts = RowDigest(), RowDigest()
    whole.add(batch)
    for part in (batch.slice(0, cut), batch.slice(min(cut, batch.num_rows))):
        parts.add(part)
    assert whole.hex() == parts.hex()


@given(RECORDS, RECORDS)
def test_other_rows_have_another_digest(
    one: Records,
    other: Records,
) -> None:
    first, second = RowDigest(), RowDigest()
    first.add(rows(one, 0))
    second.add(rows(other, 0))
    assert (first.hex() == second.hex()) == (one == other)


def test_a_files_name_says_what_it_stands_for() -> None:
    path = name_file(3, 10, 20, 7, "ab" * 16)
    assert read_name(path, 5) == RangeFile(3, 10, 20, 7, "ab" * 16, path, 5)
    assert read_name("part-00000-of-somebody.parquet") is None


def test_coverage_shows_what_is_missing_and_what_is_doubled() -> None:
    def file(start: int, end: int) -> RangeFile:
        return RangeFile(0, start, end, end - start, "ab" * 16, name_file(0, start, end, end - start, "ab" * 16))

    covered = coverage_by_partition([file(20, 30), file(0, 10), file(10, 18), file(25, 40)])[0]
    assert (covered.start, covered.end, covered.rows) == (0, 40, 43)
    assert covered.missing() == [(18, 20)]
    assert covered.doubled() == [(25, 30)]
    assert covered.chain != Coverage(covered.files[:-1]).chain


def test_the_loser_waits_while_the_other_commits_and_takes_over_when_it_falls_silent() -> None:
    now = 0.0
    standby = Standby(30.0, clock=lambda: now)
    assert not standby.waits("orders", 1)
    standby.lost("orders", 1)
    assert standby.waits("orders", 1)
    now = 50.0
    assert standby.waits("orders", 2)
    now = 100.0
    assert standby.waits("orders", 2)
    now = 111.0
    assert not standby.waits("orders", 2)
    standby.lost("orders", 3)
    standby.won("orders")
    assert not standby.waits("orders", 3)


WHOLE = ArchiveTask(OffsetRange("orders", 0, 100, 1100), bytes(16), place_of("lake"), 4000, LastRecord(99, "x"))


def test_a_long_range_is_split_for_spare_tasks_into_pieces_that_follow_each_other() -> None:
    pieces = split_task(WHOLE, 10.0, 4, 1000)
    assert [(piece.offsets.start, piece.offsets.stop) for piece in pieces] == [
        (100, 200),
        (200, 300),
        (300, 400),
        (400, 1100),
    ]
    assert [piece.tail is not None for piece in pieces] == [True, False, False, False]
    assert pieces[-1].most_bytes == 1000


@pytest.mark.parametrize(("offset_bytes", "tasks", "least_bytes"), [(None, 4, 1), (10.0, 1, 1), (10.0, 4, 1001)])
def test_a_range_stays_whole_without_tasks_to_spare_or_too_little_for_them(
    offset_bytes: float | None, tasks: int, least_bytes: int
) -> None:
    assert split_task(WHOLE, offset_bytes, tasks, least_bytes) == [WHOLE]


def test_a_range_of_one_piece_stays_one() -> None:
    assert [piece.offsets for piece in split_task(WHOLE, 1.0, 2, 1000)] == [WHOLE.offsets]


def test_what_lies_behind_a_piece_that_stopped_early_is_left_out() -> None:
    def outcome(start: int, end: int, reached: int | None) -> Outcome:
        wanted = msgspec.structs.replace(WHOLE, offsets=OffsetRange("orders", 0, start, end))
        if reached is None:
            return Outcome(wanted)
        return Outcome(wanted, Written(RangeFile(0, start, reached, 1, "ab" * 16, "path"), "{}"))

    whole = [outcome(100, 200, 200), outcome(200, 300, 300), outcome(300, 400, 350)]
    assert in_sequence(whole) == whole
    early = [outcome(100, 200, 150), outcome(200, 300, 300)]
    assert in_sequence(early) == early[:1]
    nothing = [outcome(100, 200, None), outcome(200, 300, 300)]
    assert in_sequence(nothing) == nothing[:1]

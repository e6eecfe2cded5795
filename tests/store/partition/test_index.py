"""The index by time: whatever was written and deleted, it leads to the right stretch, also after a load."""

from __future__ import annotations

import struct
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.store.partition.by_time import Found, Newest, find_first, find_newest
from headrace.store.partition.index import Index, Point, Stretch
from headrace.store.partition.time_steps import STEP_ENTRIES, TimeSteps, Walked

NO_TIME = -1


class Written(NamedTuple):
    """A record of one byte, and when it was appended."""

    timestamp: int
    append_time: int

    @property
    def age(self) -> int:
        return self.timestamp if self.timestamp >= 0 else self.append_time


def stored_fields(point: Point) -> dict[bytes, bytes]:
    return {b"p": point.value(), b"s": point.stretch()}


class Log:
    """Records in a list, of which the first are deleted; what is read of it is counted."""

    def __init__(self, records: list[Written], interval_bytes: int) -> None:
        self.records, self.start, self.reads, self.seen = records, 0, 0, 0
        self.index = Index(interval_bytes)
        self.stored: list[Point] = []
        for offset, record in enumerate(records):
            point = self.index.add_entry(offset, 1, record.timestamp, record.age)
            self.stored += [point] if point else []

    def load(self) -> None:
        """As a node that starts: from the stored points, and what lies behind the last of them."""
        index = Index(self.index.interval_bytes)
        index.load((point.offset, stored_fields(point)) for point in self.stored)
        for offset in range(index.offsets[-1] if len(index) else 0, len(self.records)):
            record = self.records[offset]
            index.add_entry(offset, 1, record.timestamp, record.age)
        self.index = index

    def delete_before(self, start: int) -> None:
        self.start = max(self.start, start)
        first = self.index.forget_before(self.start)
        self.stored = [point for point in self.stored if first is None or point.offset >= first]

    def _left(self, stretch: Stretch) -> list[Found]:
        self.reads += 1
        stop = len(self.records) if stretch.stop is None else stretch.stop
        return [(at, self.records[at].timestamp) for at in range(max(stretch.first, self.start), stop)]

    async def first_in(self, stretch: Stretch, timestamp: int, walked: Walked) -> Found | None:
        for found in self._left(stretch):
            walked.see(*found)
            self.seen += 1
            if found[1] >= timestamp:
                return found
        return None

    async def newest_in(self, stretch: Stretch) -> Found | None:
        newest = Newest()
        for found in self._left(stretch):
            newest.see(*found)
        return newest.found


times = st.one_of(st.just(NO_TIME), st.integers(0, 20))
logs = st.builds(
    Log, st.lists(st.builds(Written, times, st.integers(0, 20)), max_size=40), interval_bytes=st.integers(1, 8)
)


@given(logs, st.lists(st.integers(0, 40), max_size=3), st.integers(0, 25), st.booleans())
async def test_records_are_found_by_time(log: Log, deletions: list[int], timestamp: int, loads: bool) -> None:
    for deletion in deletions:
        log.delete_before(min(deletion, len(log.records)))
    if loads:
        log.load()
    left = [(at, record.timestamp) for at, record in enumerate(log.records) if at >= log.start]
    first = next((found for found in left if found[1] >= timestamp), None)
    assert await find_first(log.index, log.start, timestamp, log) == first
    assert log.reads <= 2  # what was deleted costs one stretch, the one that the start cuts
    newest = max(left, key=lambda found: (found[1], -found[0]), default=None)
    assert await find_newest(log.index, log.start, log) == newest
    log.reads = 0
    assert await find_newest(log.index, log.start, log) == newest
    assert log.reads <= 3


class LongLog(Log):
    """Two stretches of many steps; times go up and down, and some records have none."""

    def __init__(self, times: list[int]) -> None:
        super().__init__([Written(time, 0) for time in times for _ in range(10)], interval_bytes=200)

    def first_at(self, timestamp: int) -> Found | None:
        records = enumerate(self.records[self.start :], self.start)
        return next(((at, record.timestamp) for at, record in records if record.timestamp >= timestamp), None)


long_logs = st.builds(LongLog, st.lists(st.one_of(st.just(NO_TIME), st.integers(0, 20)), min_size=35, max_size=40))


@given(long_logs, st.integers(0, 300), st.lists(st.integers(0, 22), min_size=1, max_size=6), st.booleans())
async def test_steps_lead_to_the_same_record(log: LongLog, deletion: int, asked: list[int], loads: bool) -> None:
    if loads:
        log.load()
    half = len(asked) // 2
    for at, timestamp in enumerate(asked):
        if at == half:
            log.delete_before(deletion)
        assert await find_first(log.index, log.start, timestamp, log) == log.first_at(timestamp)


async def test_a_time_is_found_within_a_step_of_entries_and_after_a_restart_from_the_second_time_on() -> None:
    log = LongLog(list(range(10, 50)))

    async def seen_for(timestamp: int) -> int:
        log.seen = 0
        assert await find_first(log.index, 0, timestamp, log) == log.first_at(timestamp)
        return log.seen

    counted = [await seen_for(timestamp) for timestamp in range(60)]
    assert max(counted) <= STEP_ENTRIES + 1
    log.load()
    assert await seen_for(29) > STEP_ENTRIES  # the last of the first stretch, which was not counted
    again = [await seen_for(timestamp) for timestamp in range(60)]
    assert max(again) <= STEP_ENTRIES + 1


def test_an_entry_of_unknown_times_ends_what_a_walk_tells() -> None:
    steps = TimeSteps()
    walked = Walked(steps, NO_TIME)
    for offset in range(STEP_ENTRIES):
        walked.see(offset, 5)
    walked.see(STEP_ENTRIES, None)
    for offset in range(STEP_ENTRIES + 1, 4 * STEP_ENTRIES):
        walked.see(offset, 7)
    assert len(steps) == 0


@given(logs, st.integers(0, 40), st.integers(0, 25), st.booleans())
def test_retention_removes_whole_stretches_that_are_old(log: Log, deletion: int, cutoff: int, loads: bool) -> None:
    log.delete_before(min(deletion, len(log.records)))
    if loads:
        log.load()
    expired = log.index.expired_by_time(cutoff, len(log.records))
    start = log.start if expired is None else max(expired, log.start)
    assert all(record.age < cutoff for record in log.records[log.start : start])
    if start == len(log.records):
        return
    later = [offset for offset in log.index.offsets if offset > start] + [len(log.records)]
    first = log.index.floor(start)
    kept = log.records[first.offset if first else start : later[0]]
    assert not kept or any(record.age >= cutoff for record in kept), "more could have left"


def test_points_of_the_old_form_are_read() -> None:
    index = Index(1)
    old = [(0, -1), (10, 1000), (20, 1000), (30, 5000), (40, 5000)]
    index.load((offset, {b"p": struct.pack(">qqq", largest, offset, offset)}) for offset, largest in old)
    assert list(index.ages) == [1000, NO_TIME, 5000, NO_TIME, NO_TIME]
    assert index.expired_by_time(6000, 50) == 30  # what follows has to tell the rest
    index.add_entry(40, 1, 5500, 5500)
    assert index.expired_by_time(6000, 50) == 50
    assert index.expired_by_time(5200, 50) == 30
    assert index.expired_by_time(1500, 50) == 10

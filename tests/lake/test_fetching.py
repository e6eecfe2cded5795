"""The loop that all of the lake's readers share: portions that follow each other, bounded, and what does not come."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from headrace.lake.archive.task import NothingSkipped
from headrace.lake.fetching import OffsetRange, Portion, fetch_range
from headrace.lake.replay.origin import Origin, find_arrived
from headrace.lake.table.snapshot import Identity
from headrace.wire.errors import ErrorCode, KafkaError
from tests.lake.conftest import Topic


def portions(orders: Topic, start: int, stop: int, fetch_bytes: int = 1000, most_bytes: int = 1 << 30) -> list[Portion]:
    wanted = OffsetRange(orders.name, 0, start, stop)
    found = fetch_range(orders.cluster, wanted, NothingSkipped(), fetch_bytes=fetch_bytes, most_bytes=most_bytes)
    return list(found)


def send_in_batches(orders: Topic, batches: int, records: int = 10) -> None:
    for _ in range(batches):
        orders.send([bytes(100)] * records)


def test_portions_follow_each_other_to_the_end_of_the_range(orders: Topic) -> None:
    send_in_batches(orders, 10)
    found = portions(orders, 5, 95)
    assert [portion.start for portion in found] == [5, *(portion.stop for portion in found[:-1])]
    assert found[-1].stop == 95
    assert len(found) > 2


def test_no_more_is_fetched_than_was_asked_for(orders: Topic) -> None:
    send_in_batches(orders, 10)
    (first, *_) = portions(orders, 0, 100)
    assert len(portions(orders, 0, 100, most_bytes=first.size_bytes)) == 1
    assert len(portions(orders, 0, 100, most_bytes=first.size_bytes + 1)) == 2
    assert portions(orders, 0, 100, most_bytes=0) == []


def test_what_is_not_there_yet_is_left_to_a_later_look(orders: Topic) -> None:
    send_in_batches(orders, 1)
    assert [portion.stop for portion in portions(orders, 0, 20)] == [10]


def test_what_is_gone_is_an_error_behind_what_came_before_it(orders: Topic) -> None:
    send_in_batches(orders, 2)
    orders.admin.delete_records({(orders.name, 0): 10})
    with pytest.raises(KafkaError) as raised:
        portions(orders, 0, 20)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_replay_goes_on_behind_what_its_target_let_go(orders: Topic) -> None:
    send_in_batches(orders, 2)
    orders.admin.delete_records({(orders.name, 0): 10})
    seen: list[tuple[int, int]] = []
    origin = Origin(Identity("a-cluster", "elsewhere", bytes(16)))
    arrived = find_arrived(orders.cluster, orders.name, origin, lambda done, of: seen.append((done, of)))
    assert (arrived.records, seen[-1]) == (0, (10, 10))


def test_a_reader_that_is_closed_leaves_the_cluster_to_others(orders: Topic) -> None:
    send_in_batches(orders, 20)
    wanted = OffsetRange(orders.name, 0, 0, 200)
    with closing(fetch_range(orders.cluster, wanted, NothingSkipped(), fetch_bytes=1000)) as found:
        assert next(found).start == 0
    assert "headrace-fetch" not in [thread.name for thread in threading.enumerate()]
    assert orders.admin.describe_topic(orders.name).name == orders.name

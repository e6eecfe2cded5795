"""Ranges of offsets read from a real broker: each record once, or a clear word about what was lost."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest

from headrace.client import BrokerUnreachable, Cluster
from headrace.lake.connecting import Connecting
from headrace.lake.fetching import OffsetRange
from headrace.lake.source.losses import DataLost
from headrace.lake.source.task import read_range
from headrace.wire.compression import CODECS
from tests.conftest import StartBroker
from tests.lake.conftest import Topic


def values(orders: Topic, start: int, stop: int, **options: Any) -> list[bytes | None]:
    connect = functools.partial(Cluster, orders.address)
    batches = read_range(connect, OffsetRange(orders.name, 0, start, stop), **options)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_range_of_many_fetches_and_codecs_comes_once_and_in_order(orders: Topic) -> None:
    sent = [b"%d" % i + bytes(500) for i in range(1000)]
    for index, codec in enumerate(CODECS):
        orders.send(sent[200 * index : 200 * (index + 1)], compression=codec)
    assert values(orders, 0, 1000, fetch_bytes=20_000) == sent
    assert values(orders, 150, 850, fetch_bytes=20_000) == sent[150:850]
    assert values(orders, 7, 7) == []


def test_a_reader_that_stops_early_leaves_nothing_running(orders: Topic) -> None:
    orders.send([bytes(1000)] * 2000)
    rows = read_range(
        functools.partial(Cluster, orders.address), OffsetRange(orders.name, 0, 0, 2000), fetch_bytes=1000
    )
    next(rows)
    rows.close()  # returns once the fetching thread has ended
    assert next(rows, None) is None


def test_trimmed_records_are_an_error_that_names_them_or_are_left_out(
    orders: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(10):
        orders.send([b"%d" % i])
    orders.admin.delete_records({(orders.name, 0): 4})
    with pytest.raises(DataLost, match=f"Offsets 2 to 3 of {orders.name}-0 are gone: it now holds 4 to 9"):
        values(orders, 2, 10)
    with caplog.at_level(logging.WARNING):
        assert values(orders, 2, 10, fail_on_data_loss=False) == [b"%d" % i for i in range(4, 10)]
    assert "Offsets 2 to 3" in caplog.text
    assert values(orders, 0, 3, fail_on_data_loss=False) == []


def test_a_log_that_ends_before_the_range_has_lost_records(orders: Topic) -> None:
    orders.send([b"x"])
    with pytest.raises(DataLost, match=r"Offsets 5 to 8 .* are gone: it now holds 0 to 0"):
        values(orders, 5, 9)


def test_a_topic_that_was_deleted_has_lost_its_records(orders: Topic) -> None:
    orders.send([b"x"])
    orders.admin.delete_topic(orders.name)
    with pytest.raises(DataLost, match=f"{orders.name}-0 is gone, and with it offsets 0 to 0"):
        values(orders, 0, 1)
    assert values(orders, 0, 1, fail_on_data_loss=False) == []


def test_a_broker_that_was_never_there_is_named_after_the_timeout(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.stop()
    with pytest.raises(BrokerUnreachable, match=broker.address):
        Connecting(broker.address, timeout_s=0.5).patient_cluster()
    broker.start()
    Connecting(broker.address).patient_cluster().close()

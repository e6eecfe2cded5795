"""Clients read on over cold offsets without records: a transaction's marker, what it aborted, what compaction took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Cluster
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import open_or_create
from headrace.lake.table.snapshot import Identity
from tests.broker_process import BrokerProcess, wait_until
from tests.clients.group_member import MEMBERS, GroupMember
from tests.lake.made_table import written_of
from tests.stores import broker_settings
from tests.tiered import BROKER, TieredTopic

COLD, HOT, BATCH = 200, 250, 50
WITH_RECORDS = [*range(10), *range(12, 90), *range(110, 140), 145, *range(150, 190)]
"""Of the cold ones. Nothing is left of the file from 90 to 110, nor of the last batch's end, before Redis goes on."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("holes") / "lake"
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def tiered(lake: Path) -> Iterator[TieredTopic]:
    """A topic whose table has rows for some of its offsets alone."""
    process = BrokerProcess(lake.with_name("broker"), lake=lake, **BROKER, **broker_settings())
    try:
        made = TieredTopic(process.start(), lake, "holes")
        made.produce(HOT, BATCH)
        with Cluster(process.address) as cluster:
            cluster.topic(made.name)
            assert cluster.cluster_id is not None
            table = open_or_create(place_of(lake), Identity(cluster.cluster_id, made.name, made.id), {})
        for start, end in ((0, 90), (90, 110), (110, 220)):
            rows = [*(at for at in WITH_RECORDS if start <= at < end), *range(max(start, COLD), end)]
            table.commit([written_of(table.place, 0, start, end, rows)])
        made.wait_until_local_from(COLD)
        assert made.starts() == [(0, COLD)]
        yield made
    finally:
        process.end()


@pytest.fixture(params=MEMBERS)
def member(request: pytest.FixtureRequest, tiered: TieredTopic, group: str) -> Iterator[GroupMember]:
    settings = {"enable.auto.commit": False, "max.partition.fetch.bytes": 2_048}
    found = MEMBERS[request.param](tiered.broker.address, group, tiered.name, settings)
    yield found
    found.leave()


def test_each_record_is_read_once_and_the_client_gets_to_the_end(member: GroupMember) -> None:
    read: list[int] = []

    def is_done() -> bool:
        read.extend(place.offset for place in member.poll())
        return bool(read) and read[-1] == HOT - 1

    wait_until(is_done, f"not read to the end: {read[-5:]}", timeout_s=60)
    assert read == [*WITH_RECORDS, *range(COLD, HOT)]

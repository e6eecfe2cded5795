"""Consumer groups read a tiered topic from its first record on and do not notice where the records come from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess, wait_until
from tests.clients.group_member import MEMBERS, GroupMember, Place
from tests.lake.compacting import compacted
from tests.stores import broker_settings
from tests.tiered import BROKER, TieredTopic

RECORDS = 3_000
SETTINGS: dict[str, Any] = {
    "session.timeout.ms": 30_000,
    "enable.auto.commit": False,
    "max.partition.fetch.bytes": 16_384,
}
"""Small fetches: a client must not have all records before something happens to the table."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiered") / "lake"
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def broker(lake: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(lake.with_name("broker"), lake=lake, **BROKER, **broker_settings())
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def tiered(broker: BrokerProcess, lake: Path, topic: str) -> TieredTopic:
    """Two partitions, the first half of which is in the lake alone."""
    made = TieredTopic(broker, lake, topic, partitions=2)
    made.fill(RECORDS)
    return made


@pytest.fixture(params=MEMBERS)
def member(request: pytest.FixtureRequest, broker: BrokerProcess, group: str, topic: str) -> Iterator[GroupMember]:
    found = MEMBERS[request.param](broker.address, group, topic, SETTINGS)
    yield found
    found.leave()


class Reading:
    """What a member has read, in order; it fails at once if anything is out of order, missing or doubled."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self.positions: dict[int, int] = {}

    def until(self, end: int, partitions: int = 2) -> None:
        """Reads until all partitions are read up to an offset."""
        wait_until(lambda: self.step() and self._is_at(end, partitions), f"read up to {self.positions}", timeout_s=60)

    def _is_at(self, end: int, partitions: int) -> bool:
        return len(self.positions) == partitions and min(self.positions.values()) >= end

    def step(self) -> bool:
        """One poll."""
        places = self._member.poll()
        for place in places:
            assert place == Place(place.partition, self.positions.get(place.partition, 0))
            self.positions[place.partition] = place.offset + 1
        if places:
            self._member.commit()
        return True


def test_a_group_reads_everything_in_order_while_records_arrive(
    tiered: TieredTopic, member: GroupMember, group: str
) -> None:
    arriving = threading.Thread(target=tiered.produce, args=(500, 10, RECORDS))
    reading = Reading(member)
    arriving.start()
    reading.until(RECORDS + 500)
    arriving.join()
    assert [member.committed(partition) for partition in (0, 1)] == [RECORDS + 500] * 2


def test_a_group_reads_on_while_the_table_is_compacted(tiered: TieredTopic, member: GroupMember) -> None:
    reading = Reading(member)
    for at in range(3):
        reading.until(300 * at)
        tiered.produce(100, first=RECORDS + 100 * at)
        compacted(tiered.archive())
    reading.until(RECORDS + 300)


def test_a_group_reads_on_through_a_restart_of_the_broker(
    broker: BrokerProcess, tiered: TieredTopic, member: GroupMember
) -> None:
    reading = Reading(member)
    reading.until(200)
    broker.stop()
    broker.start()
    reading.until(RECORDS)


@pytest.mark.parametrize("gone", ["the table", "the lake"])
def test_a_table_that_is_away_for_a_while_resets_nobody(
    broker: BrokerProcess, tiered: TieredTopic, member: GroupMember, gone: str
) -> None:
    folder = tiered.folder if gone == "the table" else tiered.lake
    away = folder.rename(folder.with_name("away"))
    broker.stop()
    broker.start()
    reading = Reading(member)
    for _ in range(5):
        reading.step()
    assert reading.positions == {}
    away.rename(folder)
    reading.until(RECORDS)

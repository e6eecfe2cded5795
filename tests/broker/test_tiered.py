"""Tiered topics over the raw protocol, with a real lake: limits, waiting, offsets, configs, and a lake in trouble."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.client import Admin, Cluster
from headrace.client.connection import BrokerConnection
from headrace.lake.upkeep.expiry import expire
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.records import Record, encode_batch
from tests.broker.administrator import SET, Administrator, new_topic
from tests.broker.peers import connect, fetch, produce, records_of, size_of, values_of
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker
from tests.redis_view import RedisView
from tests.tiered import BROKER, CONFIGS, EARLIEST_LOCAL, LATEST_TIERED, TieredTopic, value_of

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -6
LONG_MS = 30_000
"""A wait that no test sits out."""
RECORDS = 400
HALF = RECORDS // 2


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, lake: Path) -> Iterator[BrokerProcess]:
    """A broker with a lake."""
    process = BrokerProcess(tmp_path_factory.mktemp("tiered") / "data", lake=lake, **BROKER)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def connection(serving: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(serving) as found:
        yield found


@pytest.fixture
def tiered(serving: BrokerProcess, lake: Path, topic: str) -> TieredTopic:
    """Two partitions, the first half of which is in the lake alone."""
    made = TieredTopic(serving, lake, topic, partitions=2)
    made.fill(RECORDS)
    return made


def values(first: int, stop: int) -> list[bytes | None]:
    return [value_of(number) for number in range(first, stop)]


@contextlib.contextmanager
def reader_stopped(broker: BrokerProcess) -> Iterator[None]:
    """The process that reads the lake does not answer."""
    pid = _reader(broker)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _reader(broker: BrokerProcess) -> int:
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    (found,) = (pid for pid in children if _is_reader(pid))
    return int(found)


def _is_reader(pid: str) -> bool:
    try:
        return b"headrace.lake.cold.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False  # it ended since it was listed


# -- fetching -----------------------------------------------------------------------------------------------------


def test_cold_records_are_fetched_like_any(connection: BrokerConnection, tiered: TieredTopic) -> None:
    for offset in (0, 1, HALF - 1, HALF, RECORDS - 1):
        data = fetch(connection, tiered.name, {0: offset}, max_wait_ms=LONG_MS, min_bytes=1)[0]
        assert (data.error_code, data.log_start_offset, data.high_watermark) == (0, 0, RECORDS)
        found = [record for record in records_of(data) if record.offset >= offset]
        assert [record.value for record in found] == values(offset, found[-1].offset + 1)


def test_cold_batches_come_whole_and_within_the_limits(connection: BrokerConnection, tiered: TieredTopic) -> None:
    offset = 0
    while offset < HALF:
        data = fetch(connection, tiered.name, {0: offset}, max_wait_ms=LONG_MS, min_bytes=1, partition_max_bytes=2_000)[
            0
        ]
        offset = records_of(data)[-1].offset + 1
    least = fetch(connection, tiered.name, {0: 0}, max_wait_ms=LONG_MS, min_bytes=1, partition_max_bytes=1)[0]
    assert records_of(least), "the first batch comes although it is larger than any limit"


def test_the_limit_of_the_request_holds_for_cold_and_hot_together(
    connection: BrokerConnection, tiered: TieredTopic
) -> None:
    wanted = {0: 0, 1: HALF}
    both = fetch(connection, tiered.name, wanted, max_wait_ms=LONG_MS, min_bytes=40_000)
    assert all(size_of(data) for data in both.values())
    limit = size_of(both[1]) + 100
    some = fetch(connection, tiered.name, wanted, max_wait_ms=LONG_MS, min_bytes=1, max_bytes=limit)
    assert sum(size_of(data) for data in some.values()) <= max(limit, size_of(both[0]))


def test_cold_records_that_do_not_fit_are_left_for_the_next_request(
    serving: BrokerProcess, connection: BrokerConnection, tiered: TieredTopic
) -> None:
    with reader_stopped(serving):
        fetch(connection, tiered.name, {0: 0, 1: 0}, max_wait_ms=50, min_bytes=1)
    for partition in (0, 1):  # asked for later: those of the first request have arrived when these have
        fetch(connection, tiered.name, {partition: 1}, max_wait_ms=LONG_MS, min_bytes=1)
    found = fetch(connection, tiered.name, {0: 0, 1: 0}, max_wait_ms=LONG_MS, min_bytes=1, partition_max_bytes=1)
    assert values_of(found[0])[:10] == values(0, 10)
    assert (found[1].error_code, size_of(found[1])) == (0, 0)
    later = fetch(connection, tiered.name, {1: 0}, max_wait_ms=LONG_MS, min_bytes=1, partition_max_bytes=1)
    assert values_of(later[1])[:10] == values(0, 10)


def test_hot_partitions_of_a_fetch_do_not_wait_for_cold_ones(
    serving: BrokerProcess, connection: BrokerConnection, tiered: TieredTopic
) -> None:
    with reader_stopped(serving):
        found = fetch(connection, tiered.name, {0: 0, 1: HALF}, max_wait_ms=LONG_MS, min_bytes=1)
        assert values_of(found[1]) == values(HALF, RECORDS)
        assert (found[0].error_code, values_of(found[0]), found[0].high_watermark) == (0, [], RECORDS)
    later = fetch(connection, tiered.name, {0: 0}, max_wait_ms=LONG_MS, min_bytes=1)
    assert values_of(later[0])[:10] == values(0, 10)


def test_a_fetch_that_only_waits_for_cold_records_ends_with_its_own_time(
    serving: BrokerProcess, connection: BrokerConnection, tiered: TieredTopic
) -> None:
    with reader_stopped(serving):
        data = fetch(connection, tiered.name, {0: 0}, max_wait_ms=50, min_bytes=1)[0]
        assert (data.error_code, values_of(data)) == (0, [])


def test_a_lake_that_does_not_answer_in_time_is_a_storage_error_and_hot_records_flow(
    start_broker: StartBroker, tmp_path: Path, topic: str
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    impatient = start_broker(lake=lake, **{**BROKER, "cold_timeout_ms": 2_000})
    TieredTopic(impatient, lake, topic, partitions=2).fill(RECORDS)
    with connect(impatient) as connection:
        with reader_stopped(impatient):
            data = fetch(connection, topic, {0: 0}, max_wait_ms=LONG_MS, min_bytes=1)[0]
            assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(connection, topic, {1: encode_batch([Record(0, 1, None, b"new")])})[1].error_code == 0
            assert values_of(fetch(connection, topic, {1: RECORDS}, max_wait_ms=LONG_MS, min_bytes=1)[1]) == [b"new"]
        wait_until(
            lambda: values_of(fetch(connection, topic, {0: 0}, max_wait_ms=500, min_bytes=1)[0]) != [],
            "cold records do not come although the lake answers again",
        )


def test_a_reader_that_was_killed_is_started_again(
    serving: BrokerProcess, connection: BrokerConnection, tiered: TieredTopic
) -> None:
    os.kill(_reader(serving), signal.SIGKILL)
    wait_until(
        lambda: values_of(fetch(connection, tiered.name, {0: 0}, max_wait_ms=500, min_bytes=1)[0])[:1] == values(0, 1),
        "cold records do not come any more",
    )


# -- offsets ------------------------------------------------------------------------------------------------------


def ask(connection: BrokerConnection, topic: str, timestamp: int, version: int = 11) -> tuple[int, int]:
    """Error code and offset."""
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(topic, [wanted])])
    (answer,) = connection.send_for(request, ListOffsetsResponse, version).topics[0].partitions
    return answer.error_code, answer.offset


def test_the_ends_of_both_parts_can_be_asked_for(connection: BrokerConnection, tiered: TieredTopic) -> None:
    expected = {
        EARLIEST: 0, LATEST: RECORDS, EARLIEST_LOCAL: HALF, LATEST_TIERED: HALF - 1, EARLIEST_PENDING_UPLOAD: HALF,
    }  # fmt: skip
    assert {where: ask(connection, tiered.name, where) for where in expected} == {
        where: (0, offset) for where, offset in expected.items()
    }


def test_a_topic_that_is_not_tiered_has_no_end_in_the_lake(connection: BrokerConnection, topic: str) -> None:
    Administrator(connection).create(new_topic(topic, 1))
    assert ask(connection, topic, LATEST_TIERED) == (0, -1)
    assert ask(connection, topic, EARLIEST_LOCAL) == (0, 0)


def test_times_are_found_in_both_parts(
    serving: BrokerProcess, lake: Path, connection: BrokerConnection, topic: str
) -> None:
    made = TieredTopic(serving, lake, topic)
    first = 1_700_000_000_000
    times = [first + 1000 * n for n in range(20)]
    for part in (times[:10], times[10:15], times[15:]):
        batch = encode_batch([Record(at, at_ms, None, bytes(500)) for at, at_ms in enumerate(part)])
        assert produce(connection, topic, {0: batch})[0].error_code == 0
        if len(part) == 10:
            made.archive()
    made.wait_until_local_from(10)
    assert [ask(connection, topic, at_ms)[1] for at_ms in times] == list(range(20))
    assert [ask(connection, topic, at_ms - 1)[1] for at_ms in times] == list(range(20))
    assert ask(connection, topic, times[-1] + 1) == (0, -1)
    assert ask(connection, topic, MAX_TIMESTAMP) == (0, 19)


def test_records_are_deleted_in_the_cold_part_too(connection: BrokerConnection, tiered: TieredTopic) -> None:
    administrator = Administrator(connection)
    assert administrator.delete_records(tiered.name, 0, 10) == (0, 10)
    assert tiered.starts() == [(10, HALF), (0, HALF)]
    assert fetch(connection, tiered.name, {0: 9})[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    data = fetch(connection, tiered.name, {0: 10}, max_wait_ms=LONG_MS, min_bytes=1)[0]
    assert next(record.offset for record in records_of(data) if record.offset >= 10) == 10
    assert administrator.delete_records(tiered.name, 0, HALF + 5) == (0, HALF + 5)
    assert tiered.starts()[0] == (HALF + 5, HALF + 5)


def test_retention_of_the_whole_removes_cold_records_and_expire_their_rows(
    serving: BrokerProcess, lake: Path, connection: BrokerConnection, topic: str
) -> None:
    made = TieredTopic(serving, lake, topic)
    old = 1_600_000_000_000
    for at_ms in (old, int(time.time() * 1000)):
        batch = encode_batch([Record(at, at_ms, None, bytes(2000)) for at in range(10)])
        produce(connection, topic, {0: batch})
        made.archive()
    made.produce(10)
    made.wait_until_local_from(20)
    assert made.starts() == [(0, 20)]
    with Cluster(serving.address) as cluster:
        Admin(cluster).alter_configs(topic, {"retention.ms": "86400000", "local.retention.ms": "0"})
    wait_until(lambda: made.starts() == [(10, 20)], f"the log starts at {made.starts()}")
    with Cluster(serving.address) as cluster:
        (expired,) = expire(made.archive(), cluster, None, dry_run=False)
    assert expired.rows == 10
    made.produce(10)
    made.wait_until_local_from(30)
    assert made.starts()[0][0] == 10
    offsets: list[int] = []
    while len(offsets) < 30:
        at = offsets[-1] + 1 if offsets else 10
        data = fetch(connection, topic, {0: at}, max_wait_ms=LONG_MS, min_bytes=1)[0]
        assert data.error_code == 0
        offsets += [record.offset for record in records_of(data) if record.offset >= at]
    assert offsets == list(range(10, 40))


# -- a lake in trouble --------------------------------------------------------------------------------------------


def trouble_of(tiered: TieredTopic) -> str | None:
    with Cluster(tiered.broker.address) as cluster:
        (fact,) = Admin(cluster).describe_configs(tiered.name, keys=["headrace.tiering"])
    troubles: list[str | None] = [row["trouble"] for row in json.loads(fact.value or "")]
    return troubles[0]


def restored(tiered: TieredTopic) -> None:
    DeltaTable(str(tiered.folder)).restore(0)


def deleted(tiered: TieredTopic) -> None:
    shutil.rmtree(tiered.folder)


def overwritten(tiered: TieredTopic) -> None:
    """By the table of another topic."""
    other = TieredTopic(tiered.broker, tiered.lake, f"{tiered.name}-other", partitions=2)
    other.produce(10)
    other.archive()
    shutil.rmtree(tiered.folder)
    shutil.copytree(other.folder, tiered.folder)


def unreadable(tiered: TieredTopic) -> None:
    for commit in (tiered.folder / "_delta_log").glob("*.json"):
        commit.write_text("no JSON\n")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (restored, "0 to 200 are no longer in Redis"),
        (deleted, "There is no table in"),
        (overwritten, "-other of cluster"),
        (unreadable, "cannot be read"),
    ],
)
def test_a_table_that_lost_records_keeps_the_others_in_redis_and_resets_nobody(
    serving: BrokerProcess,
    connection: BrokerConnection,
    tiered: TieredTopic,
    harm: Callable[[TieredTopic], None],
    says: str,
) -> None:
    harm(tiered)
    tiered.produce(100, first=RECORDS)
    wait_until(lambda: says in (trouble_of(tiered) or ""), "nobody says what the table lost")
    assert tiered.starts() == [(0, HALF)] * 2
    with RedisView.of(serving) as redis:
        (oldest,) = redis.call("XRANGE", redis.log_key(tiered.name), "-", "+", "COUNT", 1)
        assert oldest[0] == b"%d-1" % HALF
    assert values_of(fetch(connection, tiered.name, {0: RECORDS})[0]) == values(RECORDS, RECORDS + 100)
    for offset in (0, HALF - 1):
        codes = {fetch(connection, tiered.name, {0: offset}, max_wait_ms=100, min_bytes=1)[0].error_code}
        assert codes <= {0, ErrorCode.KAFKA_STORAGE_ERROR}
    lines = [line for line in serving.log.splitlines() if f'"{tiered.name}-' in line and says in line]
    assert len(lines) == 1, lines


def test_a_file_that_is_not_there_keeps_its_records_in_redis_whatever_the_tables_log_says(
    serving: BrokerProcess, lake: Path, connection: BrokerConnection, topic: str
) -> None:
    made = TieredTopic(serving, lake, topic, configs={**CONFIGS, "local.retention.bytes": "-1"})
    made.produce(200)
    made.archive()
    made.produce(200, first=200)
    next(made.folder.glob("p0/*.parquet")).unlink()
    administrator = Administrator(connection)
    assert administrator.alter(topic, [("local.retention.bytes", SET, "0")])[0] == 0
    wait_until(lambda: "lost or truncated" in (trouble_of(made) or ""), "nobody says that a file is missing")
    assert made.starts() == [(0, 0)]
    assert values_of(fetch(connection, topic, {0: 0})[0]) == values(0, 400)


# -- configs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configs", "says"),
    [
        ({"cleanup.policy": "compact"}, "Remote log storage is unsupported for the compacted topics"),
        ({"headrace.format": "stream"}, "not supported in the format `stream`"),
        ({"retention.ms": "1000", "local.retention.ms": "1001"}, "Value must not be more than retention.ms"),
        ({"retention.bytes": "1000", "local.retention.bytes": "-1"}, "Value must not be -1 as retention.bytes"),
    ],
)
def test_what_kafka_refuses_of_a_tiered_topic_is_refused(
    connection: BrokerConnection, topic: str, configs: dict[str, str], says: str
) -> None:
    asked = new_topic(topic, 1, configs={"remote.storage.enable": "true", **configs})
    result = Administrator(connection).create(asked)
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert says in (result.error_message or "")


def test_a_lake_that_cannot_be_reached_is_why_a_topic_is_not_tiered(
    start_broker: StartBroker, tmp_path: Path, topic: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    with connect(start_broker(lake=tmp_path / "file", **BROKER)) as connection:
        result = Administrator(connection).create(new_topic(topic, 1, configs=dict(CONFIGS)))
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert (result.error_message or "").startswith("Tiered Storage functionality is disabled in the broker.")
    assert str(tmp_path / "file") in (result.error_message or "")


def test_turning_it_off_gives_up_what_is_in_the_lake_alone_and_says_so_first(
    connection: BrokerConnection, tiered: TieredTopic
) -> None:
    administrator = Administrator(connection)
    code, message = administrator.alter(tiered.name, [("remote.storage.enable", SET, "false")])
    assert code == ErrorCode.INVALID_CONFIG
    assert "remote.log.delete.on.disable=true" in (message or "")
    assert tiered.starts() == [(0, HALF)] * 2
    off: list[tuple[str, int, str | None]] = [
        ("remote.storage.enable", SET, "false"),
        ("remote.log.delete.on.disable", SET, "true"),
    ]
    assert administrator.alter(tiered.name, off)[0] == 0
    wait_until(lambda: tiered.starts() == [(HALF, HALF)] * 2, f"the log starts at {tiered.starts()}")
    assert tiered.folder.is_dir()

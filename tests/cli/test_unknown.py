"""While a part of the store is away, commands show the rest at once, name what is unknown, and exit with 1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.cli.output import ranges
from tests.cli.conftest import Ran, run_command
from tests.shard_away import LOGS, NAMES, PARTITIONS, RECORDS, STREAMS, TRANSACTIONS_KEY, ShardAway, shard_away

_PATIENCE_S = 600
"""Longer than any test may take: a command that waits for what is away does not end."""
pytestmark = pytest.mark.xdist_group("commands while a shard is away")


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardAway]:
    with shard_away(tmp_path_factory.mktemp("away"), TRANSACTIONS_KEY) as found:
        yield found


def run(away: ShardAway, *arguments: object, code: int = 1) -> Ran:
    patience = () if "--timeout" in arguments else ("--timeout", _PATIENCE_S)
    ran = run_command(*arguments, *patience, HEADRACE_BOOTSTRAP=away.broker.address)
    assert ran.code == code, ran
    return ran


def test_topics_are_listed_and_the_partitions_that_are_away_named(away: ShardAway) -> None:
    ran = run(away, "topics", "list")
    assert [row[:3] for row in ran.table] == [[STREAMS, str(PARTITIONS), "-"], [LOGS, str(PARTITIONS), "-"]]
    assert f"{LOGS}, partitions {ranges(away.logs)}: " in ran.err
    assert f"{STREAMS}, partitions {ranges(away.streams)}: " in ran.err
    assert "KAFKA_STORAGE_ERROR" in ran.err
    orders = run(away, "topics", "list", "--json").json[1]
    assert orders["records"] is None
    [unknown] = orders["unknown"]
    assert (unknown["error"], unknown["partitions"]) == ("KAFKA_STORAGE_ERROR", away.logs)


@pytest.mark.parametrize("topic", [LOGS, STREAMS])
def test_a_topic_is_described_with_the_partitions_that_are_there(topic: str, away: ShardAway) -> None:
    [described] = run(away, "topics", "describe", topic, "--json").json
    missing = away.logs if topic == LOGS else away.streams
    for row in described["partitions"]:
        if row["partition"] in missing:
            assert (row["start"], row["end"], row["trouble"]["error"]) == (None, None, "KAFKA_STORAGE_ERROR")
        else:
            assert row["end"] - row["start"] == RECORDS
            assert row["size_bytes"] > 0
            assert "trouble" not in row
    assert f"{topic}, partitions {ranges(missing)}: " in run(away, "topics", "describe", topic).err


def test_groups_are_listed(away: ShardAway) -> None:
    assert [row[0] for row in run(away, "groups", "list", code=0).table] == NAMES


def test_groups_are_described_and_those_that_are_away_named(away: ShardAway) -> None:
    ran = run(away, "groups", "describe", *NAMES, "--json")
    described = {one["group"]: one for one in ran.json}
    assert list(described) == [name for name in NAMES if name not in away.groups] + away.groups
    for name, one in described.items():
        if name in away.groups:
            assert one["error"] == "COORDINATOR_NOT_AVAILABLE"
            assert f"Error: {name}: the store is unavailable" in ran.err
            continue
        behind = {(p["topic"], p["partition"]): (p["records"], p.get("trouble")) for p in one["positions"]}
        assert {count for place, (count, trouble) in behind.items() if trouble is None} == {RECORDS}
        assert sorted(place[1] for place, (_, trouble) in behind.items() if trouble and place[0] == LOGS) == away.logs
        assert f"{name}: lag in {LOGS}, partitions {ranges(away.logs)}: " in ran.err


def test_lag_is_shown_of_what_is_there(away: ShardAway) -> None:
    ran = run(away, "groups", "lag", "--json")
    lags = {one["group"]: one for one in ran.json if one.get("topic") == LOGS}
    assert sorted(lags) == [name for name in NAMES if name not in away.groups]
    for one in lags.values():
        assert one["lag"] == RECORDS * (PARTITIONS - len(away.logs))
        assert one["away"][0]["partitions"] == away.logs
    assert [one["group"] for one in ran.json if "error" in one] == away.groups


def test_a_dry_run_of_a_reset_says_soon_what_it_cannot_know(away: ShardAway) -> None:
    name = next(name for name in NAMES if name not in away.groups)
    ran = run(away, "groups", "reset", name, "--topic", LOGS, "--to", "earliest")
    assert f"{LOGS}-{away.logs[0]}" in ran.sentence()


def test_transactional_ids_are_listed_as_far_as_they_are_known(away: ShardAway) -> None:
    known = [name for name in NAMES if name not in away.transactions]
    ran = run(away, "transactions", "list", "--json")
    assert [one["transactional_id"] for one in ran.json if "error" not in one] == known
    assert [(one["node"], one["error"]) for one in ran.json if "error" in one] == [(0, "COORDINATOR_NOT_AVAILABLE")]
    assert "Error: some transactional ids of node 0: " in ran.err
    ran = run(away, "transactions", "describe", *NAMES, "--json")
    assert [one["transactional_id"] for one in ran.json] == known + away.transactions
    assert all(f"Error: {name}: " in ran.err for name in away.transactions)


def test_the_state_of_tables_is_shown_with_the_partitions_that_are_there(away: ShardAway) -> None:
    ran = run(away, "lake", "status", "--lake", away.lake, "--json")
    assert [row["partition"] for row in ran.json if row.get("is_away")] == away.logs
    for row in ran.json:
        assert (row["hot_end"], row["lag"]) == ((None, None) if row.get("is_away") else (RECORDS, 0))
        assert row["cold_end"] == RECORDS
    assert f"Error: {LOGS}, partitions {ranges(away.logs)}: " in ran.err
    ran = run(away, "lake", "status", "--lake", away.lake)
    assert "deleted" not in ran.out


def test_a_record_that_is_not_sent_names_its_partition(away: ShardAway) -> None:
    lost = away.logs[0]
    said = run(away, "produce", LOGS, "late", "--partition", lost, "--timeout", 3).sentence()
    assert said.startswith(f"{LOGS}-{lost}: ")


def test_records_of_other_partitions_are_read_first(away: ShardAway) -> None:
    ran = run_command("consume", LOGS, "--json", "--timeout", 2, HEADRACE_BOOTSTRAP=away.broker.address)
    assert {line["partition"] for line in ran.json_lines} == set(away.there(away.logs))
    assert len(ran.json_lines) == RECORDS * len(away.there(away.logs))
    assert ran.sentence().startswith(f"{LOGS}-{away.logs[0]}, ")

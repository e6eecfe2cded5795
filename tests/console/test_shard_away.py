"""While one server of a cluster is away, pages show the rest, and say what is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.console.conftest import console_of
from tests.shard_away import LOGS, NAMES, RECORDS, STREAMS, TRANSACTIONS_KEY, ShardAway, shard_away

pytestmark = pytest.mark.xdist_group("pages while a shard is away")


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardAway]:
    with shard_away(tmp_path_factory.mktemp("away"), TRANSACTIONS_KEY, console=True) as found:
        yield found


@pytest.fixture
def console(away: ShardAway) -> Iterator[httpx.Client]:
    with console_of(away.broker) as client:
        yield client


def read(console: httpx.Client, path: str, **params: Any) -> Any:
    answer = console.get(f"/api/v1{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_topics_without_numbers_say_why(away: ShardAway, console: httpx.Client) -> None:
    for row in read(console, "/topics")["topics"]:
        assert row["records"] is None
        assert row["trouble"] == "The broker's store is unavailable now."


@pytest.mark.parametrize("topic", [LOGS, STREAMS])
def test_partitions_that_are_away_say_so(topic: str, away: ShardAway, console: httpx.Client) -> None:
    missing = away.logs if topic == LOGS else away.streams
    for row in read(console, f"/topics/{topic}")["partitions"]:
        assert (row["end"] == "-1") == bool(row["trouble"]) == (row["partition"] in missing)


@pytest.mark.parametrize("place", ["newest", "oldest"])
def test_messages_of_other_partitions_are_shown(place: str, away: ShardAway, console: httpx.Client) -> None:
    found = read(console, f"/topics/{LOGS}/messages", limit=100, **{"from": place})
    assert len(found["messages"]) == RECORDS * len(away.there(away.logs))
    assert found["trouble"].startswith(f"not shown: {LOGS}-{away.logs[0]}, ")


def test_groups_are_shown_and_why_lag_is_not(away: ShardAway, console: httpx.Client) -> None:
    rows = {row["group"]: row for row in read(console, "/groups")["groups"]}
    assert sorted(rows) == NAMES
    assert all(row["lag"] is None and row["trouble"] for row in rows.values())
    name = next(name for name in NAMES if name not in away.groups)
    found = read(console, "/groups/detail", group=name)
    for row in found["positions"]:
        missing = away.logs if row["topic"] == LOGS else away.streams
        assert bool(row["trouble"]) == (row["partition"] in missing)
        assert row["lag"] == (None if row["trouble"] else RECORDS)


def test_keys_of_other_partitions_are_shown(away: ShardAway, console: httpx.Client) -> None:
    [topic] = read(console, "/streams")["topics"]
    assert [key["partition"] for key in topic["keys"]] == away.there(away.streams)
    assert topic["missing"] == away.streams

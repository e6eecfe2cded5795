"""What only Headrace can show: where records live, the lake, the keys of streams, the servers of the store."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from tests.broker_process import BrokerProcess, free_port
from tests.console.conftest import console_of
from tests.console.test_api import API, commit, create, get, produce
from tests.stores import redis_beside
from tests.tiered import BROKER, TieredTopic, value_of


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, lake: Path) -> Iterator[BrokerProcess]:
    settings = {**BROKER, "tail_cache_bytes": 1 << 20, "lake": lake, "http_port": free_port(), "console": True}
    process = BrokerProcess(tmp_path_factory.mktemp("pages") / "data", **settings)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture(scope="module")
def pages(serving: BrokerProcess) -> Iterator[httpx.Client]:
    with console_of(serving) as client:
        yield client


def test_cold_records_are_shown_and_the_lake_says_how_far_it_is(
    pages: httpx.Client, serving: BrokerProcess, lake: Path, topic: str
) -> None:
    TieredTopic(serving, lake, topic).fill(100)
    piece = get(pages, f"/topics/{topic}/messages", **{"from": "oldest", "limit": 3})
    shown = [base64.b64decode(message["value"]["base64"]) for message in piece["messages"]]
    assert shown == [value_of(number) for number in range(3)]
    [partition] = get(pages, f"/topics/{topic}")["partitions"]
    assert (partition["log_start"], partition["local_start"], partition["end"]) == ("0", "50", "100")
    assert partition["lake_end"] == "50"
    verify_lake(place_of(lake), None, [topic])
    [found] = get(pages, "/lake", search=topic)["topics"]
    assert (found["cold_records"], found["partitions"][0]["lag"]) == (50, 50)
    assert (found["table"]["rows"], found["table"]["proof"]["findings"], found["table"]["rejects"]) == (50, 0, None)


def test_a_stream_shows_its_key_and_a_big_offset_is_exact(
    pages: httpx.Client, serving: BrokerProcess, topic: str
) -> None:
    create(pages, topic, 1, **{"headrace.format": "stream"})
    produce(serving, topic, [b"x"] * 10)
    [shown] = get(pages, "/streams", search=topic)["topics"]
    [key] = shown["keys"]
    assert key["entries"] == redis_beside(serving).xlen(key["key"]) == 10
    commit(serving, f"{topic}-group", topic, 10)
    messages = get(pages, f"/topics/{topic}/messages")["messages"]
    order = {"group": f"{topic}-group", "to": "offset", "value": messages[4]["offset"], "execute": True}
    assert pages.post(f"{API}/groups/reset", json=order).json()["rows"][0]["after"] == messages[4]["offset"]
    assert get(pages, "/groups/detail", group=f"{topic}-group")["lag"] == 6


def test_a_leader_shows_what_is_in_memory(pages: httpx.Client, serving: BrokerProcess, topic: str) -> None:
    create(pages, topic)
    produce(serving, topic, [b"x"] * 10)
    assert get(pages, f"/topics/{topic}")["partitions"][0]["cached_from"] == "0"


def test_servers_tell_of_their_memory_and_what_is_on_disk(pages: httpx.Client) -> None:
    [server] = get(pages, "/nodes")["servers"]
    assert server["used_bytes"] > 0
    assert (server["append_only"], server["write_status"], server["replicas"]) == (True, "ok", [])


@pytest.mark.parametrize("value", ["1e3", "x", "--1", "9" * 30])
def test_a_reset_takes_whole_numbers_alone(pages: httpx.Client, topic: str, value: str) -> None:
    create(pages, topic)
    order = {"group": "some", "to": "offset", "topic": topic, "value": value}
    assert pages.post(f"{API}/groups/reset", json=order).status_code == 400

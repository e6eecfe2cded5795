"""What only Headrace can tell, asked for by name beside configs: keys, memory, servers, tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.client import Admin, Cluster, Producer
from headrace.client.admin import BROKER as BROKER_KIND
from headrace.client.admin import TOPIC
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from tests.broker_process import BrokerProcess
from tests.stores import redis_beside
from tests.tiered import BROKER, TieredTopic


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, lake: Path) -> Iterator[BrokerProcess]:
    settings = {**BROKER, "tail_cache_bytes": 1 << 20, "lake": lake}
    process = BrokerProcess(tmp_path_factory.mktemp("facts") / "data", **settings)
    try:
        yield process.start()
    finally:
        process.end()


def fact(broker: BrokerProcess, name: str, key: str, kind: int = TOPIC) -> Any:
    with Cluster(broker.address) as cluster:
        [entry] = Admin(cluster).describe_configs(name, kind, [key])
        return msgspec.json.decode(entry.value or "")


def test_a_stream_shows_its_key_its_groups_and_what_they_have_not_confirmed(serving: BrokerProcess, topic: str) -> None:
    with Cluster(serving.address) as cluster:
        Admin(cluster).create_topic(topic, 2, {"headrace.format": "stream"})
        with Producer(cluster) as producer:
            for number in range(5):
                producer.send(topic, b"%d" % number, partition=0)
    first, second = fact(serving, topic, "headrace.stream")
    assert (first["entries"], first["groups"], second["entries"]) == (5, [], 0)
    assert first["key"].endswith(":stream")
    with redis_beside(serving) as redis:
        redis.xgroup_create(first["key"], "workers", "0")
        redis.xreadgroup("workers", "ann", {first["key"]: ">"}, count=3)
    [group] = fact(serving, topic, "headrace.stream")[0]["groups"]
    assert (group["name"], group["consumers"], group["pending"], group["lag"]) == ("workers", 1, 3, 2)
    assert [entry["consumer"] for entry in group["oldest"]] == ["ann"] * 3
    assert group["oldest"][0]["id"] == first["first_id"]


def test_a_leader_says_what_it_has_in_memory(serving: BrokerProcess, topic: str) -> None:
    with Cluster(serving.address) as cluster:
        Admin(cluster).create_topic(topic, 2)
        with Producer(cluster) as producer:
            producer.send(topic, b"1", partition=1)
    assert fact(serving, topic, "headrace.cached") == {"1": 0}


def test_a_node_tells_of_its_servers(serving: BrokerProcess) -> None:
    [server] = fact(serving, "0", "headrace.redis", BROKER_KIND)
    assert server["used_bytes"] > 0
    assert server["append_only"] is True
    assert server["replicas"] == []


def test_a_table_has_files_and_the_last_proof(serving: BrokerProcess, lake: Path, topic: str) -> None:
    tiered = TieredTopic(serving, lake, topic)
    assert "trouble" in fact(serving, topic, "headrace.lake")
    tiered.fill(100)
    before = fact(serving, topic, "headrace.lake")
    assert (before["rows"], before["rejects"], before["proof"]) == (50, None, None)
    assert before["files"] >= 1
    assert before["last_commit_ms"] > 0
    verify_lake(place_of(lake), None, [topic])
    proof = fact(serving, topic, "headrace.lake")["proof"]
    assert (proof["rows"], proof["findings"]) == (50, 0)
    verify_lake(place_of(lake), None, [topic])
    assert fact(serving, topic, "headrace.lake")["proof"]["at_ms"] > proof["at_ms"]


def test_facts_are_not_among_configs(serving: BrokerProcess, topic: str) -> None:
    with Cluster(serving.address) as cluster:
        admin = Admin(cluster)
        admin.create_topic(topic, 1)
        names = {entry.name for entry in admin.describe_configs(topic)}
    assert not names & {"headrace.cached", "headrace.stream", "headrace.lake", "headrace.tiering"}

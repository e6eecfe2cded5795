"""`headrace topics`, against a broker."""

from __future__ import annotations

import os
from pathlib import Path
from signal import Signals

from headrace.store.cluster.identity import from_kafka_uuid, ulid
from tests.broker_process import wait_until
from tests.cli.conftest import Run, run_command
from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker


def test_a_topic_is_created_with_partitions_and_configs_and_described(run: Run, topic: str) -> None:
    created = run("topics", "create", topic, "-p", 3, "-c", "retention.ms=7d", "-c", "retention.bytes=1GiB")
    assert created.out.startswith(f"created {topic} with 3 partitions, top_")
    run("produce", topic, "a", "b", "--partition", 1)
    (found,) = run("topics", "describe", topic, "--json").json
    assert found["name"] == topic
    assert [(p["partition"], p["start"], p["end"]) for p in found["partitions"]] == [(0, 0, 0), (1, 0, 2), (2, 0, 0)]
    assert found["partitions"][1]["size_bytes"] > 0
    configs = {config["name"]: config["value"] for config in found["configs"]}
    assert configs == {"retention.ms": str(7 * 86_400_000), "retention.bytes": str(1 << 30)}


def test_both_spellings_of_a_topics_id_are_the_same_bits(run: Run, topic: str) -> None:
    (created,) = run("topics", "create", topic, "--json").json
    assert created["id"] == f"top_{ulid(from_kafka_uuid(created['topic_id']))}"
    (described,) = run("topics", "describe", topic, "--json", "--all-configs").json
    assert (described["id"], described["topic_id"]) == (created["id"], created["topic_id"])
    configs = {config["name"]: config["value"] for config in described["configs"]}
    assert configs["headrace.topic.id"] == created["id"]
    assert len(configs) > 20


def test_describe_is_a_page_for_people(run: Run, topic: str) -> None:
    run("topics", "create", topic, "-p", 2)
    run("produce", topic, "x", "--partition", 0)
    page = run("topics", "describe", topic).out
    lines = page.splitlines()
    assert lines[0] == topic
    assert lines[1].split()[0] == "id"
    heading = next(at for at, line in enumerate(lines) if line.startswith("PARTITION"))
    assert lines[heading].split() == ["PARTITION", "LEADER", "EPOCH", "START", "END", "RECORDS", "SIZE"]
    assert lines[heading + 1].split()[:6] == ["0", "0", "0", "0", "1", "1"]
    assert lines[-1] == "every config has its default"
    assert max(map(len, lines)) <= 80


def test_list_counts_partitions_and_records_and_takes_a_pattern(run: Run, topic: str) -> None:
    run("topics", "create", f"{topic}-a", f"{topic}-b", "-p", 2)
    run("produce", f"{topic}-a", "1", "2", "3")
    rows = run("topics", "list", f"{topic}-*").table
    assert [row[:3] for row in rows] == [[f"{topic}-a", "2", "3"], [f"{topic}-b", "2", "0"]]
    listed = run("topics", "list", f"{topic}-*", "--json").json
    assert [(t["name"], t["partitions"], t["records"]) for t in listed] == [(f"{topic}-a", 2, 3), (f"{topic}-b", 2, 0)]
    assert all(row[-1] == t["id"] for row, t in zip(rows, listed, strict=True))
    assert run("topics", "list", "no-such-*").out == "no topics match no-such-*\n"


def test_alter_changes_configs_takes_them_back_and_adds_partitions(run: Run, topic: str) -> None:
    run("topics", "create", topic, "-c", "retention.ms=1d")
    run("topics", "alter", topic, "-c", "retention.bytes=64MiB", "--unset", "retention.ms", "--partitions", 4)
    (found,) = run("topics", "describe", topic, "--json").json
    assert len(found["partitions"]) == 4
    assert [(c["name"], c["value"]) for c in found["configs"]] == [("retention.bytes", str(64 << 20))]


def test_a_dry_run_of_alter_is_checked_and_changes_nothing(run: Run, topic: str) -> None:
    run("topics", "create", topic)
    assert run("topics", "alter", topic, "-c", "retention.ms=1d", "--partitions", 4, "--dry-run").code == 0
    bad = run("topics", "alter", topic, "-c", "retention.ms=soon", "--dry-run", fails=True)
    assert "retention.ms" in bad.sentence()
    (found,) = run("topics", "describe", topic, "--json").json
    assert (len(found["partitions"]), found["configs"]) == (1, [])


def test_deleted_topics_are_gone(run: Run, topic: str) -> None:
    run("topics", "create", f"{topic}-a", f"{topic}-b")
    assert run("topics", "delete", f"{topic}-a", f"{topic}-b").out == f"deleted {topic}-a\ndeleted {topic}-b\n"
    assert run("topics", "list", f"{topic}-*", "--json").json == []
    assert run("topics", "delete", f"{topic}-a", fails=True).sentence() == f"there is no topic '{topic}-a'"
    assert run("topics", "delete", f"{topic}-a", "--if-exists").out == f"{topic}-a does not exist\n"


def test_what_the_broker_refuses_is_said_in_its_words(run: Run, topic: str) -> None:
    run("topics", "create", topic)
    again = run("topics", "create", topic, fails=True).sentence()
    assert again == f"Topic '{topic}' already exists (TOPIC_ALREADY_EXISTS)"
    assert run("topics", "create", topic, "--if-not-exists").out == f"{topic} already exists\n"
    assert "INVALID_TOPIC_EXCEPTION" in run("topics", "create", "no spaces", fails=True).sentence()
    assert "INVALID_CONFIG" in run("topics", "create", f"{topic}2", "-c", "colour=red", fails=True).sentence()
    assert "There is no topic" in run("topics", "describe", f"{topic}-none", fails=True).sentence()


def test_a_store_that_does_not_answer_is_said_in_words(start_broker: StartBroker) -> None:
    broker = start_broker(store_wait_ms=100, store_timeout_ms=500)
    os.kill(broker.valkey_pid, Signals.SIGSTOP)
    try:
        said = run_command("groups", "list", "--bootstrap", broker.address, "--timeout", 5).sentence()
    finally:
        os.kill(broker.valkey_pid, Signals.SIGCONT)
    assert said == "no coordinator is available now (COORDINATOR_NOT_AVAILABLE)"


def test_a_topic_is_deleted_while_a_shard_is_away(start_broker: StartBroker, tmp_path: Path) -> None:
    with running(ClusterOfServers(tmp_path, replicas=0, durability="always")) as servers:
        broker = start_broker(redis=servers.url, store_wait_ms=200)
        at = ("--bootstrap", broker.address)
        run_command("topics", "create", "wide", "-p", 64, *at)
        for partition in range(64):
            run_command("produce", "wide", "a", "--partition", partition, *at)
        kept = [servers.owner_of_key(key) for key in ("headrace:{nodes}", "headrace:default:{topics}")]
        lost = next(server for server in servers.servers if server not in kept)
        lost.kill()
        ran = run_command("topics", "delete", "wide", *at)
        lost.start()
        assert (ran.code, ran.out) == (0, "deleted wide\n"), ran
        wait_until(lambda: not any(one.ask("KEYS", "*{wide:*") for one in servers.servers), "records are left", 60)


def test_mistakes_in_the_command_itself_are_usage_errors() -> None:
    assert "nothing to change" in run_command("topics", "alter", "orders").sentence(2)
    assert "NAME=VALUE" in run_command("topics", "create", "orders", "-c", "retention.ms").sentence(2)
    assert "both set and unset" in run_command("topics", "alter", "o", "-c", "a=1", "--unset", "a").sentence(2)
    assert "HOST:PORT" in run_command("topics", "list", "--bootstrap", "nowhere:port").sentence(2)

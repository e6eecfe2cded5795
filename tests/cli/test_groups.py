"""`headrace groups`, against a broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from headrace.cli.output import ranges
from tests.broker_process import BrokerProcess, wait_until
from tests.cli.conftest import Ran, Run, run_command
from tests.conftest import StartBroker, StartRedis


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


@pytest.fixture
def read(run: Run, topic: str, group: str) -> str:
    """A topic of two partitions with 10 records each, of which the group has read 4 and 7."""
    run("topics", "create", topic, "-p", 2, "-c", "retention.ms=-1")
    for partition, at in ((0, 4), (1, 7)):
        for number in range(10):
            run("produce", topic, number, "--partition", partition, "--timestamp", f"2026-01-0{number // 2 + 1}")
        run("groups", "reset", group, "--topic", f"{topic}:{partition}", "--to", at, "--execute")
    return topic


def positions(run: Run, group: str) -> dict[int, int]:
    (found,) = run("groups", "describe", group, "--json").json
    return {p["partition"]: p["position"] for p in found["positions"]}


def planned(ran: Ran) -> dict[int, tuple[int, int]]:
    """Partition -> offset before and after, of a plan in JSON."""
    return {line["partition"]: (line["before"], line["offset"]) for line in ran.json["offsets"]}


def test_a_group_is_described_with_position_end_and_lag(run: Run, read: str, group: str) -> None:
    (found,) = run("groups", "describe", group, "--json").json
    assert (found["group"], found["state"], found["members"]) == (group, "Empty", [])
    assert [(p["topic"], p["partition"], p["position"], p["end"], p["lag"]) for p in found["positions"]] == [
        (read, 0, 4, 10, 6),
        (read, 1, 7, 10, 3),
    ]
    page = run("groups", "describe", group).out
    assert page.startswith(f"{group}\n")
    rows = [line.split() for line in page.splitlines() if line.startswith(read)]
    assert rows == [[read, "0", "4", "10", "6", "-"], [read, "1", "7", "10", "3", "-"]]


def test_list_and_lag_show_the_group(run: Run, read: str, group: str) -> None:
    listed = {found["group_id"]: found for found in run("groups", "list", "--json").json}
    assert listed[group]["state"] == "Empty"
    assert [row[0] for row in run("groups", "list", "--state", "empty").table].count(group) == 1
    assert group not in run("groups", "list", "--state", "Stable").out
    assert run("groups", "lag", group).table == [[group, read, "2", "9"]]
    assert [group, read, "2", "9"] in run("groups", "lag").table
    assert run("groups", "lag", "nobody").out == "nobody: nothing committed\n"


def test_lag_of_a_stream_topic_is_told_in_records_too(run: Run, read: str, topic: str, group: str) -> None:
    stream = f"{topic}-stream"
    run("topics", "create", stream, "-p", 2, "-c", "headrace.format=stream")
    for number in range(10):
        if number == 4:
            run("groups", "reset", group, "--topic", stream, "--to", "latest", "--execute")
        run("produce", stream, number, "--partition", number % 2)
    (found,) = run("groups", "describe", group, "--json").json
    assert [(p["topic"], p["partition"], p["records"]) for p in found["positions"]] == [
        (read, 0, 6),
        (read, 1, 3),
        (stream, 0, 3),
        (stream, 1, 3),
    ]
    lags = {lag["topic"]: lag for lag in run("groups", "lag", group, "--json").json}
    assert (lags[read]["lag"], lags[read]["records"]) == (9, 9)
    assert lags[stream]["records"] == 6
    assert lags[stream]["lag"] > 1000
    assert [(row[1], row[-1]) for row in run("groups", "lag", group).table] == [(read, "9"), (stream, "6")]
    page = run("groups", "describe", group).out
    assert [line.split()[-2] for line in page.splitlines() if line.startswith(stream)] == ["3", "3"]


def test_records_of_a_stream_topic_are_not_counted_by_offsets(run: Run, topic: str, group: str) -> None:
    run("topics", "create", topic, "-p", 1, "-c", "headrace.format=stream")
    run("produce", topic, "one")
    run("groups", "reset", group, "--topic", topic, "--to", "latest", "--execute")
    for arguments, given in (
        (["consume", topic, "--from", "-1"], "-1"),
        (["groups", "reset", group, "--topic", topic, "--to", "-1"], "-1"),
        (["groups", "reset", group, "--topic", topic, "--shift", "-1"], "--shift -1"),
    ):
        assert run(*arguments, fails=True).sentence() == (
            f"{given} counts records by offset, but in '{topic}' (headrace.format=stream) offsets are times; "
            "give a time instead, such as 10m"
        )
    run("groups", "reset", group, "--topic", topic, "--shift", "0")
    assert run("consume", topic, "--from", "1m").out.endswith("one\n")


def test_any_broker_may_be_asked_for_records_and_identity(
    start_broker: StartBroker, start_redis: StartRedis, topic: str
) -> None:
    server = start_redis()
    brokers = [start_broker(redis=server.url, node_id=number) for number in range(2)]
    names = [f"group-{number}" for number in range(6)]
    for arguments in (
        ("topics", "create", topic, "-p", 1, "-c", "headrace.format=stream"),
        ("produce", topic, "one"),
        ("produce", topic, "two"),
        *(("groups", "reset", name, "--topic", topic, "--to", "earliest", "--execute") for name in names),
    ):
        ran = run_command(*arguments, HEADRACE_BOOTSTRAP=brokers[0].address)
        assert ran.code == 0, ran.err
    for broker in brokers:
        lags = run_command("groups", "lag", "--json", HEADRACE_BOOTSTRAP=broker.address).json
        assert [(lag["group"], lag["records"]) for lag in lags] == [(name, 2) for name in names]


@pytest.mark.parametrize(
    ("how", "after"),
    [
        (["--to", "earliest"], {0: 0, 1: 0}),
        (["--to", "latest"], {0: 10, 1: 10}),
        (["--to", "5"], {0: 5, 1: 5}),
        (["--to", "99"], {0: 10, 1: 10}),
        (["--to", "-3"], {0: 7, 1: 7}),
        (["--to", "2026-01-02"], {0: 2, 1: 2}),
        (["--to", "@1767484800000"], {0: 6, 1: 6}),
        (["--to", "1h"], {0: 10, 1: 10}),
        (["--shift", "2"], {0: 6, 1: 9}),
        (["--shift", "-5"], {0: 0, 1: 2}),
    ],
)
def test_a_reset_shows_its_plan_first_and_then_does_it(
    run: Run, read: str, group: str, how: list[str], after: dict[int, int]
) -> None:
    before = {0: 4, 1: 7}
    dry = run("groups", "reset", group, "--topic", read, *how, "--json")
    assert planned(dry) == {p: (before[p], after[p]) for p in before}
    assert dry.json["executed"] is False
    assert positions(run, group) == before
    done = run("groups", "reset", group, "--all-topics", *how, "--execute", "--json")
    assert done.json["executed"] is True
    assert positions(run, group) == after


def test_the_plan_is_a_table_that_says_how_to_do_it(run: Run, read: str, group: str) -> None:
    page = run("groups", "reset", group, "--topic", f"{read}:1", "--to", "99").out
    lines = page.splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITION", "BEFORE", "NEW", "CHANGE", "NOTE"]
    assert lines[1].split() == [read, "1", "7", "10", "+3", "99", "is", "after", "the", "end"]
    assert lines[-1] == "dry run: nothing was changed; use --execute to apply it"
    assert positions(run, group) == {0: 4, 1: 7}


def test_offsets_come_from_a_csv_file_or_from_a_plan(run: Run, read: str, group: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    file.write_text(f"topic,partition,offset\n{read},0,1\n\n{read}, 1, 2\n")
    run("groups", "reset", group, "--from-file", file, "--execute")
    assert positions(run, group) == {0: 1, 1: 2}
    file.write_text(run("groups", "reset", group, "--all-topics", "--to", "latest", "--json").out)
    run("groups", "reset", group, "--from-file", file, "--execute")
    assert positions(run, group) == {0: 10, 1: 10}
    file.write_text(json.dumps([{"topic": read, "partition": 0, "offset": 3}]))
    run("groups", "reset", group, "--from-file", file, "--execute")
    assert positions(run, group) == {0: 3, 1: 10}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("orders,0\n", "line 1"),
        ("orders,0,1\norders,x,1\n", "line 2"),
        ("orders,0,1\norders,0,2\n", "orders-0 twice"),
        ('[{"topic": "orders", "partition": 0}]', "offset"),
        ("[", "not a list"),
        ("\n", "no offsets"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(run: Run, tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "offsets"
    file.write_text(content)
    assert said in run("groups", "reset", "g", "--from-file", file, fails=True).sentence()


def test_a_reset_must_say_what_and_where_to() -> None:
    for arguments, said in (
        (["--topic", "t"], "give one of --to"),
        (["--topic", "t", "--to", "1", "--shift", "1"], "give one of --to"),
        (["--to", "latest"], "give --topic or"),
        (["--to", "latest", "--topic", "t", "--all-topics"], "give --topic or"),
        (["--from-file", "f", "--topic", "t"], "names the topics itself"),
        (["--to", "never", "--topic", "t"], "never"),
    ):
        assert said in run_command("groups", "reset", "g", *arguments).sentence(2)


def test_what_cannot_be_reset_is_one_sentence(run: Run, read: str, group: str) -> None:
    def refused(*arguments: str) -> str:
        return run("groups", "reset", *arguments, fails=True).sentence()

    assert refused(group, "--topic", f"{read}:9", "--to", "latest") == f"{read} has no partition 9; it has 0 to 1"
    assert "There is no topic" in refused(group, "--topic", f"{read}-none", "--to", "latest")
    assert refused(f"{group}-new", "--topic", f"{read}:0", "--shift", "1") == (
        f"nothing is committed to shift for {read}-0"
    )


def test_offsets_of_a_topic_that_was_deleted_do_not_hide_the_others(run: Run, read: str, group: str) -> None:
    other = f"{read}-other"
    run("topics", "create", other)
    run("groups", "reset", group, "--topic", other, "--to", "latest", "--execute")
    run("topics", "delete", other)
    (found,) = run("groups", "describe", group, "--json").json
    assert [(p["topic"], p["lag"]) for p in found["positions"] if p["topic"] == read] == [(read, 6), (read, 3)]
    assert planned(run("groups", "reset", group, "--all-topics", "--to", "0", "--json")) == {0: (4, 0), 1: (7, 0)}


def test_a_deleted_group_is_gone(run: Run, read: str, group: str) -> None:
    assert run("groups", "delete", group).out == f"deleted {group}\n"
    assert run("groups", "delete", group, fails=True).sentence() == f"there is no group '{group}'"
    assert "GROUP_ID_NOT_FOUND" in run("groups", "describe", group, fails=True).sentence()


class Members:
    """Two consumers of one group at work."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.address = broker.address
        self._consumers = [self._consumer(number) for number in range(2)]

    def _consumer(self, number: int) -> confluent_kafka.Consumer:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "billing",
                "client.id": f"worker-{number}",
                "group.instance.id": f"instance-{number}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["orders"])
        return consumer

    def settle(self) -> None:
        """Returns once each has a partition."""

        def both_have_one() -> bool:
            for consumer in self._consumers:
                consumer.poll(0.05)
            return all(len(consumer.assignment()) == 1 for consumer in self._consumers)

        wait_until(both_have_one, "the partitions were not shared out")

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.unsubscribe()
            consumer.close()


@pytest.fixture
def members(start_broker: StartBroker) -> Iterator[Members]:
    broker = start_broker(group_initial_rebalance_delay_ms=0)
    for arguments in (("topics", "create", "orders", "-p", "2"), ("produce", "orders", "a", "b", "--partition", "1")):
        assert run_command(*arguments, HEADRACE_BOOTSTRAP=broker.address).code == 0
    found = Members(broker)
    found.settle()
    yield found
    found.close()


def test_active_members_are_shown_and_keep_a_group_from_being_reset_or_deleted(members: Members) -> None:
    def run(*arguments: str) -> Ran:
        return run_command(*arguments, HEADRACE_BOOTSTRAP=members.address)

    (found,) = run("groups", "describe", "billing", "--json").json
    assert (found["state"], found["protocol_type"]) == ("Stable", "consumer")
    assert re.fullmatch(r"cgp_[0-9a-hjkmnp-tv-z]{26}", found["id"])
    assert found["locator"] == "default/consumer-groups/billing"
    assert found["generation"] >= 1
    assert [(m["client_id"], m["instance_id"], m["host"]) for m in found["members"]] == [
        ("worker-0", "instance-0", "127.0.0.1"),
        ("worker-1", "instance-1", "127.0.0.1"),
    ]
    assert sorted(m["assignment"]["orders"] for m in found["members"]) == [[0], [1]]
    assert sorted(p["member"] for p in found["positions"]) == [1, 2]
    assert found["positions"][1] | {"member": 0} == {
        "topic": "orders", "partition": 1, "position": None, "end": 2, "lag": None, "records": None, "metadata": "",
        "member": 0,
    }  # fmt: skip
    page = run("groups", "describe", "billing").out
    assert found["id"] in page
    assert "instance-0" in page
    assert "#2 worker-1" in page
    assert len(run("groups", "describe", "billing").out.split("\n\n")) == 3

    refused = run("groups", "reset", "billing", "--topic", "orders", "--to", "earliest")
    assert refused.sentence() == "group 'billing' is Stable with 2 active members; stop them first"
    refused = run("groups", "delete", "billing")
    assert refused.sentence() == "group 'billing' has active members; stop them first"


def test_runs_of_partitions_are_written_short() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert ranges([]) == ""

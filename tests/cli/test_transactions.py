"""`headrace transactions`, and what `topics describe` shows of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headrace.cli.main import main
from tests.broker_process import BrokerProcess, free_port, wait_until
from tests.cli.conftest import run_command
from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker

_WAIT_S = 30.0


def run(broker: BrokerProcess, *arguments: str) -> str:
    done = CliRunner().invoke(main, [*arguments, "--bootstrap", broker.address])
    assert done.exit_code == 0, done.output
    return done.output


def shown(broker: BrokerProcess, *arguments: str) -> Any:
    return json.loads(run(broker, *arguments, "--json"))


def test_an_open_transaction_is_listed_described_and_aborted(broker: BrokerProcess, topic: str) -> None:
    administrator = AdminClient({"bootstrap.servers": broker.address})
    administrator.create_topics([NewTopic(topic, 2, 1)])[topic].result(_WAIT_S)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(_WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(_WAIT_S)
    listed = {one["transactional_id"]: one["state"] for one in shown(broker, "transactions", "list")}
    assert listed[topic] == "Ongoing"
    (described,) = shown(broker, "transactions", "describe", topic)
    assert (described["state"], described["partitions"]) == ("Ongoing", {topic: [1]})
    assert [one["first_offset"] for one in described["open"]] == [0]
    (seen,) = shown(broker, "topics", "describe", topic)
    assert [one["producer_id"] for one in seen["open_transactions"]] == [described["producer_id"]]
    assert topic in run(broker, "topics", "describe", topic)
    assert "Ongoing" in run(broker, "transactions", "describe", topic)
    run(broker, "transactions", "abort", topic)
    (described,) = shown(broker, "transactions", "describe", topic)
    assert (described["state"], described["open"]) == ("Empty", [])


def test_no_empty_list_is_given_while_the_leases_are_away(start_broker: StartBroker, tmp_path: Path) -> None:
    with running(ClusterOfServers(tmp_path, replicas=0)) as servers:
        broker = start_broker(redis=servers.url, http_port=free_port(), store_wait_ms=200)
        Producer({"bootstrap.servers": broker.address, "transactional.id": "mover"}).init_transactions(20)
        servers.owner_of_key("headrace:{nodes}").kill()
        page = f"http://127.0.0.1:{broker.settings['http_port']}/metrics"
        wait_until(lambda: bool(re.search(rb"\nheadrace_lease_valid\S* 0", urlopen(page).read())), "the lease goes on")
        ran = run_command("transactions", "list", "--bootstrap", broker.address, "--timeout", 3)
    assert ("mover" in ran.out) or (ran.code, ran.out) == (1, "")


def test_what_hangs_in_a_partition_is_ended_without_its_id(broker: BrokerProcess, topic: str) -> None:
    administrator = AdminClient({"bootstrap.servers": broker.address})
    administrator.create_topics([NewTopic(topic, 1, 1)])[topic].result(_WAIT_S)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(_WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(_WAIT_S)
    assert "aborted" in run(broker, "transactions", "abort", "--partition", f"{topic}:0")
    assert "open_transactions" not in shown(broker, "topics", "describe", topic)[0]

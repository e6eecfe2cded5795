"""`headrace serve --nodes N`: one command, several nodes, and nothing left behind however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from signal import Signals
from typing import Any

import pytest

from headrace.client import Admin, BrokerUnreachable, Cluster, Producer, Reader
from headrace.store.embedded.data_directory import are_nodes_left
from headrace.wire.special_times import EARLIEST
from tests.broker_process import BrokerProcess, wait_until
from tests.certificates import Authority
from tests.cli.conftest import Ran, environment, run_command
from tests.clients.adapters import CLIENTS
from tests.clients.client import Sent
from tests.clients.group_member import MEMBERS, Place
from tests.clients.group_process import MemberThread
from tests.conftest import StartBroker, StartRedis
from tests.faults.steady_producer import SteadyProducer
from tests.nodes_process import is_node, kill_node, node_pids, ports_in_a_row, wait_until_gone
from tests.tiered import BROKER, TieredTopic, value_of

NODES = 3
PARTITIONS = 36
"""So many that no node is left without one, whatever the hashes say: less than once in a million topics."""
QUICK = {"group_initial_rebalance_delay_ms": 0, "node_lease_ms": 2_000}
MEMBER: dict[str, Any] = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200, "enable.auto.commit": False}
SERVE = [sys.executable, "-c", "from headrace.cli.main import main; main()", "serve"]


@pytest.fixture(params=["embedded", "external"])
def store(request: pytest.FixtureRequest, start_redis: StartRedis) -> dict[str, Any]:
    """The setting that names the store."""
    return {"redis": start_redis().url} if request.param == "external" else {}


def nodes_of(address: str) -> dict[int, int]:
    """Node -> port, as the node at an address has it; none while it is down."""
    with contextlib.suppress(BrokerUnreachable), Cluster(address) as cluster:
        return {node.node_id: node.port for node in Admin(cluster).describe_cluster().nodes}
    return {}


def know_each_other(broker: BrokerProcess, nodes: int = NODES) -> None:
    """Returns once every node has all of them in its metadata."""
    expected = {number: broker.port + number for number in range(nodes)}

    def all_know() -> bool:
        return all(nodes_of(f"127.0.0.1:{port}") == expected for port in expected.values())

    wait_until(all_know, "the nodes do not know each other")


def start_nodes(start_broker: StartBroker, nodes: int = NODES, **settings: Any) -> BrokerProcess:
    broker = start_broker(nodes=nodes, **({"port": ports_in_a_row(nodes)} | QUICK | settings))
    know_each_other(broker, nodes)
    return broker


def make_topic(broker: BrokerProcess, topic: str, kind: str = "log") -> None:
    with Cluster(broker.address) as cluster:
        Admin(cluster).create_topic(topic, PARTITIONS, {"headrace.format": kind})


def leaders_of(address: str, topic: str) -> set[int]:
    with Cluster(address) as cluster:
        return {partition.leader for partition in Admin(cluster).describe_topic(topic).partitions}


def produce(broker: BrokerProcess, topic: str, *values: bytes) -> None:
    with Cluster(broker.address) as cluster, Producer(cluster) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % PARTITIONS)


def values_of(broker: BrokerProcess, topic: str) -> set[bytes | None]:
    with Cluster(broker.address) as cluster:
        starts = {(topic, partition): EARLIEST for partition in range(PARTITIONS)}
        return {record.value for _, _, record in Reader(cluster).read(starts)}


def logged(broker: BrokerProcess, message: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in broker.log.splitlines() if line.startswith("{"))
    return [line for line in lines if line["message"] == message]


@pytest.mark.parametrize("kind", ["log", "stream"])
def test_clients_produce_and_consume_in_groups_over_all_nodes(
    start_broker: StartBroker, store: dict[str, Any], topic: str, group: str, kind: str
) -> None:
    broker = start_nodes(start_broker, **store)
    make_topic(broker, topic, kind)
    assert all(leaders_of(f"127.0.0.1:{broker.port + number}", topic) == {0, 1, 2} for number in range(NODES))
    places = set()
    for client in CLIENTS:
        records = [Sent(partition, b"key", client.name.encode()) for partition in range(PARTITIONS)]
        offsets = client.produce(broker.address, topic, records, {})
        places |= {Place(record.partition, offset) for record, offset in zip(records, offsets, strict=True)}
    members = [MemberThread(name, broker.address, group, topic, MEMBER, commits=True) for name in MEMBERS]
    try:
        wait_until(lambda: {p for m in members for p in m.processed} == places, "not all is read", timeout_s=60)
    finally:
        for member in members:
            member.ask_to_stop()
        for member in members:
            member.stop()
    assert broker.stop() == 0


def test_a_node_that_is_killed_comes_back_and_clients_go_on(
    start_broker: StartBroker, store: dict[str, Any], topic: str
) -> None:
    broker = start_nodes(start_broker, **store)
    make_topic(broker, topic)
    with SteadyProducer(broker.address, topic, PARTITIONS) as producer:
        for _ in range(NODES):
            kill_node(broker)  # the oldest: after three times it was each one's turn
            producer.goes_on()
            know_each_other(broker)
    producer.check(broker.address)
    ended = logged(broker, "a node exited; restarting it")
    assert sorted(line["node"] for line in ended) == [0, 1, 2]
    assert {line["why"] for line in ended} == {"signal 9"}
    assert broker.stop() == 0


def test_the_pause_before_a_new_start_grows(start_broker: StartBroker) -> None:
    broker = start_nodes(start_broker, 2)
    for _ in range(4):
        kill_node(broker, index=-1)  # the newest: always the same node
    pauses = [line["pause_s"] for line in logged(broker, "a node exited; restarting it")]
    assert pauses == [0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize("number", [Signals.SIGTERM, Signals.SIGINT, Signals.SIGHUP])
def test_all_stop_in_order_at_a_signal(start_broker: StartBroker, number: Signals, topic: str) -> None:
    broker = start_nodes(start_broker)
    pids, valkey = node_pids(broker), broker.valkey_pid
    assert len(pids) == NODES
    make_topic(broker, topic)
    produce(broker, topic, b"one", b"two")
    broker.send_signal(number)
    assert broker.wait() == 0
    assert not any(is_node(pid) for pid in pids)
    assert not Path(f"/proc/{valkey}").exists()
    assert {line["node"] for line in logged(broker, "stopping") if "node" in line} == {0, 1, 2}
    assert "without a farewell" not in broker.log  # the store went last


def test_a_signal_while_nodes_are_starting_stops_all_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [*SERVE, "--nodes=3", "--port=0", f"--data-dir={data}"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as starting,
    ):
        wait_until((data / "nodes").exists, "the store does not start")
        starting.terminate()
    assert starting.returncode == 0
    assert '"error"' not in (tmp_path / "log").read_text()
    assert not (data / "valkey.json").exists()  # the store was stopped, and so were the nodes that hold the lock
    assert not are_nodes_left(data)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_certificate_that_is_renewed_while_nodes_are_starting_stops_nothing(nodes: int, tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path / "certificates").sign("broker")
    data, out = tmp_path / "data", tmp_path / "out"
    tls = ["--listen=a=SSL://127.0.0.1:0", f"--tls-cert={certificate}", f"--tls-key={key}"]
    command = [*SERVE, f"--nodes={nodes}", *tls, f"--data-dir={data}"]
    with (
        out.open("w") as stdout,
        subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True) as starting,
    ):

        def ended_or_ready() -> bool:
            starting.send_signal(Signals.SIGHUP)
            return starting.poll() is not None or "headrace ready" in out.read_text()

        wait_until(lambda: starting.poll() is not None or (data / "valkey.json").exists(), "the store does not start")
        wait_until(ended_or_ready, "it is not ready")
        starting.terminate()
        assert "Error" not in starting.communicate()[1]
    assert "headrace ready" in out.read_text()
    assert starting.returncode == 0


def test_nothing_serves_on_behind_a_killed_supervisor_and_the_next_takes_over(
    start_broker: StartBroker, store: dict[str, Any], topic: str
) -> None:
    broker = start_nodes(start_broker, **store)
    make_topic(broker, topic)
    produce(broker, topic, b"one", b"two")
    pids, valkey = node_pids(broker), None if store else broker.valkey_pid
    broker.kill()
    if store:
        wait_until_gone(pids)
    broker.start()  # with a directory of its own it waits for the nodes that are stopping
    assert not any(is_node(pid) for pid in pids)
    assert valkey is None or broker.valkey_pid == valkey
    assert len(logged(broker, "the supervisor is gone; stopping")) == NODES
    know_each_other(broker)
    assert values_of(broker, topic) == {b"one", b"two"}
    assert broker.stop() == 0


def test_a_new_start_waits_for_nodes_that_are_still_stopping(start_broker: StartBroker, topic: str) -> None:
    broker = start_nodes(start_broker)
    make_topic(broker, topic)
    pids = node_pids(broker)
    os.kill(pids[0], Signals.SIGSTOP)  # it cannot notice that its supervisor is gone
    broker.kill()
    flags = [f"--data-dir={broker.data_dir}", f"--port={broker.port}", "--node-id=7"]
    with subprocess.Popen([*SERVE, *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as single:
        try:
            wait_until_gone(pids[1:])
            assert is_node(pids[0])
            os.kill(pids[0], Signals.SIGCONT)
            assert single.stdout is not None
            assert single.stdout.readline() == f"headrace ready on {broker.address}\n"
            assert not is_node(pids[0])
        finally:
            single.terminate()
    assert single.returncode == 0


def test_a_store_that_dies_is_started_again_for_all_nodes(start_broker: StartBroker, topic: str) -> None:
    broker = start_nodes(start_broker, durability="always")
    make_topic(broker, topic)
    produce(broker, topic, b"before")
    os.kill(broker.valkey_pid, Signals.SIGKILL)
    produce(broker, topic, b"before", b"after")
    assert values_of(broker, topic) == {b"before", b"after"}


def test_a_data_directory_opens_with_another_number_of_nodes(start_broker: StartBroker, topic: str) -> None:
    broker = start_nodes(start_broker)
    make_topic(broker, topic)
    produce(broker, topic, b"three")
    written = {b"three"}
    for nodes in (1, 2, 3):
        assert broker.stop() == 0
        broker.settings["nodes"] = nodes
        broker.start()
        know_each_other(broker, nodes)
        assert values_of(broker, topic) == written
        produce(broker, topic, b"%d" % nodes)
        written.add(b"%d" % nodes)
        assert len(node_pids(broker)) == (nodes if nodes > 1 else 0)


@pytest.mark.parametrize("flag", ["port", "http-port"])
def test_a_port_of_the_range_that_is_taken_is_one_sentence(tmp_path: Path, flag: str) -> None:
    first = ports_in_a_row(NODES)
    other = ports_in_a_row(NODES)
    with socket.create_server(("127.0.0.1", first + 1)):
        ports = ["--port", str(other), "--http-port", str(first)] if flag == "http-port" else ["--port", str(first)]
        ran = run_to_end("--nodes", str(NODES), "--data-dir", str(tmp_path / "data"), "--no-console", *ports)
    assert re.match(
        rf"cannot listen on 127.0.0.1:{first + 1}: Address already in use; choose another with --{flag}", ran.sentence()
    )
    assert not (tmp_path / "data").exists()


def test_a_node_that_cannot_start_ends_all_with_its_sentence(
    start_broker: StartBroker, start_redis: StartRedis
) -> None:
    url = start_redis().url
    other = start_broker(redis=url, node_id=1)
    ran = run_to_end("--nodes", str(NODES), "--port", str(ports_in_a_row(NODES)), "--redis", url)
    assert ran.sentence().startswith(f"node id 1 is in use by a broker at {other.address}")
    wait_until(lambda: nodes_of(other.address) == {1: other.port}, "the other nodes did not leave")


def run_to_end(*flags: str) -> Ran:
    """`headrace serve` that does not get far."""
    done = subprocess.run([*SERVE, *flags], capture_output=True, text=True, timeout=60, env=environment())
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    return Ran(done.returncode, done.stdout, "".join(f"{line}\n" for line in lines))


def test_nodes_take_free_ports_and_ids_where_none_are_named(start_broker: StartBroker, start_redis: StartRedis) -> None:
    url = start_redis().url
    other = start_broker(redis=url)
    broker = start_broker(redis=url, nodes=2, node_id=-1)
    wait_until(lambda: set(nodes_of(broker.address)) == {0, 1, 2}, "the nodes do not know each other")
    found = nodes_of(broker.address)
    assert found[0] == other.port
    assert broker.port in found.values()
    assert len(set(found.values())) == 3
    assert {line["node"] for line in logged(broker, "stopping")} == set()
    assert broker.stop() == 0
    assert {line["node"] for line in logged(broker, "stopping") if "node" in line} == {1, 2}


def test_each_node_has_its_health_page_and_its_advertised_port(start_broker: StartBroker, tmp_path: Path) -> None:
    http_port, port = ports_in_a_row(2), ports_in_a_row(2)
    broker = start_nodes(start_broker, 2, port=port, http_port=http_port, advertised=f"127.0.0.1:{port}")
    given = ["--nodes", 2, "--port", port, "--http-port", http_port, "--no-console", "--data-dir", broker.data_dir]
    found = {row["check"]: row for row in run_command("doctor", "--json", *given).json}
    for at in (0, 1):
        assert found[f"health on port {http_port + at}"]["found"] == "the node is ready"
        assert "a broker answers there" in found[f"port {port + at}"]["found"]


def test_one_node_is_this_process_alone(start_broker: StartBroker) -> None:
    broker = start_broker(nodes=1)
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    assert children == [str(broker.valkey_pid)]
    assert not (broker.data_dir / "nodes").exists()


def test_every_node_reads_the_lake(start_broker: StartBroker, tmp_path: Path, topic: str) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    broker = start_nodes(start_broker, 2, lake=lake, **BROKER)
    tiered = TieredTopic(broker, lake, topic, partitions=20)
    tiered.fill(200)
    assert leaders_of(broker.address, topic) == {0, 1}
    with Cluster(broker.address) as cluster:
        starts = {(topic, partition): EARLIEST for partition in tiered.partitions}
        read = sorted((partition, record.value or b"") for _, partition, record in Reader(cluster).read(starts))
    assert read == sorted((partition, value_of(number)) for partition in tiered.partitions for number in range(200))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--nodes", "0"], "from 1 to 256"),
        (["--nodes", "2", "--port", "65535"], "--port 65535 with --nodes 2"),
        (["--nodes", "2", "--http-port", "65535"], "--http-port 65535 with --nodes 2"),
        (["--nodes", "9", "--advertised", "here:65530"], "--advertised 65530 with --nodes 9"),
        (["--nodes", "2", "--node-id", "2147483647"], "--node-id 2147483647 with --nodes 2"),
    ],
)
def test_what_could_not_work_is_refused(flags: list[str], says: str) -> None:
    ran = run_command("serve", *flags)
    assert ran.code == 2
    assert says in ran.err

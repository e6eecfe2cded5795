"""The console as a process beside its broker: what it relays, and whose end ends what."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx

from tests.broker_process import BrokerProcess, free_port, wait_until
from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker
from tests.console.conftest import console_of
from tests.console.test_api import create, get
from tests.metrics.test_openmetrics import openmetrics

API = "/api/v1"


def console_pids(broker: BrokerProcess) -> list[int]:
    found = []
    for pid in Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended since it was listed
            if b"headrace.cli.console.process" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(int(pid))
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_relays_metrics_and_health_of_every_node(start_broker: StartBroker) -> None:
    broker = start_broker(nodes=2, http_port=free_port(), console=True)
    with console_of(broker) as console:
        assert console.get("/health/live").json() == {"live": True}
        assert console.get("/health/ready").json() == {"ready": True}
        page = console.get("/metrics")
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert page.text.count("# TYPE headrace_build_info ") == 1
        nodes = {line.split('node="')[1].split('"')[0] for line in page.text.splitlines() if "build_info{" in line}
        assert len(nodes) == 2
        page = console.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert page.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        families = {family.name: family for family in openmetrics(page.text)}
        assert {sample.labels["node"] for sample in families["process_cpu_seconds"].samples} == nodes
        assert console.get(f"{API}/overview").json()["nodes_here"] == 2
    (pid,) = console_pids(broker)
    assert broker.stop() == 0
    wait_until(lambda: not is_running(pid), "the console outlives its broker")


def test_a_console_that_dies_is_started_again_and_the_broker_goes_on(start_broker: StartBroker) -> None:
    broker = start_broker(http_port=free_port(), console=True)
    with console_of(broker):
        (first,) = console_pids(broker)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: bool(set(console_pids(broker)) - {first}), "no other console was started")
    with console_of(broker) as console:
        assert console.get("/health/ready").status_code == 200
    assert broker.is_running


def test_a_console_goes_with_a_broker_that_is_killed(start_broker: StartBroker) -> None:
    broker = start_broker(http_port=free_port(), console=True)
    with console_of(broker):
        (pid,) = console_pids(broker)
    broker.kill()
    wait_until(lambda: not is_running(pid), "the console outlives its broker")


def test_a_page_that_waits_for_the_store_says_so_and_is_cut_off_without_a_traceback(start_broker: StartBroker) -> None:
    broker = start_broker(http_port=free_port(), console=True)
    with console_of(broker) as console:
        (pid,) = console_pids(broker)
        os.kill(broker.valkey_pid, signal.SIGSTOP)
        try:
            page = console.get(f"{API}/groups", timeout=30)
            with socket.create_connection(("127.0.0.1", int(str(broker.settings["http_port"])))) as line:
                line.sendall(f"GET {API}/groups HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                os.kill(pid, signal.SIGTERM)
                wait_until(lambda: not is_running(pid), "the console waits for the store")
        finally:
            os.kill(broker.valkey_pid, signal.SIGCONT)
    assert (page.status_code, page.json()["error"]) == (503, "No coordinator is available now.")
    assert "Traceback" not in broker.log
    assert "uvicorn" not in broker.log


def test_topics_are_shown_while_a_shard_is_away(start_broker: StartBroker, tmp_path: Path) -> None:
    with running(ClusterOfServers(tmp_path, replicas=0)) as servers:
        broker = start_broker(redis=servers.url, http_port=free_port(), console=True, store_wait_ms=200)
        with console_of(broker) as console:
            create(console, "wide", 64)
            kept = [servers.owner_of_key(key) for key in ("headrace:{nodes}", "headrace:default:{topics}")]
            next(server for server in servers.servers if server not in kept).kill()
            [listed] = get(console, "/topics")["topics"]
            shown = get(console, "/topics/wide")
    assert (listed["name"], listed["records"], shown["records"]) == ("wide", None, None)
    assert {partition["end"] for partition in shown["partitions"]} == {"0", "-1"}


def test_a_node_that_hangs_is_503_within_the_deadline(start_broker: StartBroker) -> None:
    broker = start_broker(http_port=free_port(), console=True)
    with console_of(broker) as console:
        broker.send_signal(signal.SIGSTOP)
        try:
            answer = console.get("/health/ready", timeout=10)
            assert answer.status_code == 503
            assert answer.json()["missing"] == {"node": "does not answer"}
        finally:
            broker.send_signal(signal.SIGCONT)


def test_a_console_apart_shows_a_cluster(broker: BrokerProcess) -> None:
    command = [sys.executable, "-c", "from headrace.cli.main import main; main()", "console"]
    port = free_port()
    process = subprocess.Popen([*command, "--bootstrap", broker.address, "--http-port", str(port), "--read-only"])
    try:

        def answers() -> bool:
            try:
                return httpx.get(f"http://127.0.0.1:{port}{API}/overview").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(answers, "the console does not answer")
        session = httpx.get(f"http://127.0.0.1:{port}{API}/session").json()
        assert (session["read_only"], session["has_nodes"]) == (True, False)
        assert httpx.get(f"http://127.0.0.1:{port}/metrics").status_code == 404
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)

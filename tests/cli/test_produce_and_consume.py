"""`headrace produce` and `headrace consume`, against a broker."""

from __future__ import annotations

import base64
import subprocess
import time
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals

import pytest

from tests.broker_process import BrokerProcess
from tests.cli.conftest import COMMAND, TIMEOUT_S, Run, environment, run_command


def start(broker: BrokerProcess, *arguments: str) -> subprocess.Popen[bytes]:
    """A command that goes on while the test looks at it."""
    environ = environment(HEADRACE_BOOTSTRAP=broker.address)
    command = [*COMMAND, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ)


def test_a_record_comes_back_with_key_headers_time_partition_and_offset(run: Run, topic: str) -> None:
    run("topics", "create", topic, "-p", 3, "-c", "retention.ms=-1")
    sent = run(
        "produce", topic, "lamp", "--key", "alice", "-H", "trace=7f3", "-H", "empty=", "--partition", 2,
        "--timestamp", "2026-05-01T10:00:00Z", "--json",
    )  # fmt: skip
    assert sent.json_lines == [{"topic": topic, "partition": 2, "offset": 0}]
    (record,) = run("consume", topic, "--json").json_lines
    assert record == {
        "topic": topic,
        "partition": 2,
        "offset": 0,
        "timestamp": 1777629600000,
        "key": "alice",
        "value": "lamp",
        "headers": [{"name": "trace", "value": "7f3"}, {"name": "empty", "value": ""}],
    }
    full = run("consume", topic, "--show", "full").out
    assert full == f"{topic}-2 @0  2026-05-01T10:00:00.000Z  key alice  trace=7f3  empty=\nlamp\n"


def test_bytes_that_are_no_text_come_as_base64_and_unchanged_through_a_pipe(
    run: Run, topic: str, tmp_path: Path
) -> None:
    content = bytes(range(256))
    (tmp_path / "blob").write_bytes(content)
    run("produce", topic, "--whole", "--file", tmp_path / "blob", "--compression", "zstd")
    (record,) = run("consume", topic, "--json").json_lines
    assert base64.b64decode(record["value_base64"]) == content
    assert "value" not in record


def test_lines_of_standard_input_are_records(run: Run, topic: str) -> None:
    assert run("produce", topic, stdin="one\ntwo\r\n\nlast").out == f"sent 4 records to {topic}\n"
    assert run("consume", topic).out == "one\ntwo\n\nlast\n"


def test_keys_are_split_from_values(run: Run, topic: str) -> None:
    run("produce", topic, "--key-separator", ":", stdin="alice:1\nbob:2:3\n")
    assert [(r["key"], r["value"]) for r in run("consume", topic, "--json").json_lines] == [
        ("alice", "1"),
        ("bob", "2:3"),
    ]
    bad = run("produce", topic, "--key-separator", ":", stdin="carol:4\nnobody\n", fails=True)
    assert bad.sentence() == "record 2 has no key separator ':'"
    assert run("consume", topic).out.splitlines() == ["1", "2:3", "4"]


def test_a_tombstone_has_a_key_and_no_value(run: Run, topic: str) -> None:
    run("produce", topic, "--key", "alice", "--null")
    (record,) = run("consume", topic, "--json").json_lines
    assert (record["key"], record["value"]) == ("alice", None)
    assert run("consume", topic, "--show", "full").out.endswith("key alice\nnull\n")


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_many_compressed_records_come_back_in_order(run: Run, topic: str, compression: str) -> None:
    lines = "".join(f"record {number}\n" for number in range(20_000))
    run("produce", topic, "--compression", compression, stdin=lines)
    assert run("consume", topic).out == lines


@pytest.mark.parametrize(("acks", "shown"), [("all", "offset 0"), ("1", "offset 0"), ("0", "offset unknown")])
def test_where_a_record_went_is_printed_on_request(run: Run, topic: str, acks: str, shown: str) -> None:
    run("topics", "create", topic)
    assert run("produce", topic, "x", "--acks", acks, "--offsets").out == f"{topic} partition 0 {shown}\n"


@pytest.mark.parametrize(
    ("where", "values"),
    [
        ("earliest", ["0", "1", "2", "3", "4"]),
        ("latest", []),
        ("3", ["3", "4"]),
        ("99", []),
        ("-2", ["3", "4"]),
        ("2026-01-03", ["2", "3", "4"]),
        ("2026-01-03T00:00:00.001Z", ["3", "4"]),
        ("@1767398400000", ["2", "3", "4"]),
        ("1h", []),
    ],
)
def test_reading_begins_where_it_is_told(run: Run, days: str, where: str, values: list[str]) -> None:
    assert run("consume", days, "--from", where).out.split() == values


@pytest.fixture(scope="module")
def days(broker: BrokerProcess) -> str:
    """A topic with a record for each of the first five days of 2026."""

    def run(*arguments: object) -> None:
        assert run_command(*arguments, HEADRACE_BOOTSTRAP=broker.address).code == 0

    run("topics", "create", "days", "-c", "retention.ms=-1")
    for day in range(5):
        run("produce", "days", day, "--timestamp", f"2026-01-0{day + 1}")
    return "days"


def test_reading_can_be_limited_to_partitions_and_to_a_number(run: Run, topic: str) -> None:
    run("topics", "create", topic, "-p", 2)
    run("produce", topic, "a", "b", "c", "--partition", 0)
    run("produce", topic, "d", "--partition", 1)
    assert run("consume", topic, "--partition", 1).out == "d\n"
    assert run("consume", topic, "--partition", 0, "--max", 2).out == "a\nb\n"
    bad = run("consume", topic, "--partition", 7, fails=True).sentence()
    assert bad == f"{topic} has no partition 7; it has 0 to 1"


def test_control_characters_are_shown_and_not_obeyed_on_a_terminal(run: Run, topic: str) -> None:
    run("produce", topic, "red \x1b[31m alert", "--key", "two\nlines")
    assert run("consume", topic, "--show", "full").out.endswith("key two\\x0alines\nred \\x1b[31m alert\n")
    assert run("consume", topic).out == "red \x1b[31m alert\n"


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_following_shows_records_as_they_come_until_it_is_interrupted(
    run: Run, broker: BrokerProcess, topic: str, number: Signals
) -> None:
    run("produce", topic, "before")
    with start(broker, "consume", topic, "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"before\n"
        run("produce", topic, "after")
        assert process.stdout.readline() == b"after\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_following_ends_after_the_number_asked_for(run: Run, broker: BrokerProcess, topic: str) -> None:
    run("topics", "create", topic)
    with start(broker, "consume", topic, "--follow", "--max", "2") as process:
        run("produce", topic, "a", "b", "c")
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (0, b"a\nb\n")


def test_a_reader_that_has_enough_is_no_error(run: Run, broker: BrokerProcess, topic: str) -> None:
    run("produce", topic, stdin="x" * 100 + "\n" + "y\n" * 200_000)
    with start(broker, "consume", topic) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr.read() == b""


def test_a_line_is_sent_when_it_is_written_and_not_when_the_input_ends(
    run: Run, broker: BrokerProcess, topic: str
) -> None:
    with start(broker, "produce", topic, "--offsets") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(b"line\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{topic} partition 0 offset {number}\n".encode()
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
    assert run("consume", topic).out == "line\n" * 3


def test_without_a_timestamp_a_record_has_the_time_of_its_sending(run: Run, topic: str) -> None:
    before = time.time_ns() // 1_000_000
    run("produce", topic, "x")
    after = time.time_ns() // 1_000_000
    (record,) = run("consume", topic, "--json").json_lines
    assert before <= record["timestamp"] <= after


def test_options_that_contradict_each_other_are_usage_errors(run: Run, topic: str, tmp_path: Path) -> None:
    for arguments, said in (
        (["v", "--file", "f"], "values or --file"),
        (["v", "--whole"], "--whole is for"),
        (["v", "--null"], "without a value"),
        (["v", "--key", "k", "--key-separator", ":"], "not both"),
        (["v", "--header", "h"], "NAME=VALUE"),
        (["v", "--timestamp", "noon"], "noon"),
    ):
        assert said in run("produce", topic, *arguments, fails=True).sentence(2)
    assert "yesterday" in run("consume", topic, "--from", "yesterday", fails=True).sentence(2)
    assert "No such file" in run("produce", topic, "--file", tmp_path / "none", fails=True).sentence()


def test_a_record_that_is_too_large_and_a_partition_that_is_not_there_are_sentences(run: Run, topic: str) -> None:
    run("topics", "create", topic, "-c", "max.message.bytes=1000")
    assert "MESSAGE_TOO_LARGE" in run("produce", topic, "x" * 2000, fails=True).sentence()
    assert "no partition 5" in run("produce", topic, "x", "--partition", 5, fails=True).sentence()
    assert "There is no topic" in run("consume", f"{topic}-none", fails=True).sentence()

"""Logs: one event is one record, readable on a terminal, JSON elsewhere, and nobody can forge a line."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from headrace.cli.logs import LogFormat, set_up_logs

log = logging.getLogger("headrace.test")

PLAIN = {"NO_COLOR": "1"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, logging.logThreads, logging.logProcesses, logging.logMultiprocessing)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = before[2:]
    logging.captureWarnings(False)


def terminal(log_format: LogFormat = "auto", environ: Mapping[str, str] = MappingProxyType({})) -> Terminal:
    stream = Terminal()
    set_up_logs("info", log_format, stream=stream, environ=environ)
    return stream


def pipe(level: str = "info", log_format: LogFormat = "auto") -> io.StringIO:
    stream = io.StringIO()
    set_up_logs(level, log_format, stream=stream, environ={})
    return stream


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail() -> None:
    raise ValueError("no such\nthing")


# For people.


def test_a_terminal_gets_time_level_message_and_fields() -> None:
    stream = terminal(environ=PLAIN)
    log.info("ready on %s", "localhost", extra={"port": 9092, "client": "my client", "empty": ""})
    line = stream.getvalue()
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d\.\d{3} INFO  ready on localhost  port=9092 client="my client" empty=""\n', line
    )


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colours_are_for_terminals_that_want_them(environ: dict[str, str], coloured: bool) -> None:
    stream = terminal(environ=environ)
    log.error("no")
    assert ("\x1b[" in stream.getvalue()) is coloured


def test_text_that_goes_elsewhere_has_no_colours() -> None:
    stream = pipe(log_format="text")
    log.error("no")
    assert "\x1b" not in stream.getvalue()


def test_a_traceback_is_indented_below_its_record() -> None:
    stream = terminal(environ=PLAIN)
    try:
        fail()
    except ValueError:
        log.exception("a request failed", extra={"api": "Produce"})
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("ERROR a request failed  api=Produce")
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in rest)


def test_what_a_client_sent_cannot_forge_a_line_or_drive_the_terminal() -> None:
    stream = terminal(environ=PLAIN)
    log.info("topic %s", "a\n12:00:00.000 INFO  forged\x1b[2J", extra={"client": "x\r\ny\u2028\x9b"})
    text = stream.getvalue()
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert r"a\n12:00:00.000 INFO  forged\x1b[2J" in text


# For machines.


def test_elsewhere_each_record_is_one_json_object_with_its_fields() -> None:
    stream = pipe()
    log.warning("slow", extra={"took_ms": 5, "topic": "tøpic\n", "level": "mine"})
    (line,) = objects(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "warning",
        "logger": "headrace.test",
        "message": "slow",
        "took_ms": 5,
        "topic": "tøpic\n",
        "level_": "mine",
    }


def test_an_exception_is_part_of_its_record() -> None:
    stream = pipe()
    try:
        fail()
    except ValueError:
        log.exception("a request failed")
    (line,) = objects(stream)
    assert line["exception"] == "ValueError: no such\nthing"
    assert "in fail" in line["traceback"]


def test_any_value_can_be_logged() -> None:
    stream = pipe()
    values = {
        "b": b"\xff",
        "s": {1},
        "n": float("nan"),
        "d": {(1, 2): [None, object]},
        "u": "\ud800",
        "e": KeyError("k"),
    }
    log.info("odd", extra=values)
    (line,) = objects(stream)
    assert (line["n"], line["s"], line["b"]) == ("nan", "{1}", "b'\\xff'")
    text = terminal(environ=PLAIN)
    log.info("odd \ud800", extra=values)
    text.getvalue().encode()


# Both.


def test_the_format_can_be_chosen() -> None:
    stream = terminal(log_format="json")
    log.info("x")
    assert objects(stream)[0]["message"] == "x"
    text = pipe(log_format="text")
    log.info("x")
    assert text.getvalue().endswith("INFO  x\n")


def test_what_lies_below_the_level_is_not_logged_and_nothing_is_logged_twice() -> None:
    pipe()
    stream = pipe("warning")
    log.info("no")
    log.warning("yes")
    assert [line["message"] for line in objects(stream)] == ["yes"]


def test_warnings_of_python_are_records_too() -> None:
    stream = pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        set_up_logs(stream=stream, environ={})
        warnings.warn("careful", stacklevel=1)
    assert "careful" in objects(stream)[0]["message"]


def test_setting_up_logs_loads_nothing_heavy() -> None:
    code = "import sys, headrace.cli.logs; sys.exit(bool({'rich', 'click', 'msgspec', 'asyncio'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

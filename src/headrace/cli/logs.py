"""Logs: lines for people on a terminal, JSON lines elsewhere; one event is one record, its exception included.

Only the standard library is used, because `serve` loads this first. Messages may contain text from clients (a topic, a
client id), so control characters are escaped: nobody can forge a line.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

LogFormat = Literal["auto", "text", "json"]

_OWN = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_COLOURS = {
    logging.DEBUG: "2",
    logging.INFO: "32",
    logging.WARNING: "33",
    logging.ERROR: "31",
    logging.CRITICAL: "1;31",
}
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROL |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_CONTROL_IN_TRACE = {code: shown for code, shown in _CONTROL.items() if code not in (ord("\n"), ord("\t"))}


def set_up_logs(
    level: str = "info",
    log_format: LogFormat = "auto",
    *,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
    labels: Mapping[str, Any] | None = None,
) -> None:
    """Sends every logger's records of that level and above to the stream (default: stderr)."""
    stream = stream or sys.stderr
    terminal = stream.isatty()
    formatter: logging.Formatter
    if log_format == "json" or (log_format == "auto" and not terminal):
        formatter = JsonLines()
    else:
        colours = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        formatter = TextLines(colours=colours)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    if labels is not None:
        handler.addFilter(_labelled(labels))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    # Not shown in any line; collecting them would slow down each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _labelled(labels: Mapping[str, Any]) -> Callable[[logging.LogRecord], bool]:
    """Adds the current labels to each record, unless it has its own values."""

    def label(record: logging.LogRecord) -> bool:
        for name, value in labels.items():
            record.__dict__.setdefault(name, value)
        return True

    return label


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields passed as `extra`."""
    return {name: value for name, value in record.__dict__.items() if name not in _OWN}


class TextLines(logging.Formatter):
    """`12:30:01.250 INFO  message  key=value`, and a traceback on indented lines below."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        name = _NAMES.get(record.levelname, record.levelname)
        line = (
            f"{self._paint('2', f'{clock}.{int(record.msecs):03d}')} "
            f"{self._paint(_COLOURS.get(record.levelno, '0'), f'{name:5}')} "
            f"{_one_line(record.getMessage())}"
        )
        fields = " ".join(f"{self._paint('2', _one_line(k) + '=')}{_value(v)}" for k, v in extra_fields(record).items())
        if fields:
            line += f"  {fields}"
        for trace in self._traces(record):
            shown = trace.encode(errors="backslashreplace").decode().translate(_CONTROL_IN_TRACE)
            line += "".join(f"\n    {part}" for part in shown.splitlines())
        return line

    def _traces(self, record: logging.LogRecord) -> list[str]:
        traces = []
        if record.exc_info and record.exc_info[0] is not None:
            traces.append(self.formatException(record.exc_info))
        if record.stack_info:
            traces.append(record.stack_info)
        return traces

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields, and an exception with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["exception"] = f"{type(error).__name__}: {error}"
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        for name, value in extra_fields(record).items():
            line[f"{name}_" if name in line else name] = _plain(value)
        return json.dumps(line)


def _plain(value: Any) -> Any:
    """Any logged value as something JSON can represent."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return str(value)


def _one_line(text: str) -> str:
    """Text on one line, in characters that every terminal's encoding can represent."""
    return text.encode(errors="backslashreplace").decode().translate(_CONTROL)


def _value(value: Any) -> str:
    text = _one_line(str(value))
    return json.dumps(text, ensure_ascii=False) if not text or any(c in ' "=' for c in text) else text

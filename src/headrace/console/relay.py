"""Relays metrics and health of this machine's nodes from their private sockets, each with a deadline.

For a node that does not answer in time, the console answers 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from headrace.metrics.formats import TextFormat
from headrace.metrics.text import END_OF_OPENMETRICS

DEADLINE_S = 3.0
_ANSWER_MAX_BYTES = 64 << 20
_NODE = "node"
"""What is missing if nothing came of a node."""


class NodeAnswer(NamedTuple):
    """A node's response; status 503 without a body if there was none."""

    status: int
    body: bytes


class Page(NamedTuple):
    """The console's response on behalf of the nodes."""

    status: int
    body: bytes
    content_type: str


async def ask_node(socket_path: str, path: str, accept: str = "*/*", deadline_s: float = DEADLINE_S) -> NodeAnswer:
    """One GET on a node's socket."""
    request = f"GET {path} HTTP/1.1\r\nHost: node\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(deadline_s):
            reader, writer = await asyncio.open_unix_connection(socket_path)
            try:
                writer.write(request.encode())
                await writer.drain()
                answer = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return NodeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, b"")
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit() or len(answer) > _ANSWER_MAX_BYTES:
        return NodeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, b"")
    return NodeAnswer(int(words[1]), body)


async def ask_all(sockets: Iterable[str], path: str, accept: str = "*/*") -> list[NodeAnswer]:
    return list(await asyncio.gather(*(ask_node(one, path, accept) for one in sockets)))


async def metrics_page(sockets: tuple[str, ...], form: TextFormat) -> Page:
    """The samples of all nodes that answer; 503 if none does."""
    answers = await ask_all(sockets, "/metrics", form.value)
    pages = [answer.body for answer in answers if answer.status == HTTPStatus.OK]
    if not pages:
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "no node answers"})
    body = pages[0] if len(pages) == 1 else await asyncio.to_thread(merged, pages, form)
    return Page(HTTPStatus.OK, body, form.value)


def merged(pages: list[bytes], form: TextFormat) -> bytes:
    """Merges the pages of several nodes: Prometheus wants all samples of a metric together, described once."""
    end = END_OF_OPENMETRICS.encode().rstrip()
    order: dict[bytes, None] = {}
    told: dict[bytes, list[bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for page in pages:
        metric = b""
        for line in page.splitlines():
            if line == end:
                break
            if line.startswith(b"# "):
                metric = line.split(b" ", 3)[2]
                order[metric] = None
                if line not in (lines := told.setdefault(metric, [])):
                    lines.append(line)
            elif line:
                samples.setdefault(metric, []).append(line)
    rows = [line for metric in order for line in (*told[metric], *samples.get(metric, ()))]
    if form is TextFormat.OPENMETRICS:
        rows.append(end)
    return b"\n".join([*rows, b""])


async def health_page(sockets: tuple[str, ...], path: str, first_id: int) -> Page:
    """One node's own response; for several, whether all are healthy, and the details of each.

    They are called as in metadata and logs; those that chose their ids themselves are counted.
    """
    answers = await ask_all(sockets, path)
    well = all(answer.status == HTTPStatus.OK for answer in answers)
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    kind = path.rpartition("/")[2]
    said = [_words(answer, kind) for answer in answers]
    if len(said) == 1:
        return _json(status, said[0])
    missing: dict[str, str] = {}
    for index, words in enumerate(said):
        name = f"node {first_id + index}" if first_id >= 0 else f"process {index + 1} of {len(said)}"
        lacks = words.get("missing", {})
        missing |= {name if what == _NODE else f"{name}: {what}": why for what, why in lacks.items()}
    return _json(status, {kind: well, **({"missing": missing} if missing else {})})


def _words(answer: NodeAnswer, kind: str) -> dict[str, dict[str, str]]:
    try:
        return msgspec.json.decode(answer.body, type=dict)
    except msgspec.DecodeError:
        return msgspec.convert({kind: False, "missing": {_NODE: "does not answer"}}, type=dict)


def _json(status: HTTPStatus, content: object) -> Page:
    return Page(status.value, msgspec.json.encode(content) + b"\n", "application/json")

"""Whether a run of the embedded server continues the one before: then nothing that was acknowledged is lost.

What a server loads at its start is the beginning of what it was told to write, up to some point. The last write before
an orderly stop, when no node runs any more, is that point: if it is there, so is everything before it. It is removed,
and that is on disk, before anybody uses the next run.
"""

from __future__ import annotations

from typing import Any

import hiredis

from headrace.store.embedded.control import ControlLine
from headrace.store.keys import EMBEDDED


async def stop_run(line: ControlLine) -> None:
    """The last write."""
    await line.call("HSET", EMBEDDED, "closed", await _identity(line))


async def resume_run(line: ControlLine) -> None:
    """The stop is taken back: the server goes on."""
    await line.call("HDEL", EMBEDDED, "closed")


async def begin_run(line: ControlLine, *, is_orderly: bool) -> None:
    """The first write: which run this is, and since which one nothing was lost; for `is_orderly` see the server."""
    closed, run, since = await _checked(line, "HMGET", EMBEDDED, "closed", "run", "since")
    synced = (await line.config("appendfsync")).decode()
    await line.configure({"appendfsync": "always"})
    await _checked(line, "HDEL", EMBEDDED, "closed")
    await line.configure({"appendfsync": synced})
    identity = await _identity(line)
    goes_on = is_orderly and closed is not None and closed == run
    # Refused if the memory is full: then nobody finds this run, and it counts as a new one.
    await line.call("HSET", EMBEDDED, "run", identity, "since", since.decode() if goes_on else identity)


async def _identity(line: ControlLine) -> str:
    """As the store's links know it; a server that still loads its log tells nothing, and takes no write."""
    facts = await line.info("server") | await line.info("replication")
    return f"{facts.get('run_id', '')} {facts.get('master_replid', '')}"


async def _checked(line: ControlLine, *words: str) -> Any:
    reply = await line.call(*words)
    if isinstance(reply, hiredis.ReplyError):
        raise reply
    return reply

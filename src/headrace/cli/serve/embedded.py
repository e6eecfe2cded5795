"""Starts the embedded server for the owner of the data directory: a single broker, or a supervisor."""

from __future__ import annotations

import contextlib

from headrace.cli.settings.table import Settings
from headrace.store.embedded.server import EmbeddedValkey


async def start_embedded(settings: Settings, stack: contextlib.AsyncExitStack) -> str:
    """Starts it and returns its URL; the stack stops it."""
    valkey = EmbeddedValkey(settings.data_dir, durability=settings.durability, maxmemory_bytes=settings.maxmemory_bytes)
    await valkey.start()
    stack.push_async_callback(valkey.stop)
    return valkey.url

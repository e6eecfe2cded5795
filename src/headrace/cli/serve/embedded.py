"""The embedded server as the settings want it, for whoever owns the data directory: a broker alone, or a supervisor."""

from __future__ import annotations

import contextlib

from headrace.cli.settings.table import Settings
from headrace.store.embedded.server import EmbeddedValkey


async def start_embedded(settings: Settings, stack: contextlib.AsyncExitStack) -> str:
    """Starts it, to be stopped with the stack; its URL."""
    valkey = EmbeddedValkey(settings.data_dir, durability=settings.durability, maxmemory_bytes=settings.maxmemory_bytes)
    await valkey.start()
    stack.push_async_callback(valkey.stop)
    return valkey.url

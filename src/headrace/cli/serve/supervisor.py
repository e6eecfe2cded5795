"""Several nodes on one machine: one process per core, and a supervisor that owns what they share.

The supervisor owns the embedded server and the data directory's lock; no client ever talks to it. Nodes are complete
brokers, tied to it only by a socket. When that closes they stop, so no node outlives a killed supervisor, and the next
one finds the data directory as a single killed broker would leave it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path
from typing import Any

import msgspec

from headrace.cli.serve.child import ChildNode
from headrace.cli.serve.console import open_console, say_ready
from headrace.cli.serve.embedded import start_embedded
from headrace.cli.serve.sockets import Listeners
from headrace.cli.settings.layers import listeners_of
from headrace.cli.settings.table import Settings
from headrace.security.listeners import show_address, split_address
from headrace.store.cluster.nodes.nodes import ANY_ID
from headrace.store.embedded.data_directory import CannotStart, lock_nodes
from headrace.store.usable_memory import tail_cache_bytes

log = logging.getLogger(__name__)


async def supervise(settings: Settings, stop: asyncio.Event, admin_password: str) -> None:
    """Serves with several nodes until `stop`; prints the ready line once all accept connections."""
    async with contextlib.AsyncExitStack() as stack:
        console = open_console(settings, stack)
        if console is not None:
            settings = msgspec.structs.replace(settings, http_port=0)  # it has the port, for all nodes
        listeners = [_open(node_settings(settings, index), stack) for index in range(settings.nodes)]
        address = listeners[0].address(settings)
        if console is not None:
            console.start(listeners[0].bound(settings))
        lock = None
        if not settings.redis:
            url = await start_embedded(settings, stack)
            settings = msgspec.structs.replace(settings, redis=url)
            lock = _hold_nodes_lock(settings.data_dir, stack)
        children = [
            ChildNode(
                _with_ports(node_settings(settings, index), one),
                one,
                lock,
                admin_password,
                console.node_socket(index) if console else "",
            )
            for index, one in enumerate(listeners)
        ]
        stack.push_async_callback(_stop_all, children)
        for child in children:
            child.start()
        if settings.tls_cert:
            _pass_on(signal.SIGHUP, children)
        if await _all_ready(children, stop):
            say_ready(address, console)
            await stop.wait()
        log.info("stopping")


def node_settings(settings: Settings, index: int) -> Settings:
    """The settings of one node, with its own ports and ids."""
    changes: dict[str, object] = {
        "nodes": 1,
        "tail_cache_bytes": tail_cache_bytes(settings.tail_cache_bytes, settings.nodes),
    }
    for name, unset in (("port", 0), ("http_port", 0), ("node_id", ANY_ID)):
        if (value := getattr(settings, name)) != unset:
            changes[name] = value + index
    if (advertised := split_address(settings.advertised)) is not None:
        host, port = advertised
        changes["advertised"] = show_address(host, port + index)
    if settings.listen:
        changes["listen"] = tuple(str(listener.counted_up(index)) for listener in listeners_of(settings))
    return msgspec.structs.replace(settings, **changes)


def _with_ports(settings: Settings, listeners: Listeners) -> Settings:
    """The settings with the actual ports, so that a restarted node gets the same ones."""
    bound = listeners.bound(settings)
    if settings.listen:
        return msgspec.structs.replace(settings, listen=tuple(map(str, bound)))
    return msgspec.structs.replace(settings, port=bound[0].port)


def _pass_on(number: signal.Signals, children: list[ChildNode]) -> None:
    """Forwards a signal to the nodes: they hold the certificate."""

    def all_of_them() -> None:
        for child in children:
            child.pass_on(number)

    asyncio.get_running_loop().add_signal_handler(number, all_of_them)


def _open(settings: Settings, stack: contextlib.AsyncExitStack) -> Listeners:
    listeners = Listeners.open(settings)
    stack.callback(listeners.close)
    return listeners


def _hold_nodes_lock(data_dir: Path, stack: contextlib.AsyncExitStack) -> int:
    lock = lock_nodes(data_dir)
    if lock is None:
        raise CannotStart(f"nodes of an earlier broker still run on {data_dir}; start again when they have stopped")
    stack.callback(os.close, lock)
    return lock


async def _all_ready(children: list[ChildNode], stop: asyncio.Event) -> bool:
    """Whether all nodes accept connections before `stop`; raises the error of a node that cannot start."""
    ready = asyncio.gather(*(child.ready for child in children))
    stopped = asyncio.create_task(stop.wait())
    either: list[asyncio.Future[Any]] = [ready, stopped]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
        return ready.done()
    finally:
        for one in either:
            one.cancel()
        await asyncio.gather(*either, return_exceptions=True)  # or asyncio logs that nobody saw the cancellation


async def _stop_all(children: list[ChildNode]) -> None:
    """Stops all at once, so that none takes over from another; the store stops after them."""
    await asyncio.gather(*(child.stop() for child in children))

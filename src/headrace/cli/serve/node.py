"""One node, from start to stop: wires store, broker and servers together, serves, and shuts them down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headrace.broker.broker import Broker
from headrace.broker.handing_over import hand_over
from headrace.broker.http.health import Health
from headrace.broker.http.server import HttpServer
from headrace.broker.metrics.collect import Collector
from headrace.broker.metrics.page import MetricsPage
from headrace.broker.network.server import Server
from headrace.broker.options import AuthorizerMode
from headrace.cli.serve.administrator import ensure_administrator
from headrace.cli.serve.allocation import collect_less
from headrace.cli.serve.embedded import start_embedded
from headrace.cli.serve.lake import open_lake
from headrace.cli.serve.listening import is_loopback
from headrace.cli.serve.sockets import Listeners
from headrace.cli.serve.tls import open_certificates
from headrace.cli.serve.tracing import trace_node
from headrace.cli.settings.rooms import broker_options, group_settings, login_options, store_options
from headrace.cli.settings.table import Settings
from headrace.clock import Clock
from headrace.security.listeners import Listener
from headrace.store.cluster.nodes.endpoints import Endpoint, Node
from headrace.store.embedded.data_directory import CannotStart
from headrace.store.redis.address import parse_address
from headrace.store.store import Store

if TYPE_CHECKING:
    from headrace.broker.network.tls import Certificates

log = logging.getLogger(__name__)


async def serve_node(
    settings: Settings,
    listeners: Listeners,
    stop: asyncio.Event,
    on_ready: Callable[[int], None],
    admin_password: str,
) -> None:
    """Serves until `stop`; calls `on_ready` with the node's id once connections are accepted."""
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listeners.close)
        certificates = open_certificates(settings)
        health, metrics = await _serve_pages(settings, listeners, stack)
        url = settings.redis or await start_embedded(settings, stack)
        bound = listeners.bound(settings)
        endpoints = (Endpoint(one.name, *(one.advertised or (one.host, one.port))) for one in bound)
        node = Node(settings.node_id, tuple(endpoints), settings.rack)
        store = Store(parse_address(url), node, store_options(settings), Clock())
        health.store = store
        await store.start(serves=False)
        stack.push_async_callback(store.close)
        await ensure_administrator(store, settings, admin_password)
        if (cold := open_lake(settings, store.cluster_id)) is not None:
            store.plug_in(cold)
            stack.push_async_callback(cold.close)
        store.prepare_tiering()
        options = msgspec.structs.replace(
            broker_options(settings), port=bound[0].port, authorizer=_authorizer(settings, bound)
        )
        broker = Broker(store, options, group_settings(settings))
        server = health.server = Server(broker, login_options(settings))
        server.certificates = certificates
        stack.push_async_callback(trace_node(settings, store, server))
        broker.start()
        stack.callback(broker.stop)
        await store.takeovers.start()  # after the lake is connected, because this opens partitions
        await server.start(*listeners.kafka, listeners=bound)
        stack.push_async_callback(server.stop)
        if listeners.http is not None:
            metrics.collector, metrics.node = Collector(broker, server), str(store.nodes.me.id)
            broker.metric_rounds.start()
        _renew_at_hangup(certificates, store)
        await store.serve()
        collect_less()
        on_ready(store.nodes.me.id)
        await stop.wait()
        log.info("stopping")
        await hand_over(broker, server)


def _authorizer(settings: Settings, listeners: Sequence[Listener]) -> AuthorizerMode:
    """Enforces ACLs on every listener as soon as one of them authenticates its clients."""
    if settings.authorizer != "auto":
        return settings.authorizer
    return "on" if any(one.authenticates for one in listeners) else "off"


def _renew_at_hangup(certificates: Certificates | None, store: Store) -> None:
    """Reloads the certificate at SIGHUP; without one, SIGHUP stops the broker, as for a closed terminal."""
    if certificates is not None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, lambda: store.spawn(certificates.renew()))


async def _serve_pages(
    settings: Settings, listeners: Listeners, stack: contextlib.AsyncExitStack
) -> tuple[Health, MetricsPage]:
    """Runs from the very start to the end: a store that takes minutes to load is no reason to restart the node."""
    health = Health()
    is_local = is_loopback(settings.http_host)
    is_relayed = listeners.http is not None and listeners.http.family == socket.AF_UNIX
    metrics = MetricsPage(_metrics_token(settings), needs_token=not is_local, checks_host=is_local and not is_relayed)
    if listeners.http is not None:
        http = HttpServer({**health.routes, "/metrics": metrics.answer})
        await http.start(listeners.http)
        stack.callback(http.stop)
    return health, metrics


def _metrics_token(settings: Settings) -> str:
    if not settings.metrics_token_file:
        return ""
    try:
        return Path(settings.metrics_token_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(f"metrics_token_file cannot be read: {error}") from None

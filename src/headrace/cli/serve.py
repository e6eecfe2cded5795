"""`headrace serve`: wires store, broker and server together, and takes them apart again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal

import click
import msgspec

from headrace.broker.broker import Broker
from headrace.broker.options import BrokerOptions
from headrace.broker.server import Server
from headrace.cli.allocation import collect_less, keep_freed_memory
from headrace.cli.lake_option import storage_options
from headrace.cli.listening import listen, show_address
from headrace.cli.logs import set_up_logs
from headrace.cli.redis_trouble import explain
from headrace.cli.setting_options import setting_options
from headrace.cli.settings import SETTINGS, Settings
from headrace.cli.settings_layers import Loaded, split_address
from headrace.cold_log import ColdLog
from headrace.groups import GroupSettings
from headrace.lake.cold import ColdUnusable, open_cold_log
from headrace.store.address import parse_address
from headrace.store.embedded import CannotStart, EmbeddedValkey
from headrace.store.errors import StoreError
from headrace.store.nodes import Node, NodeIdTaken
from headrace.store.store import Store, StoreOptions, StoreRefused

log = logging.getLogger(__name__)

_EVERYWHERE = ("0.0.0.0", "::", "")


@click.command()
@setting_options(*SETTINGS)
def serve(loaded: Loaded) -> None:
    """Serve a broker until SIGTERM.

    Without --redis it starts a Valkey of its own, whose files are in --data-dir.

    \b
    Examples:
      headrace serve
      headrace serve --port 9192 --data-dir /var/lib/headrace --durability always
      headrace serve --redis redis://localhost:6379/0
      headrace serve --host 0.0.0.0 --advertised broker.example.com:9092
      headrace serve --lake /srv/lake
    """
    settings = loaded.settings
    _check(settings)
    set_up_logs(settings.log_level, settings.log_format)
    keep_freed_memory()
    try:
        import uvloop

        uvloop.run(_serve(settings))
    except (CannotStart, NodeIdTaken, StoreRefused) as error:
        raise click.ClickException(str(error)) from None
    except StoreError as error:
        what, advice = explain(error)
        raise click.ClickException(f"{what}; {advice}") from None


def _check(settings: Settings) -> None:
    """Refuses what could not work, before anything is started."""
    if settings.host in _EVERYWHERE and not settings.advertised:
        raise click.UsageError(
            f"--host {settings.host} listens everywhere, so clients must be told where to connect: "
            "add --advertised HOST:PORT"
        )
    _open_lake(settings, cluster_id="")
    if settings.http_port:
        raise click.UsageError("--http-port: this version has no HTTP endpoints yet; start without it")


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listener = listen(settings.host, settings.port)
    port = listener.getsockname()[1]
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        url = settings.redis or await _start_embedded(settings, stack)
        host, advertised_port = split_address(settings.advertised) or (settings.host, port)
        me = Node(settings.node_id, host, advertised_port)
        store = Store(parse_address(url), me, _store_options(settings))
        await store.start()
        stack.push_async_callback(store.close)
        if (cold := _open_lake(settings, store.cluster_id)) is not None:
            store.plug_in(cold)
            stack.push_async_callback(cold.close)
        store.prepare_tiering()
        names = BrokerOptions.__struct_fields__
        options = BrokerOptions(**{name: getattr(settings, name) for name in names})
        broker = Broker(store, options, _group_settings(settings))
        server = Server(broker)
        broker.start()
        stack.callback(broker.stop)
        await server.start(listener)
        stack.push_async_callback(server.stop)
        collect_less()
        print(f"headrace ready on {show_address(settings.host, port)}", flush=True)
        await stop.wait()
        log.info("stopping")


def _open_lake(settings: Settings, cluster_id: str) -> ColdLog | None:
    """The reader of the lake, whose process starts with the first question to it; None if there is no lake."""
    options = storage_options([pair for pair in settings.lake_storage.split(",") if pair], "--lake-storage")
    if not settings.lake:
        return None
    try:
        return open_cold_log(settings.lake, options, cluster_id)
    except ColdUnusable as error:
        raise click.UsageError(f"--lake: {error}") from None


async def _start_embedded(settings: Settings, stack: contextlib.AsyncExitStack) -> str:
    valkey = EmbeddedValkey(settings.data_dir, durability=settings.durability, maxmemory_bytes=settings.maxmemory_bytes)
    await valkey.start()
    stack.push_async_callback(valkey.stop)
    return valkey.url


def _store_options(settings: Settings) -> StoreOptions:
    return msgspec.structs.replace(
        StoreOptions(),
        prefix=settings.key_prefix,
        timeout_ms=settings.store_timeout_ms,
        node_lease_ms=settings.node_lease_ms,
        tail_cache_bytes=settings.tail_cache_bytes,
        append_entry_bytes=settings.append_entry_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        snapshot_interval_bytes=settings.snapshot_interval_bytes,
        memory_high_mark_percent=settings.memory_high_mark_percent,
        allow_eviction=settings.allow_eviction,
        cold_timeout_ms=settings.cold_timeout_ms,
    )


def _group_settings(settings: Settings) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        max_size=settings.group_max_size,
        offsets_retention_ms=settings.offsets_retention_ms,
    )

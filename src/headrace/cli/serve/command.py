"""`headrace serve`: checks the settings, then serves with a node in this process, or several in their own."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import click

from headrace.cli.logs import set_up_logs
from headrace.cli.serve.administrator import take_admin_password
from headrace.cli.serve.allocation import keep_freed_memory
from headrace.cli.serve.console import listen_privately, open_console, say_ready
from headrace.cli.serve.lake import open_lake
from headrace.cli.serve.listening import HIGHEST_PORT
from headrace.cli.serve.sockets import Listeners
from headrace.cli.serve.tls import check_listeners, open_certificates
from headrace.cli.serve.trouble import START_TROUBLE, sentence_of
from headrace.cli.settings.layers import Loaded, listeners_of
from headrace.cli.settings.options import setting_options
from headrace.cli.settings.table import MAX_INT32, SETTINGS, Settings
from headrace.store.embedded.data_directory import CannotStart, are_nodes_left
from headrace.store.usable_memory import tail_cache_bytes

_EARLIER_NODES_S = 30.0
"""How long the nodes of a killed supervisor may take to stop."""
_POLL_S = 0.02


@click.command()
@setting_options(*SETTINGS)
def serve(loaded: Loaded) -> None:
    """Run a broker until SIGTERM.

    Without --redis it starts its own Valkey, with its files in --data-dir.

    \b
    Examples:
      headrace serve
      headrace serve --port 9192 --data-dir /var/lib/headrace --durability always
      headrace serve --redis redis://localhost:6379/0
      headrace serve --listen in=SASL_SSL://10.0.0.5:9093 --tls-cert broker.pem
      headrace serve --nodes 4 --http-port 9080
      headrace serve --lake /srv/lake
    """
    settings = loaded.settings
    _check(settings)
    set_up_logs(settings.log_level, settings.log_format)
    keep_freed_memory(tail_cache_bytes(settings.tail_cache_bytes))
    import uvloop

    try:
        uvloop.run(_serve(settings, take_admin_password(settings)))
    except START_TROUBLE as error:
        raise click.ClickException(sentence_of(error)) from None


def _check(settings: Settings) -> None:
    """Refuses settings that cannot work, before anything is started."""
    if trouble := check_listeners(settings):
        raise click.UsageError(trouble)
    ports = [("http-port", settings.http_port)]
    for listener in listeners_of(settings):
        ports.append(("listen" if settings.listen else "port", listener.port))
        ports.append(("advertised", listener.advertised[1] if listener.advertised else 0))
    for flag, port in ports:
        if port + settings.nodes - 1 > HIGHEST_PORT:
            raise click.UsageError(
                f"--{flag} {port} with --nodes {settings.nodes}: the last port would be above {HIGHEST_PORT}; "
                "choose a lower one"
            )
    if settings.node_id + settings.nodes - 1 > MAX_INT32:
        raise click.UsageError(
            f"--node-id {settings.node_id} with --nodes {settings.nodes}: the last id would be above {MAX_INT32}; "
            "choose a lower one"
        )
    try:
        open_certificates(settings)
    except CannotStart as error:
        raise click.UsageError(str(error)) from None
    open_lake(settings, cluster_id="")


async def _serve(settings: Settings, admin_password: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # With a certificate it asks for a reload: until nodes serve there is nothing to reload.
    loop.add_signal_handler(signal.SIGHUP, (lambda: None) if settings.tls_cert else stop.set)
    if not settings.redis:
        await _earlier_nodes_gone(settings, stop)
    # Imported here, so that a supervisor stays small.
    if settings.nodes > 1:
        from headrace.cli.serve.supervisor import supervise

        await supervise(settings, stop, admin_password)
        return
    from headrace.cli.serve.node import serve_node

    async with contextlib.AsyncExitStack() as stack:
        console = open_console(settings, stack)
        listeners = Listeners.open(settings, with_http=console is None)
        if console is not None:
            listeners = listeners._replace(http=listen_privately(console.node_socket(0)))
            console.start(listeners.bound(settings))
        address = listeners.address(settings)
        await serve_node(settings, listeners, stop, lambda _: say_ready(address, console), admin_password)


async def _earlier_nodes_gone(settings: Settings, stop: asyncio.Event) -> None:
    """Waits for the nodes of a killed supervisor to stop, because their ports are needed."""
    try:
        async with asyncio.timeout(_EARLIER_NODES_S):
            while True:
                if stop.is_set() or not are_nodes_left(settings.data_dir):
                    return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise CannotStart(
            f"nodes of an earlier broker still run on {settings.data_dir}; `lsof {settings.data_dir / 'nodes'}` names "
            "them: end them and start again"
        ) from None

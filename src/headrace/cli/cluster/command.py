"""`headrace cluster try`: a temporary cluster of embedded Valkey servers with nodes on it, to try out.

The servers live as long as the command. The nodes are those of `headrace serve --nodes`, with the cluster's URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from headrace.cli.logs import set_up_logs
from headrace.cli.serve.trouble import START_TROUBLE, sentence_of
from headrace.cli.settings.layers import Loaded
from headrace.cli.settings.options import setting_options
from headrace.cli.settings.table import Settings
from headrace.store.embedded.sweeper import swept
from headrace.store.embedded.trial import TrialCluster

_SETTINGS = ("port", "nodes", "durability", "default_partitions", "http_port", "log_level", "log_format")
_FEWEST_PRIMARIES = 3
"""A failover is voted for by a majority of the primaries."""
_NODES = 3
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGHUP: somebody closed the terminal."""


@click.group()
def cluster() -> None:
    """Try Headrace on a temporary Valkey cluster.

    \b
    Examples:
      headrace cluster try --primaries 3 --replicas 1
    """


@cluster.command("try")
@click.option("--primaries", type=click.IntRange(_FEWEST_PRIMARIES, 16), default=_FEWEST_PRIMARIES, show_default=True)
@click.option("--replicas", type=click.IntRange(0, 3), default=1, show_default=True, help="Copies of each primary.")
@setting_options(*_SETTINGS, nodes=_NODES)
def try_(loaded: Loaded, primaries: int, replicas: int) -> None:
    """Run a Valkey cluster and nodes on it, on this machine, until SIGTERM.

    Everything is temporary: servers and records are gone when the command ends. The printed URL also works with
    `headrace serve --redis`.

    \b
    Examples:
      headrace cluster try
      headrace cluster try --primaries 5 --replicas 2 --nodes 4 --port 9192
    """
    settings = loaded.settings
    if "nodes" not in loaded.sources:
        settings = msgspec.structs.replace(settings, nodes=_NODES)
    set_up_logs(settings.log_level, settings.log_format)
    for number in _STOPPING:  # even while the servers start, or they would outlive the command
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        # The folder goes first, so that the sweeper has nothing to do.
        with contextlib.ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="headrace-cluster-"))
            stack.enter_context(swept(folder))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            servers = TrialCluster(folder, primaries=primaries, replicas=replicas, durability=settings.durability)
            try:
                servers.start()
                print(f"valkey cluster ready: --redis {servers.url}", flush=True)
                asyncio.run(_serve(msgspec.structs.replace(settings, redis=servers.url)))
            finally:
                for number in _STOPPING:  # whoever is impatient
                    signal.signal(number, signal.SIG_IGN)
                servers.stop()
    except START_TROUBLE as error:
        raise click.ClickException(sentence_of(error)) from None


async def _serve(settings: Settings) -> None:
    from headrace.cli.serve.supervisor import supervise

    stop = asyncio.Event()
    for number in _STOPPING:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await supervise(settings, stop, admin_password="")

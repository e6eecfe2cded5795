"""One of several nodes, as a process: `python -m headrace.cli.serve.node_process FD`, started by a supervisor.

It stops gracefully at SIGTERM, and also when the socket FD closes: without a supervisor, nobody would restart the
store or stop the node.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys

import uvloop

from headrace.cli.logs import set_up_logs
from headrace.cli.serve.allocation import keep_freed_memory
from headrace.cli.serve.console import listen_privately
from headrace.cli.serve.node import serve_node
from headrace.cli.serve.orders import Orders, Report, line_of, read_line
from headrace.cli.serve.sockets import Listeners
from headrace.cli.serve.trouble import START_TROUBLE, sentence_of
from headrace.store.cluster.nodes.nodes import ANY_ID
from headrace.store.usable_memory import tail_cache_bytes

log = logging.getLogger(__name__)


def main() -> None:
    lifeline = socket.socket(fileno=int(sys.argv[1]))
    lifeline.set_inheritable(False)
    with lifeline.makefile("rb") as lines:
        orders = read_line(lines.readline(), Orders)
    settings = orders.settings
    labels = {"node": settings.node_id} if settings.node_id != ANY_ID else {}
    set_up_logs(settings.log_level, settings.log_format, labels=labels)
    keep_freed_memory(tail_cache_bytes(settings.tail_cache_bytes))

    def tell(report: Report) -> None:
        try:
            lifeline.sendall(line_of(report))
        except OSError:
            return  # the supervisor is gone; noticed elsewhere

    def on_ready(node_id: int) -> None:
        labels["node"] = node_id
        tell(Report(node_id))

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)

        def left_alone() -> None:
            loop.remove_reader(lifeline)
            log.warning("the supervisor is gone; stopping")
            stop.set()

        loop.add_reader(lifeline, left_alone)  # nothing follows the orders: the socket can only close
        passed_on = orders.descriptors
        listeners = Listeners.inherited(passed_on, settings) if passed_on else Listeners.open(settings)
        if orders.console_socket:
            listeners = listeners._replace(http=listen_privately(orders.console_socket))
        await serve_node(settings, listeners, stop, on_ready, orders.admin_password)

    try:
        uvloop.run(run())
    except START_TROUBLE as error:
        tell(Report(trouble=sentence_of(error)))
        sys.exit(1)


if __name__ == "__main__":
    main()

"""The console of a broker, as a process: `python -m headrace.cli.console.process FD`.

The socket FD delivers its orders, one line of JSON. When it closes, the broker is gone and the console stops.
"""

from __future__ import annotations

import signal
import socket
import sys

import msgspec

from headrace.cli.logs import LogFormat, set_up_logs
from headrace.console.settings import ConsoleSettings


class ConsoleOrders(msgspec.Struct, frozen=True):
    """The console's settings, its listening socket, and how to log."""

    settings: ConsoleSettings
    descriptor: int
    log_level: str = "info"
    log_format: LogFormat = "auto"


def main() -> None:
    lifeline = socket.socket(fileno=int(sys.argv[1]))
    lifeline.set_inheritable(False)
    with lifeline.makefile("rb") as lines:
        orders = msgspec.json.decode(lines.readline(), type=ConsoleOrders)
    set_up_logs(orders.log_level, orders.log_format, labels={"process": "console"})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which stops us
    listener = socket.socket(fileno=orders.descriptor)
    listener.set_inheritable(False)
    from headrace.console.server import serve  # its packages are an extra

    serve(orders.settings, listener, lifeline)


if __name__ == "__main__":
    main()

"""The listening socket. A port that is taken is the commonest mistake of all, so it is said in one sentence.

Apart from `serve` because it is done before anything else is started, and so that it can be tested without a broker.
"""

from __future__ import annotations

import errno
import os
import socket

from headrace.store.data_directory import CannotStart

_BACKLOG = 1024
_HIGHEST_PORT = 65535
_USUAL_PORT = 9092


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an IPv4 or IPv6 address, or on a name's first address."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server((address[0], port), family=family, backlog=_BACKLOG)
    except socket.gaierror:
        raise CannotStart(f"cannot listen on {host!r}: there is no such address; choose another with --host") from None
    except OSError as error:
        # create_server adds its own words to the system's, and they only repeat ours.
        reason = os.strerror(error.errno or 0)
        raise CannotStart(f"cannot listen on {show_address(host, port)}: {reason}; {_advice(error, port)}") from None


def show_address(host: str, port: int) -> str:
    """HOST:PORT as clients take it, `[::1]:9092` included."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _advice(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"choose another with --port (make run PORT={port + 1 if port < _HIGHEST_PORT else _USUAL_PORT})"
    if error.errno == errno.EACCES:
        return f"ports below 1024 need a privilege: choose another with --port (make run PORT={_USUAL_PORT})"
    return "choose another with --host"

"""The listening socket. A taken port is the most common mistake of all, so its error says what to do.

Separate from `serve` because it comes before everything else, and so that it can be tested without a broker.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from headrace.security.listeners import show_address
from headrace.store.embedded.data_directory import CannotStart

_BACKLOG = 1024
HIGHEST_PORT = 65535
_USUAL_PORT = 9092


def listen(host: str, port: int, flags: str = "--") -> socket.socket:
    """A socket that listens on an IPv4 or IPv6 address, or on a name's first address.

    `flags` is the common prefix of the two settings' flags, or the one setting that has both values.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server((address[0], port), family=family, backlog=_BACKLOG)
    except socket.gaierror:
        raise CannotStart(
            f"cannot listen on {host!r}: there is no such address; choose another {_host(flags)}"
        ) from None
    except OSError as error:
        # create_server adds its own words to the system's, which would repeat ours.
        reason = os.strerror(error.errno or 0)
        advice = _advice(error, port, flags)
        raise CannotStart(f"cannot listen on {show_address(host, port)}: {reason}; {advice}") from None


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only; names are resolved."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except socket.gaierror:
        return False
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


def _host(flags: str) -> str:
    return f"with {flags}host" if flags.endswith("-") else f"in {flags}"


def _advice(error: OSError, port: int, flags: str) -> str:
    another = f"choose another with {flags}port" if flags.endswith("-") else f"choose another in {flags}"
    has_make = flags == "--"
    if error.errno == errno.EADDRINUSE:
        free = port + 1 if port < HIGHEST_PORT else _USUAL_PORT
        return f"{another} (make run PORT={free})" if has_make else another
    if error.errno == errno.EACCES:
        needs = "ports below 1024 need a privilege"
        return f"{needs}: {another} (make run PORT={_USUAL_PORT})" if has_make else f"{needs}: {another}"
    return f"choose another {_host(flags)}"

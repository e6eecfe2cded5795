"""The doctor's check of a port: free, or taken by which process."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from pathlib import Path

from headrace.cli.doctor.findings import CheckResult, fail, ok
from headrace.client import BrokerConnection, BrokerUnreachable
from headrace.client.connection import ClientSecurity
from headrace.wire.errors import KafkaError

_PATIENCE_S = 1.0
_LISTENING = "0A"


def check_port(host: str, port: int, *, tls: bool = False, certificate: bool = False) -> tuple[CheckResult, bool]:
    """The finding, and whether a broker listens there."""
    name = f"port {port}"
    if port == 0:
        return ok(name, "a free one will be picked"), False
    free = f"choose another with --port (make run PORT={port + 1 if port < 65535 else 9192})"
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            if certificate:
                return ok(name, "taken; it requires a client certificate, so it was not checked further"), False
            return _taken(name, host, port, free, tls)
        advice = "choose a port above 1023 with --port" if error.errno == errno.EACCES else "correct --host"
        return fail(name, f"cannot listen on {host}: {error.strerror}", advice), False
    return ok(name, f"free on {host}"), False


def _taken(name: str, host: str, port: int, advice: str, tls: bool) -> tuple[CheckResult, bool]:
    owner = _owner(port)
    by = f" ({owner})" if owner else ""
    if _speaks_kafka(host, port, tls):
        return ok(name, f"a broker answers there{by}"), True
    return fail(name, f"taken by something other than a Kafka broker{by}", f"{advice}, or stop it"), False


def _speaks_kafka(host: str, port: int, tls: bool) -> bool:
    """Whether a Kafka broker answers ApiVersions there; its certificate is not verified."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    try:
        context = ClientSecurity(tls=tls, check_hostname=False).ssl_context()
        if context is not None:
            context.verify_mode = ssl.CERT_NONE
        with BrokerConnection(host, port, _PATIENCE_S, "headrace-doctor", context) as connection:
            return bool(connection.versions)
    except (BrokerUnreachable, KafkaError):
        return False


def _owner(port: int) -> str:
    """`pid 4711, python3`: the process that listens on a port, if Linux shows it."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(descriptor) in inodes for descriptor in (process / "fd").iterdir()):
                return f"pid {process.name}, {(process / 'comm').read_text().strip()}"
    return ""

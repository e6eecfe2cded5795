"""Redis servers that speak nothing but TLS, to clients and to each other: a cluster, and a primary behind sentinels.

The embedded server has no TLS. `TEST_REDIS_SERVER=/path/to/redis-server` names one that has it, such as Debian's.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, cast

import hiredis

from headrace.store.embedded.ports import HOST, free_ports
from headrace.store.embedded.trial import TrialServer
from tests.certificates import Authority
from tests.clusters import ClusterOfServers
from tests.sentinels import NAME, SENTINEL, WatchedServers
from tests.server_binary import server_binary

_ANSWER_S = 10.0
_USERS = "users.acl"


@cache
def has_tls() -> bool:
    """Whether the tests' server was built with TLS: it opens such a port only then."""
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Authority(Path(folder)))
        options = {"port": "0", "tls-port": str(free_ports(1)[0]), "bind": HOST, **files.options}
        line = [str(server_binary()), *(word for name, value in options.items() for word in (f"--{name}", value))]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
            assert process.stdout is not None
            found = any("eady to accept connections" in row for row in process.stdout)
            process.terminate()
        return found


class Files:
    """The certificates of servers and clients: each side asks for the other's."""

    def __init__(self, authority: Authority) -> None:
        self.ca = authority.ca_file
        self.certificate, self.key = authority.sign("server")
        self.client_certificate, self.client_key = authority.sign("client")

    @property
    def options(self) -> dict[str, str]:
        return {
            "tls-ca-cert-file": str(self.ca),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-auth-clients": "yes",
        }

    @property
    def query(self) -> str:
        """For the URL of the servers."""
        return f"ssl_ca_certs={self.ca}&ssl_certfile={self.client_certificate}&ssl_keyfile={self.client_key}"

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.client_certificate, self.client_key)
        return context


class TlsServer(TrialServer):
    """One server, without a port for anything else."""

    def __init__(
        self, folder: Path, options: dict[str, str], files: Files, *first: str, login: tuple[str, str] | None = None
    ) -> None:
        super().__init__(folder, options, *first)
        self._options |= {"port": "0", "tls-port": str(self.port)}
        self._context = files.context()
        self._login = login

    def binary(self) -> Path:
        return server_binary()

    def connect(self) -> socket.socket:
        line = socket.create_connection((HOST, self.port), _ANSWER_S)
        line = self._context.wrap_socket(line, server_hostname=HOST)
        if self._login is not None:
            line.sendall(hiredis.pack_command(cast("Any", ("AUTH", *self._login))))
            assert line.recv(1 << 10) == b"+OK\r\n"
        return line


class TlsCluster(ClusterOfServers):
    """Three primaries with a replica each."""

    def __init__(self, folder: Path) -> None:
        self._files = Files(Authority(folder / "certificates"))
        super().__init__(
            folder,
            options={**self._files.options, "tls-cluster": "yes", "tls-replication": "yes"},
        )

    @property
    def url(self) -> str:
        return f"{super().url.replace('redis+', 'rediss+')}?{self._files.query}"

    def _new_server(self, folder: Path, options: dict[str, str]) -> TrialServer:
        return TlsServer(folder, options, self._files)


class TlsWatchedServers(WatchedServers):
    """A primary with two replicas, which let in one user, and sentinels, which let in another one."""

    _server_login = ("mill", "wheel")
    _sentinel_login = ("miller", "stone")

    def __init__(self, folder: Path) -> None:
        self._files = Files(Authority(folder / "certificates"))
        super().__init__(folder)

    @property
    def url(self) -> str:
        hosts = super().url.removeprefix("redis+sentinel://")
        (user, password), (watcher, word) = self._server_login, self._sentinel_login
        users = f"sentinel_username={watcher}&sentinel_password={word}"
        return f"rediss+sentinel://{user}:{password}@{hosts}?{self._files.query}&{users}"

    def _new_server(self, folder: Path, options: dict[str, str]) -> TrialServer:
        user, password = self._server_login
        options |= {"tls-replication": "yes", "masteruser": user, "masterauth": password, **self._files.options}
        _let_in(folder, self._server_login)
        return TlsServer(folder, options | {"aclfile": _USERS}, self._files, login=self._server_login)

    def _new_sentinel(self, folder: Path) -> TrialServer:
        options = {"tls-replication": "yes", **self._files.options}
        return TlsServer(folder, options, self._files, *SENTINEL, login=self._sentinel_login)

    def _more_lines(self) -> list[str]:
        (user, password), (watcher, word) = self._server_login, self._sentinel_login
        return [
            f"sentinel auth-user {NAME} {user}",
            f"sentinel auth-pass {NAME} {password}",
            f"sentinel sentinel-user {watcher}",
            f"sentinel sentinel-pass {word}",
            *_users(self._sentinel_login),
        ]


def _users(login: tuple[str, str]) -> list[str]:
    """One who may do everything, and nobody else."""
    return [f"user {login[0]} on >{login[1]} ~* &* +@all", "user default off"]


def _let_in(folder: Path, login: tuple[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _USERS).write_text("".join(f"{line}\n" for line in _users(login)))

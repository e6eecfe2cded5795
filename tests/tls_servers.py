"""A Redis cluster that speaks nothing but TLS: to clients, among its servers, and on their bus.

The embedded server has no TLS. `TEST_REDIS_SERVER=/path/to/redis-server` names one that has it, such as Debian's.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from headrace.store.embedded.trial import HOST, TrialServer, free_ports
from tests.certificates import Authority
from tests.clusters import ClusterOfServers
from tests.server_binary import server_binary

_ANSWER_S = 10.0


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

    def __init__(self, folder: Path, options: dict[str, str], files: Files) -> None:
        super().__init__(folder, options)
        self._options |= {"port": "0", "tls-port": str(self.port)}
        self._context = files.context()

    def binary(self) -> Path:
        return server_binary()

    def connect(self) -> socket.socket:
        line = socket.create_connection((HOST, self.port), _ANSWER_S)
        return self._context.wrap_socket(line, server_hostname=HOST)


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

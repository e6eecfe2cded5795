"""A broker with logins for the programs of `make interop`, and what they are told of it: by variables named LOGIN_*."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.logins.secured import ADMIN, ADMIN_PASSWORD, SecuredBroker

CERTIFICATE_USER = "carol"
_LIVES_S = {"TOKEN": 3_600, "EXPIRED_TOKEN": -3_600}


@contextlib.contextmanager
def login_environment(folder: Path) -> Iterator[dict[str, str]]:
    """Variables with addresses, authority, a user, tokens and certificates; the broker runs for the block."""
    secured = SecuredBroker(folder)
    tokens = {name: secured.signer.token("alice", lifetime_s=life_s) for name, life_s in _LIVES_S.items()}
    try:
        secured.start()
        yield {
            **{f"LOGIN_{name}": token for name, token in tokens.items()},
            **{f"LOGIN_{name}_FILE": _written(folder / name.lower(), token) for name, token in tokens.items()},
            "LOGIN_ADDRESS": f"localhost:{secured.ports['sasl']}",
            "LOGIN_CA": str(secured.authority.ca_file),
            "LOGIN_USER": ADMIN,
            "LOGIN_PASSWORD": ADMIN_PASSWORD,
            "LOGIN_SSL_ADDRESS": f"localhost:{secured.ports['ssl']}",
            "LOGIN_CERTIFICATE": _certificate(secured, CERTIFICATE_USER, days=30),
            "LOGIN_EXPIRED_CERTIFICATE": _certificate(secured, "former", days=-1),
            "LOGIN_CERTIFICATE_USER": CERTIFICATE_USER,
        }
    finally:
        secured.process.end()


def _certificate(secured: SecuredBroker, name: str, days: int) -> str:
    """A file with a client's key and certificate, as Kafka's Java client takes both."""
    certificate, key = secured.authority.sign(name, organisation="team", days=days)
    return _written(secured.folder / f"{name}.pem", key.read_text() + certificate.read_text())


def _written(path: Path, content: str) -> str:
    path.touch(mode=0o600)
    path.write_text(content)
    return str(path)

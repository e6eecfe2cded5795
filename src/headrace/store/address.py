"""Where Redis is: redis://, rediss:// and unix:// URLs, as redis-cli and the common clients read them."""

from __future__ import annotations

import ssl
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec


class Address(msgspec.Struct, frozen=True):
    """A Redis server, and how to be let in."""

    host: str = ""
    port: int = 6379
    path: str = ""
    username: str = ""
    password: str = ""
    database: int = 0
    tls: bool = False
    verify: bool = True
    ca_file: str = ""

    def __str__(self) -> str:
        """For logs: without the password."""
        where = f"unix://{self.path}" if self.path else f"redis{'s' if self.tls else ''}://{self.host}:{self.port}"
        return f"{where}/{self.database}" if self.database else where

    def tls_context(self) -> ssl.SSLContext | None:
        """What rediss:// asks for; `?ssl_ca_certs=FILE` names a CA, `?ssl_cert_reqs=none` turns checking off."""
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.ca_file or None)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse_address(url: str) -> Address:
    """The address that a URL names; ValueError with a sentence for a person otherwise."""
    parts = urlsplit(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    username = unquote(parts.username or query.get("username", ""))
    password = unquote(parts.password or "") or query.get("password", "")
    if parts.scheme == "unix":
        path = unquote(parts.path if not parts.hostname else f"{parts.hostname}{parts.path}")
        if not path:
            raise ValueError(f"{url} names no socket: write unix:///path/to/redis.sock")
        return Address(path=path, username=username, password=password, database=_database(query.get("db", "0"), url))
    if parts.scheme not in ("redis", "rediss"):
        raise ValueError(f"{url} is not a Redis URL: it starts with redis://, rediss:// or unix://")
    try:
        port = parts.port or 6379
    except ValueError:
        raise ValueError(f"{url} has a port that is not a number from 1 to 65535") from None
    return Address(
        host=parts.hostname or "127.0.0.1",
        port=port,
        username=username,
        password=password,
        database=_database(parts.path.lstrip("/") or query.get("db", "0"), url),
        tls=parts.scheme == "rediss",
        verify=query.get("ssl_cert_reqs", "required") != "none",
        ca_file=query.get("ssl_ca_certs", ""),
    )


def _database(text: str, url: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{url} has a database that is not a number: {text!r}")
    return int(text)

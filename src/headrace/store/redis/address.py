"""The address of Redis in one URL: a single server, a primary named by sentinels, or a cluster.

redis://, rediss:// and unix:// are read as redis-cli and the common clients read them. redis+sentinel:// and
redis+cluster:// (rediss+... with TLS) name several hosts, any of which may be unavailable.

Read with expressions of our own: Python's urlsplit knows one host, and since a security release (also in Debian's
3.11) it refuses a list in which a name is followed by an IPv6 address.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qs, unquote

import msgspec

Form = Literal["one", "sentinel", "cluster"]
_REDIS_PORT, _SENTINEL_PORT = 6379, 26379
_FORMS: dict[str, Form] = {"": "one", "+sentinel": "sentinel", "+cluster": "cluster"}
_URL: Final = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
"""Scheme, login and hosts, path, query, fragment: the expression of RFC 3986."""
_HOST_PORT: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::([0-9]*))?")
_QUERY: Final = {
    *("username", "password", "db", "sentinel_username", "sentinel_password"),
    *("ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"),
}
_EXAMPLES = {
    "one": "redis://HOST:PORT/0",
    "sentinel": "redis+sentinel://HOST:PORT,HOST:PORT/NAME/0",
    "cluster": "redis+cluster://HOST:PORT,HOST:PORT",
}


class HostPort(msgspec.Struct, frozen=True, array_like=True):
    """A place in a network."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Address(msgspec.Struct, frozen=True):
    """A Redis, in whichever form, and how to be let in."""

    host: str = ""
    port: int = _REDIS_PORT
    path: str = ""
    username: str = ""
    password: str = ""
    database: int = 0
    tls: bool = False
    verify: bool = True
    ca_file: str = ""
    certificate_file: str = ""
    """Ours, for servers that ask for one."""
    key_file: str = ""
    form: Form = "one"
    seeds: tuple[HostPort, ...] = ()
    """The sentinels, or servers of the cluster; others are learned from them."""
    primary_name: str = ""
    """The primary's name among the sentinels."""
    sentinel_username: str = ""
    sentinel_password: str = ""

    def __str__(self) -> str:
        """For logs: without the password."""
        if self.path:
            where = f"unix://{self.path}"
        elif self.form == "one":
            where = f"redis{'s' if self.tls else ''}://{HostPort(self.host, self.port)}"
        else:
            where = f"redis{'s' if self.tls else ''}+{self.form}://{','.join(map(str, self.seeds))}"
            where += f"/{self.primary_name}" if self.primary_name else ""
        return f"{where}/{self.database}" if self.database else where

    def at(self, place: HostPort) -> Address:
        """One of its servers: the same way in, at another place."""
        return msgspec.structs.replace(self, host=place.host, port=place.port, form="one", seeds=())

    def sentinel_at(self, place: HostPort) -> Address:
        """One of its sentinels, which may have users of their own and have no databases."""
        return msgspec.structs.replace(
            self.at(place), username=self.sentinel_username, password=self.sentinel_password, database=0
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context of rediss://; `?ssl_ca_certs=FILE` names a CA, `?ssl_cert_reqs=none` disables checks.

        `?ssl_certfile=FILE&ssl_keyfile=FILE` is the client's own certificate.
        """
        if not self.tls:
            return None
        for file in filter(None, (self.ca_file, self.certificate_file, self.key_file)):
            Path(file).open("rb").close()  # ssl's own error does not say which one is missing
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except ssl.SSLError as error:
            raise OSError(f"{self.ca_file} has no certificates ({error.reason})") from None
        if self.key_file and not self.certificate_file:
            raise OSError(f"{self.key_file} is a key without a certificate: add ssl_certfile=FILE")
        if self.certificate_file:
            try:  # nobody is there to be asked for the password of a key
                context.load_cert_chain(self.certificate_file, self.key_file or None, password="")
            except ssl.SSLError as error:
                files = " and ".join(filter(None, (self.certificate_file, self.key_file)))
                why = error.reason or "no key in it: add ssl_keyfile=FILE"  # OpenSSL has no reason for a missing key
                raise OSError(f"{files} cannot be used as a certificate and its key ({why})") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse_address(url: str) -> Address:
    """The address that a URL names; ValueError otherwise, with what is wrong: "names no host", without the URL."""
    found = _URL.fullmatch(url.strip())
    assert found is not None  # everything in it is optional
    scheme, netloc, path, asked, fragment = (part or "" for part in found.groups())
    query = {name: values[-1] for name, values in parse_qs(asked, keep_blank_values=True).items()}
    login, _, hosts = netloc.rpartition("@")
    username, _, password = login.partition(":")
    username = unquote(username) or query.get("username", "")
    password = unquote(password) or query.get("password", "")
    if scheme.lower() == "unix":
        place = unquote(f"{hosts}{path}")
        if not place:
            raise ValueError("names no socket: write unix:///path/to/redis.sock")
        _check_options(query)
        return Address(path=place, username=username, password=password, database=_database(query.get("db") or "0"))
    scheme, plus, kind = scheme.lower().partition("+")
    form = _FORMS.get(plus + kind)
    if scheme not in ("redis", "rediss") or form is None:
        raise ValueError(
            "does not start with redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, rediss+sentinel:// "
            "or rediss+cluster://"
        )
    # A query has an @ only in values of its own, which nobody shows; else what precedes it would be taken for a host.
    if "@" in f"{path}{fragment}" or ("@" in asked and not _QUERY.issuperset(query)):
        raise ValueError("has special characters in its password: write them as %40 for @, %2F for / and so on")
    _check_options(query)
    names = [name for name in unquote(path).split("/") if name]
    places = _places(hosts, form)
    primary_name = names.pop(0) if form == "sentinel" and names else ""
    if form == "sentinel" and not primary_name:
        raise ValueError(f"does not name the primary as the sentinels do: write {_EXAMPLES[form]}")
    database = _database(names[0] if names else query.get("db") or "0")
    if form == "cluster" and database:
        raise ValueError(f"names database {database}: a cluster has only database 0")
    return Address(
        host=places[0].host if form == "one" else "",
        port=places[0].port if form == "one" else _REDIS_PORT,
        username=username,
        password=password,
        database=database,
        tls=scheme == "rediss",
        verify=query.get("ssl_cert_reqs", "required") != "none",
        ca_file=query.get("ssl_ca_certs", ""),
        certificate_file=query.get("ssl_certfile", ""),
        key_file=query.get("ssl_keyfile", ""),
        form=form,
        seeds=() if form == "one" else tuple(places),
        primary_name=primary_name,
        sentinel_username=query.get("sentinel_username", ""),
        sentinel_password=query.get("sentinel_password", ""),
    )


def _check_options(query: dict[str, str]) -> None:
    """A misspelled one must not be ignored: the records could go to another database."""
    if unknown := sorted(query.keys() - _QUERY):
        raise ValueError(f"has an unknown option '{unknown[0]}': there are {', '.join(sorted(_QUERY))}")
    if (asked := query.get("ssl_cert_reqs", "required")) not in ("required", "none"):
        raise ValueError(f"has ssl_cert_reqs={asked}: write required or none")


def _places(hosts: str, form: Form) -> list[HostPort]:
    named = [one.strip() for one in hosts.split(",")]
    if form == "one" and len(named) > 1:
        raise ValueError(f"names several hosts: write {_EXAMPLES['sentinel']} or {_EXAMPLES['cluster']}")
    if form != "one" and not all(named):
        raise ValueError(f"names no host: write {_EXAMPLES[form]}")
    return [_place(one, _SENTINEL_PORT if form == "sentinel" else _REDIS_PORT) for one in named]


def _place(text: str, usual_port: int) -> HostPort:
    found = _HOST_PORT.fullmatch(text)
    port = int(found[3] or usual_port) if found else 0
    if found is None or not 0 < port < 1 << 16:
        raise ValueError("has a port that is not a number from 1 to 65535 (an IPv6 address needs brackets)")
    return HostPort(unquote(found[1] or found[2] or "127.0.0.1").lower(), port)


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("has a database that is not a number")
    return int(text)

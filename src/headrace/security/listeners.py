"""Parses a listener: `NAME=PROTOCOL://HOST:PORT`, followed by options separated by commas.

An option's value may be a list: a part after a comma without `=` belongs to the option before it.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Literal, cast

import msgspec

from headrace.security.mechanisms.oauthbearer import OAUTHBEARER
from headrace.security.mechanisms.plain import PLAIN
from headrace.security.verifiers import SCRAM_SHA_256, SCRAM_SHA_512

MECHANISMS = (SCRAM_SHA_512, SCRAM_SHA_256, PLAIN, OAUTHBEARER)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ClientAuth = Literal["none", "requested", "required"]
_CLIENT_AUTH = ("none", "requested", "required")
_SENDS_SECRETS = (PLAIN, OAUTHBEARER)
_SHAPE = re.compile(r"([A-Za-z0-9_-]{1,63})=([A-Za-z_]+)://(\[[^\]]*\]|[^:,\[\]]*):([0-9]{1,5})")
EVERYWHERE = ("0.0.0.0", "::", "")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ListenerError(ValueError):
    """One sentence: what is wrong with a listener."""


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """Where clients come in, and what is asked of them there."""

    name: str
    protocol: Protocol = "PLAINTEXT"
    host: str
    port: int
    advertised: tuple[str, int] | None = None
    client_auth: ClientAuth = "none"
    proxy_from: tuple[str, ...] = ()
    """Networks of the proxies in front of it; empty: clients connect themselves."""
    mechanisms: tuple[str, ...] = ()
    """The configured mechanisms; empty: those that are safe on this listener."""

    @property
    def is_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def is_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def asks_for_certificates(self) -> bool:
        return self.client_auth != "none"

    @property
    def authenticates(self) -> bool:
        """Whether clients have to say who they are."""
        return self.is_sasl or self.client_auth == "required"

    @property
    def is_loopback(self) -> bool:
        """Whether it can be reached from this machine alone."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def networks(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(text, strict=False) for text in self.proxy_from)

    def offered(self, has_keys: bool) -> tuple[str, ...]:
        """The mechanisms: without TLS none that sends a secret, unless it is named; tokens where keys are known."""
        chosen = self.mechanisms or tuple(name for name in MECHANISMS if self.is_tls or name not in _SENDS_SECRETS)
        return tuple(name for name in chosen if name != OAUTHBEARER or has_keys)

    def __str__(self) -> str:
        """As it could be written."""
        parts = [f"{self.name}={self.protocol}://{show_address(self.host, self.port)}"]
        if self.advertised is not None:
            parts.append(f"advertised={show_address(*self.advertised)}")
        if self.client_auth != "none":
            parts.append(f"client-auth={self.client_auth}")
        if self.proxy_from:
            parts.append(f"proxy-from={','.join(self.proxy_from)}")
        if self.mechanisms:
            parts.append(f"mechanisms={','.join(self.mechanisms)}")
        return ",".join(parts)

    def counted_up(self, index: int) -> Listener:
        """The same for one of several nodes: the next ports."""
        advertised = self.advertised and (self.advertised[0], self.advertised[1] + index)
        return msgspec.structs.replace(self, port=self.port and self.port + index, advertised=advertised)


def parse_listener(text: str) -> Listener:
    """Reads a listener; ListenerError if it cannot be one."""
    address, *pieces = text.strip().split(",")
    found = _SHAPE.fullmatch(address)
    if found is None:
        raise ListenerError(f"{address!r} is not NAME=PROTOCOL://HOST:PORT")
    name, protocol, host, port = found[1], found[2].upper(), found[3].strip("[]"), int(found[4])
    if protocol not in PROTOCOLS:
        raise ListenerError(f"listener {name}: the protocol {found[2]!r} is not one of {', '.join(PROTOCOLS)}")
    if port > 65535:
        raise ListenerError(f"listener {name}: port {port} is above 65535")
    options = _options(name, pieces)
    listener = Listener(
        name=name,
        protocol=cast("Protocol", protocol),
        host=host,
        port=port,
        advertised=_advertised(name, options),
        client_auth=_client_auth(name, options),
        proxy_from=_networks(name, options),
        mechanisms=_mechanisms(name, options),
    )
    if listener.asks_for_certificates and not listener.is_tls:
        raise ListenerError(f"listener {name}: client-auth needs SSL or SASL_SSL")
    if listener.mechanisms and not listener.is_sasl:
        raise ListenerError(f"listener {name}: mechanisms needs SASL_SSL or SASL_PLAINTEXT")
    return listener


_OPTIONS = ("advertised", "client-auth", "proxy-from", "mechanisms")


def _options(name: str, pieces: list[str]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    values: list[str] | None = None
    for piece in pieces:
        key, equals, value = piece.strip().partition("=")
        if equals:
            if key not in _OPTIONS or key in options:
                trouble = "is given twice" if key in options else f"is not one of {', '.join(_OPTIONS)}"
                raise ListenerError(f"listener {name}: the option {key!r} {trouble}")
            values = options[key] = [value]
        elif values is None:
            raise ListenerError(f"listener {name}: {piece!r} is not an option such as advertised=HOST:PORT")
        else:
            values.append(key)
    return options


def _one(name: str, options: dict[str, list[str]], key: str) -> str:
    values = options.get(key, [""])
    if len(values) > 1:
        raise ListenerError(f"listener {name}: {key} has one value, not {', '.join(values)}")
    return values[0]


def _advertised(name: str, options: dict[str, list[str]]) -> tuple[str, int] | None:
    if "advertised" not in options:
        return None
    text = _one(name, options, "advertised")
    if (found := split_address(text)) is None:
        raise ListenerError(f"listener {name}: advertised={text} is not HOST:PORT")
    return found


def _client_auth(name: str, options: dict[str, list[str]]) -> ClientAuth:
    value = _one(name, options, "client-auth") or "none"
    if value not in _CLIENT_AUTH:
        raise ListenerError(f"listener {name}: client-auth={value} is not one of {', '.join(_CLIENT_AUTH)}")
    return cast("ClientAuth", value)


def _networks(name: str, options: dict[str, list[str]]) -> tuple[str, ...]:
    for text in options.get("proxy-from", []):
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise ListenerError(f"listener {name}: proxy-from={text!r} is not a network such as 10.0.0.0/8") from None
    return tuple(options.get("proxy-from", []))


def _mechanisms(name: str, options: dict[str, list[str]]) -> tuple[str, ...]:
    found = tuple(value.upper() for value in options.get("mechanisms", []))
    if unknown := [value for value in found if value not in MECHANISMS]:
        raise ListenerError(f"listener {name}: the mechanism {unknown[0]!r} is not one of {', '.join(MECHANISMS)}")
    return found


def split_address(text: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT`, `[::1]:9092` included; None if it is not of that form."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not host or (":" in host and not bracketed) or re.search(r"\s", host):
        return None
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        return None
    return host, int(port)


def show_address(host: str, port: int) -> str:
    """HOST:PORT as clients take it, `[::1]:9092` included."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""How a client connects and logs in, parsed from the properties of Kafka's tools.

Both families of names are supported: those of the Java client (`sasl.jaas.config`, `ssl.truststore.location`) and those
of librdkafka (`sasl.username`, `ssl.ca.location`), with PEM files. A property that cannot be honoured is rejected in
one sentence, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headrace.client.connection import ClientSecurity
from headrace.client.errors import PropertyError
from headrace.client.sasl import MECHANISMS, Sasl

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PROPERTIES = (
    "sasl.jaas.config",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
_LOGIN = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def parse_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Parses the security properties; others are ignored here."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise PropertyError("security.protocol", f"is '{protocol}'; it must be {' or '.join(PROTOCOLS)}")
    for store in ("ssl.keystore.type", "ssl.truststore.type"):
        if properties.get(store, "PEM").upper() != "PEM":
            raise PropertyError(store, f"is '{properties[store]}'; only PEM files are supported")
    identification = properties.get("ssl.endpoint.identification.algorithm", "https").lower()
    if identification not in ("https", "", "none"):
        raise PropertyError("ssl.endpoint.identification.algorithm", f"is '{identification}'; it must be 'https' or ''")
    return ClientSecurity(
        tls=protocol.endswith("SSL"),
        ca_file=properties.get("ssl.truststore.location") or properties.get("ssl.ca.location"),
        certificate_file=properties.get("ssl.keystore.location") or properties.get("ssl.certificate.location"),
        key_file=properties.get("ssl.key.location"),
        key_password=properties.get("ssl.key.password"),
        check_hostname=identification == "https",
        sasl=_sasl(properties) if protocol.startswith("SASL") else None,
    )


def _sasl(properties: Mapping[str, str]) -> Sasl:
    """User and password, from either client's properties; a token from a file."""
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").upper()
    if mechanism not in MECHANISMS:
        raise PropertyError("sasl.mechanism", f"is '{mechanism}'; it must be {' or '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, token_file=_token_file(properties))
    login = dict(_LOGIN.findall(properties.get("sasl.jaas.config", "")))
    login = {name: re.sub(r"\\(.)", r"\1", value) for name, value in login.items()}
    user = login.get("username", properties.get("sasl.username"))
    password = login.get("password", properties.get("sasl.password"))
    if user is None or password is None:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        raise PropertyError(
            "sasl.jaas.config",
            "has no user and password; it must be a line such as "
            f'org.apache.kafka.common.security.{module} required username="..." password="...";',
        )
    return Sasl(mechanism, user, password)


def _token_file(properties: Mapping[str, str]) -> str:
    address = urlsplit(properties.get("sasl.oauthbearer.token.endpoint.url", ""))
    if address.scheme != "file" or not address.path:
        raise PropertyError(
            "sasl.oauthbearer.token.endpoint.url", "must be the file that holds the token, such as file:///run/token"
        )
    return unquote(address.path)


def read_properties(path: Path) -> dict[str, str]:
    """Parses a file of `name=value` lines as Java does; ValueError if it is unreadable."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    found: dict[str, str] = {}
    joined = re.sub(r"\\\r?\n[ \t]*", "", text)
    for number, line in enumerate(joined.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        # The line is not shown: it may be a password.
        parts = re.fullmatch(r"([A-Za-z0-9._-]+)\s*[=:]\s*(.*)", line)
        if parts is None:
            raise ValueError(f"{path}, line {number}, is not NAME=VALUE")
        found[parts[1]] = parts[2]
    return found

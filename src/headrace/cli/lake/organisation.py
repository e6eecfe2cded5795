"""The organisation whose tables a lake command uses: the one it logs in to.

Separate from the options because the broker uses some of those, and needs no client.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from headrace.cli.cluster_option import read_client_config
from headrace.client.errors import PropertyError
from headrace.client.properties import parse_security
from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.names import parse_login_name


def login_organisation(client_config: object, settings: object) -> str:
    """The organisation in front of the login name. With a certificate or a token there is none: use `--org`."""
    properties = read_client_config(client_config) if isinstance(client_config, Path) else {}
    for setting in settings if isinstance(settings, tuple) else ():
        name, _, value = str(setting).partition("=")
        properties[name.removeprefix("kafka.")] = value
    with contextlib.suppress(PropertyError):  # reported when the cluster is contacted
        sasl = parse_security(properties).sasl
        login = parse_login_name(sasl.username) if sasl is not None else None
        if login is not None:
            return login.organisation
    return DEFAULT_ORGANISATION

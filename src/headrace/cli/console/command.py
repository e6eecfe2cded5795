"""`headrace console`: the console of any Kafka cluster, in this process.

To be reachable from other machines it needs logins at the broker, and TLS here or in a proxy in front of it. Anything
less is refused at start.
"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from headrace.cli.cluster_option import bootstrap_option, client_config_option, read_client_config
from headrace.cli.logs import set_up_logs
from headrace.cli.serve.console import has_packages
from headrace.cli.serve.listening import is_loopback, listen
from headrace.cli.serve.trouble import START_TROUBLE, sentence_of
from headrace.client.cluster import parse_broker_address
from headrace.client.connection import ClientSecurity
from headrace.client.errors import PropertyError
from headrace.client.properties import parse_security
from headrace.console.settings import ConsoleSettings
from headrace.security.listeners import show_address

DEFAULT_HTTP_PORT = 9080


@click.command()
@bootstrap_option
@client_config_option
@click.option("--http-host", default="127.0.0.1", metavar="HOST", help="Address to listen on.  [default 127.0.0.1]")
@click.option("--http-port", type=click.IntRange(0, 65535), default=DEFAULT_HTTP_PORT, metavar="PORT",
              help=f"Port to listen on; 0 picks a free one.  [default {DEFAULT_HTTP_PORT}]")  # fmt: skip
@click.option("--tls-cert", default="", metavar="FILE", help="Certificate (PEM) for https.")
@click.option("--tls-key", default="", metavar="FILE", help="Its private key.  [default: in the same file]")
@click.option("--public-url", default="", metavar="URL", help="https://HOST of a TLS proxy in front of the console.")
@click.option("--read-only", is_flag=True, help="Change nothing.")
def console(
    bootstrap: str,
    client_config: Path | None,
    http_host: str,
    http_port: int,
    tls_cert: str,
    tls_key: str,
    public_url: str,
    read_only: bool,
) -> None:
    """Show a Kafka cluster in the browser.

    If --client-config uses SASL, visitors log in as their own user; a user and password in that file are ignored.
    Without logins the console is reachable from this machine only.

    \b
    Examples:
      headrace console
      headrace console --bootstrap kafka-1:9092 --read-only
      headrace console --client-config sasl.properties --tls-cert console.pem
    """
    if not has_packages():
        raise click.ClickException("the console needs more packages: pip install 'headrace[console]'")
    security = _security(client_config)
    try:
        for address in bootstrap.split(","):
            parse_broker_address(address)
    except ValueError:
        raise click.UsageError(f"--bootstrap {bootstrap!r} is not HOST:PORT") from None
    settings = ConsoleSettings(
        bootstrap=bootstrap,
        security=security,
        needs_login=security.sasl is not None,
        read_only=read_only,
        is_loopback=is_loopback(http_host),
        tls_certificate=tls_cert,
        tls_key=tls_key,
        public_url=public_url.rstrip("/"),
    )
    _check(settings, http_host)
    set_up_logs("info", "auto")
    try:
        listener = listen(http_host, http_port, "--http-")
    except START_TROUBLE as error:
        raise click.ClickException(sentence_of(error)) from None
    from headrace.console.server import serve  # its packages are an extra

    scheme = "https" if tls_cert else "http"
    click.echo(f"console on {public_url or f'{scheme}://{show_address(http_host, listener.getsockname()[1])}'}")
    serve(settings, listener)


def _security(client_config: Path | None) -> ClientSecurity:
    """TLS and SASL from the file, without its user: visitors have their own."""
    properties = read_client_config(client_config)
    try:
        security = parse_security({"sasl.username": "", "sasl.password": "", **properties})
        security.ssl_context()
    except PropertyError as error:
        raise click.UsageError(f"--client-config {client_config}: {error}") from None
    if security.sasl is None:
        return security
    if security.sasl.mechanism == "OAUTHBEARER":
        raise click.UsageError(f"--client-config {client_config}: visitors log in with SCRAM or PLAIN, not with tokens")
    unnamed = msgspec.structs.replace(security.sasl, username="", password="")
    return msgspec.structs.replace(security, sasl=unnamed)


def _check(settings: ConsoleSettings, http_host: str) -> None:
    if settings.public_url and not settings.public_url.startswith("https://"):
        raise click.UsageError("--public-url is https://HOST: passwords would travel unencrypted over http")
    if not settings.is_loopback and not settings.needs_login:
        raise click.UsageError(
            f"--http-host {http_host} would expose the cluster to everybody: use logins (--client-config with SASL), "
            "or 127.0.0.1"
        )
    if not settings.is_loopback and not settings.is_secure:
        raise click.UsageError(f"--http-host {http_host} needs TLS for logins: add --tls-cert FILE, or --public-url")

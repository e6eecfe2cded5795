"""`headrace doctor`: checks everything a broker needs, and says how to fix what is wrong."""

from __future__ import annotations

import logging
import os
import textwrap
from pathlib import Path

import click

from headrace.cli.cluster_option import Seconds, client_config_option, client_security
from headrace.cli.doctor.broker import check_broker
from headrace.cli.doctor.findings import CheckResult, Severity, warn
from headrace.cli.doctor.health import check_health
from headrace.cli.doctor.machine import (
    check_data_directory,
    check_java,
    check_memory,
    check_open_files,
    check_packages,
    check_python,
    check_valkey,
)
from headrace.cli.doctor.port import check_port
from headrace.cli.doctor.redis import check_embedded, check_redis
from headrace.cli.doctor.security import check_security
from headrace.cli.output import count_of, one_line, print_json, styled
from headrace.cli.serve.console import is_wanted
from headrace.cli.settings.layers import BOOTSTRAP_VARIABLE, Loaded, listeners_of
from headrace.cli.settings.options import setting_options
from headrace.cli.settings.table import Settings
from headrace.security.listeners import show_address

_COLOURS = {Severity.OK: "green", Severity.WARN: "yellow", Severity.FAIL: "red"}


@click.command()
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    envvar=BOOTSTRAP_VARIABLE,
    help=f"Broker to check.  [default: the one on --host and --port, if any; {BOOTSTRAP_VARIABLE}]",
)
@click.option("--probe", is_flag=True, help="Send and read a record, in a temporary topic.")
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=Seconds(),
    default=5.0,
    help="Timeout for each request.  [default 5]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@client_config_option
@setting_options(
    "host",
    "port",
    "nodes",
    "listen",
    "allow_plaintext",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "admin_password_file",
    "http_host",
    "http_port",
    "console",
    "data_dir",
    "redis",
    "key_prefix",
    "connections_max",
    others_too=True,
)
def doctor(
    loaded: Loaded, bootstrap: str | None, client_config: Path | None, probe: bool, timeout_s: float, as_json: bool
) -> None:
    """Check this machine, its exposure to others, Redis, and the health of a running broker.

    Each check prints ok, warn or fail, and what to do. The exit code is 1 if any check fails.

    \b
    Examples:
      headrace doctor
      headrace doctor --redis redis://localhost:6379/0
      headrace doctor --bootstrap localhost:9092 --probe
      headrace doctor --bootstrap hub:9093 --client-config admin.properties
      headrace doctor --http-port 9080
      headrace doctor --json | jq '.[] | select(.level != "ok")'
    """
    logging.getLogger("headrace").addHandler(logging.NullHandler())  # what the store's links log, the findings say
    settings = loaded.settings
    findings = _check_machine(settings) + check_security(loaded, client_config)
    first, *_ = listeners = listeners_of(settings)
    ports = [
        check_port(one.host, port, tls=one.is_tls, certificate=one.client_auth == "required")
        for one in listeners
        for port in _ports(one.port, settings.nodes)
    ]
    findings += [found for found, _ in ports]
    has_broker = ports[0][1]
    if settings.redis:
        findings += check_redis(settings)
    else:
        findings += check_embedded(settings.data_dir)
    security = client_security(client_config)
    is_open = first.protocol == "PLAINTEXT" or client_config is not None
    if bootstrap is None and (probe or has_broker) and is_open:
        bootstrap = show_address(first.host, first.port)
    if bootstrap is not None:
        findings += check_broker(bootstrap, timeout_s, probe=probe, security=security)
    elif has_broker:
        findings.append(
            warn("broker", f"not checked: it requires {first.protocol}", "log in with --client-config FILE")
        )
    if settings.http_port:
        for port in _ports(settings.http_port, 1 if is_wanted(settings) else settings.nodes):
            findings.append(check_health(settings.http_host, port, timeout_s, has_broker=bootstrap is not None))
    if as_json:
        print_json(findings)
    else:
        _show(findings)
    if any(finding.level is Severity.FAIL for finding in findings):
        raise SystemExit(1)


def _ports(first: int, nodes: int) -> list[int]:
    """The ports of all nodes; ports picked at start need no check."""
    return [first + index for index in range(nodes)] if first else [first]


def _check_machine(settings: Settings) -> list[CheckResult]:
    own_redis = bool(settings.redis)
    return [
        check_python(),
        check_packages(),
        check_valkey(needed=not own_redis),
        *([] if own_redis else [check_data_directory(settings.data_dir)]),
        check_memory(),
        check_open_files(settings.connections_max),
        check_java(needed=bool(settings.lake)),
    ]


def _show(findings: list[CheckResult]) -> None:
    """Prints the report. Not as a table, because findings may be too long for a column."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        level = styled(f"{finding.level:4}", colour=_COLOURS[finding.level], bold=finding.level is not Severity.OK)
        indent = " " * (width + 8)
        click.echo(f"{level}  {finding.check:<{width}}  {_wrapped(finding.found, indent).lstrip()}")
        if finding.advice:
            click.echo(_wrapped(f"-> {finding.advice}", indent, hang="   "))
    failed = sum(finding.level is Severity.FAIL for finding in findings)
    warned = sum(finding.level is Severity.WARN for finding in findings)
    click.echo()
    if failed or warned:
        click.echo(f"{count_of(failed, 'problem')}, {count_of(warned, 'warning')}")
    else:
        click.echo("no problems found")


def _wrapped(words: str, indent: str, hang: str = "") -> str:
    """Wrapped to the width; paths and URLs stay whole, to be copied."""
    return textwrap.fill(
        one_line(words),
        _columns(),
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _columns() -> int:
    """The terminal's width, or the default without a terminal."""
    try:
        return max(os.get_terminal_size().columns, 40)
    except OSError:
        return 100

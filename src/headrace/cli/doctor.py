"""`headrace doctor`: checks what a broker needs, and says what to do about what is missing."""

from __future__ import annotations

import os
import textwrap

import click

from headrace.cli.broker_checks import check_broker
from headrace.cli.cluster_option import Seconds
from headrace.cli.findings import Finding, Level
from headrace.cli.listening import show_address
from headrace.cli.machine_checks import (
    check_data_directory,
    check_java,
    check_memory,
    check_open_files,
    check_packages,
    check_python,
    check_valkey,
)
from headrace.cli.output import count_of, one_line, print_json, styled
from headrace.cli.port_checks import check_port
from headrace.cli.redis_checks import check_redis
from headrace.cli.setting_options import setting_options
from headrace.cli.settings import Settings
from headrace.cli.settings_layers import BOOTSTRAP_VARIABLE, Loaded

_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command()
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    envvar=BOOTSTRAP_VARIABLE,
    help=f"Check this broker; else the one on --host and --port, if there is one.  [{BOOTSTRAP_VARIABLE}]",
)
@click.option("--probe", is_flag=True, help="Send a record through the broker, in a topic that is deleted again.")
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=Seconds(),
    default=5.0,
    help="Longest wait for the broker.  [default 5]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@setting_options("host", "port", "data_dir", "redis", "key_prefix", "connections_max")
def doctor(loaded: Loaded, bootstrap: str | None, probe: bool, timeout_s: float, as_json: bool) -> None:
    """Check Python, packages, the embedded Valkey, the data directory, the port, Redis, a JDK and a running broker.

    Each check says ok, warn or fail, and what to do. The exit code is 1 if one fails.

    \b
    Examples:
      headrace doctor
      headrace doctor --redis redis://localhost:6379/0
      headrace doctor --bootstrap localhost:9092 --probe
      headrace doctor --json | jq '.[] | select(.level != "ok")'
    """
    settings = loaded.settings
    findings = _check_machine(settings)
    port, has_broker = check_port(settings.host, settings.port)
    findings.append(port)
    if settings.redis:
        findings += check_redis(settings.redis, settings.key_prefix)
    if bootstrap is None and (probe or has_broker):
        bootstrap = show_address(settings.host, settings.port)
    if bootstrap is not None:
        findings += check_broker(bootstrap, timeout_s, probe=probe)
    if as_json:
        print_json(findings)
    else:
        _show(findings)
    if any(finding.level is Level.FAIL for finding in findings):
        raise SystemExit(1)


def _check_machine(settings: Settings) -> list[Finding]:
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


def _show(findings: list[Finding]) -> None:
    """Not a table: what was found may be long, and is easier to read below its name than in a column."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        level = styled(f"{finding.level:4}", colour=_COLOURS[finding.level], bold=finding.level is not Level.OK)
        indent = " " * (width + 8)
        click.echo(f"{level}  {finding.check:<{width}}  {_wrapped(finding.found, indent).lstrip()}")
        if finding.advice:
            click.echo(_wrapped(f"-> {finding.advice}", indent, hang="   "))
    failed = sum(finding.level is Level.FAIL for finding in findings)
    warned = sum(finding.level is Level.WARN for finding in findings)
    click.echo()
    if failed or warned:
        click.echo(f"{count_of(failed, 'problem')}, {count_of(warned, 'warning')}")
    else:
        click.echo("all is well")


def _wrapped(words: str, indent: str, hang: str = "") -> str:
    """On as many lines as it takes; paths and URLs stay whole, to be copied."""
    return textwrap.fill(
        one_line(words),
        _columns(),
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _columns() -> int:
    """The terminal's width; the usual one where there is no terminal."""
    try:
        return max(os.get_terminal_size().columns, 40)
    except OSError:
        return 100

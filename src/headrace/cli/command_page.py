"""Renders docs/cli.md: recipes, then the help of every command.

Generated from the commands (`make docs`), so that the page cannot disagree with them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from headrace.cli.main import COMMANDS, load_command, main

_WIDTH = 80
_LONG = {"serve": "Every setting is an option of `serve`: [settings.md](settings.md) lists them."}
"""Commands whose options are listed elsewhere, and where."""

_HEAD = """\
# The command

`headrace` starts a broker and administers one. In a clone it is `.venv/bin/headrace`, or just `headrace` after
`. .venv/bin/activate`, as in the examples on this page.

Commands find the broker by `--bootstrap HOST:PORT` (several separated by commas), by the variable `HEADRACE_BOOTSTRAP`,
or on 127.0.0.1:9092. They work with any Kafka broker; what only Headrace has, such as a group's `cgp_...` id, is
left out with others.

On a terminal they print tables that fit its width. In a pipe or a file the same columns are plain text, one row per
line, and `consume` prints values only. `--json` is for scripts: one document, or one object per line from `produce` and
`consume`.

A failing command prints one sentence on standard error. Exit codes: 0 success, 1 failure, 2 usage error.
While a part of the store is away, commands that show something show the rest, name each thing that is unknown on
standard error, and exit with 1.

Positions in a log look the same everywhere (`consume --from`, `groups reset --to`): `earliest`, `latest`, an offset
(`4711`), `-10` for the last ten records of each partition, a time (`2026-05-01`, `2026-05-01T10:00:00+02:00`,
`@1777629600000` in milliseconds) or an age (`10m`, `2h`, `7d`). Times without a zone are UTC.

## Recipes

Copy a topic, without keys:

```console
$ headrace consume orders | headrace produce orders-copy
```

Send a log file to a topic, line by line as it grows:

```console
$ tail -f app.log | headrace produce logs --compression zstd
```

The keys of the last hundred records of each partition, most frequent first:

```console
$ headrace consume orders --from -100 --json | jq -r .key | sort | uniq -c | sort -rn
```

Rewind a group to a date (stop its members first); without `--execute` this is a dry run:

```console
$ headrace groups reset billing --all-topics --to 2026-05-01
$ headrace groups reset billing --all-topics --to 2026-05-01 --execute
```

Save a group's offsets, and restore them later:

```console
$ headrace groups reset billing --all-topics --shift 0 --json > billing.json
$ headrace groups reset billing --from-file billing.json --execute
```

Groups with a lag of more than a thousand records:

```console
$ headrace groups lag --json | jq -r '.[] | select(.lag > 1000) | "\\(.group) \\(.topic) \\(.lag)"'
```

Wait in a script until a broker is up:

```console
$ until headrace topics list --timeout 1 > /dev/null 2>&1; do sleep 0.2; done
```

## What JSON looks like

`consume --json` prints one object per line. Bytes that are not UTF-8 are base64, in `key_base64` or `value_base64`
instead of `key` or `value`; a missing key or value is `null`.

```json
{"topic":"orders","partition":0,"offset":42,"timestamp":1777629600000,"key":"alice","value":"lamp","headers":[{"name":"trace","value":"7f3"}]}
```

`groups reset --json` prints the plan as a file for `--from-file`. A CSV file has lines `topic,partition,offset`.

```json
{"group":"billing","executed":false,"offsets":[{"topic":"orders","partition":0,"before":42,"offset":0,"note":""}]}
```

## Every command

This page is generated from the commands' help by `make docs`.
"""


def render() -> str:
    """The page."""
    lines = [_HEAD.rstrip()]
    for words, command in every_command():
        lines += ["", f"### headrace {words}", "", "```text", _help(words, command), "```"]
        if words in _LONG:
            lines += ["", _LONG[words]]
    return "\n".join(lines) + "\n"


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Each command that is not a group, with its full name."""
    for name in COMMANDS:
        yield from _below(name, load_command(name))


def _below(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name in sorted(command.commands):
        yield from _below(f"{words} {name}", command.commands[name])


def _help(words: str, command: click.Command) -> str:
    context = click.Context(
        command, info_name=f"headrace {words}", terminal_width=_WIDTH, **main.context_settings
    )  # fmt: skip
    text = command.get_help(context)
    return text.partition("\nOptions:")[0].rstrip() if words in _LONG else text


if __name__ == "__main__":
    sys.stdout.write(render())

"""docs/cli.md: what each command's own help says, behind recipes for what people want to do.

Made from the commands, so that the page cannot disagree with them: `make docs`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module

import click

from headrace.cli.main import COMMANDS, main

_WIDTH = 80
_LONG = {"serve": "Every setting is an option of `serve`: [settings.md](settings.md) lists them."}
"""Commands whose options are not repeated here, and where they are."""

_HEAD = """\
# The command

`headrace` serves a broker and looks after one. In a clone it is `.venv/bin/headrace`; `. .venv/bin/activate` makes it
`headrace`, as the examples on this page write it.

Commands that speak to a broker find it with `--bootstrap HOST:PORT` (several with commas), or by the variable
`HEADRACE_BOOTSTRAP`, or on 127.0.0.1:9092. They work with any Kafka broker; what only headrace has, such as a group's
`cgp_...` id, is left out elsewhere.

On a terminal they print tables that fit its width. In a pipe or a file the same columns are plain text, one line each,
and `consume` prints the values alone. `--json` is for scripts: one document, or one object a line from `produce` and
`consume`.

A command that fails says why in one sentence on standard error. Exit codes: 0 done, 1 failed, 2 not understood.

Places in a log are written alike everywhere (`consume --from`, `groups reset --to`): `earliest`, `latest`, an offset
(`4711`), `-10` for the last ten records of each partition, a moment (`2026-05-01`, `2026-05-01T10:00:00+02:00`,
`@1777629600000` in milliseconds) or a time ago (`10m`, `2h`, `7d`). Moments without a zone are UTC.

## Recipes

Copy a topic, keys left behind:

```console
$ headrace consume orders | headrace produce orders-copy
```

Follow a log file into a topic, each line as it is written:

```console
$ tail -f app.log | headrace produce logs --compression zstd
```

The keys of the last hundred records of each partition, most frequent first:

```console
$ headrace consume orders --from -100 --json | jq -r .key | sort | uniq -c | sort -rn
```

Let a group read everything since a day again (stop its members first); without `--execute` it only shows the plan:

```console
$ headrace groups reset billing --all-topics --to 2026-05-01
$ headrace groups reset billing --all-topics --to 2026-05-01 --execute
```

Keep where a group stands, and put it back there later:

```console
$ headrace groups reset billing --all-topics --shift 0 --json > billing.json
$ headrace groups reset billing --from-file billing.json --execute
```

Groups that are behind by more than a thousand records:

```console
$ headrace groups lag --json | jq -r '.[] | select(.lag > 1000) | "\\(.group) \\(.topic) \\(.lag)"'
```

Wait in a script until a broker is up:

```console
$ until headrace topics list --timeout 1 > /dev/null 2>&1; do sleep 0.2; done
```

## What JSON looks like

`consume --json` prints one object a line. Bytes that are no UTF-8 text come as base64, under `key_base64` or
`value_base64` instead of `key` or `value`; an absent key or value is `null`.

```json
{"topic":"orders","partition":0,"offset":42,"timestamp":1777629600000,"key":"alice","value":"lamp","headers":[{"name":"trace","value":"7f3"}]}
```

`groups reset --json` prints the plan, which `--from-file` takes back. A CSV file has lines `topic,partition,offset`.

```json
{"group":"billing","executed":false,"offsets":[{"topic":"orders","partition":0,"before":42,"offset":0,"note":""}]}
```

## Every command

This page is made from the commands' own help by `make docs`.
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
    """Each command that does something, with the words that call it."""
    for name in COMMANDS:
        yield from _below(name, getattr(import_module(f"headrace.cli.{name}"), name))


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

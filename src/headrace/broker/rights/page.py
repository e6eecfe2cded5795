"""Renders docs/rights.md from the table of rights (`make docs`)."""

from __future__ import annotations

from headrace.broker.rights.table import ASKS_NOTHING, ROWS, Row
from headrace.wire.apis import SPOKEN
from headrace.wire.errors import ErrorCode

_HEAD = """\
# Rights that each API needs

With an [authorizer](security.md#rights), a request needs these rights, as in Apache Kafka. `DESCRIBE` comes with
`READ`, `WRITE`, `DELETE` and `ALTER`, and `DESCRIBE_CONFIGS` with `ALTER_CONFIGS`; `ALL` is every operation. Without
the right, a client gets the error in the last column, in the resource's row if the response has rows.

This page is generated from `src/headrace/broker/rights/table.py` by `make docs`; a test tries each row with the right
alone and without it.

| API | needs | on | notes | error without it |
|---|---|---|---|---|
"""
_TAIL = """
## APIs that need no right

| API | why |
|---|---|
"""


def render() -> str:
    """docs/rights.md."""
    lines = [_row(row) for row in ROWS]
    free = [f"| {SPOKEN[key].name} ({key}) | {why} |" for key, why in ASKS_NOTHING.items()]
    return _HEAD + "\n".join(lines) + "\n" + _TAIL + "\n".join(free) + "\n"


def _row(row: Row) -> str:
    resource = row.resource.name.lower().replace("_", " ")
    error = f"{ErrorCode(row.error).name} ({row.error})"
    since = f"; from version {row.oldest} on" if row.oldest else ""
    return (
        f"| {SPOKEN[row.api].name} ({row.api}) | `{row.operation.name}` | {resource} | {row.notes}{since} | {error} |"
    )

"""`make interop`: runs other languages' clients. `python -m interop kafkajs kcat` runs some of them.

Exit code 1: a check failed. 3: nothing failed, but a tool or a registry was missing. 0: all passed.
"""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.table import Table

from interop.clients import CLIENTS
from interop.runner import Row, run_client

FAILED, MISSING = 1, 3


def main() -> None:
    names = [client.name for client in CLIENTS]
    parser = argparse.ArgumentParser(prog="python -m interop", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"of {', '.join(names)}; default: all")
    chosen: list[str] = parser.parse_args().clients
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"no such client: {', '.join(unknown)} (there are {', '.join(names)})")
    rows = []
    for client in CLIENTS:
        if not chosen or client.name in chosen:
            print(f"{client.name} ...", flush=True)
            rows.append(run_client(client))
            _print_row(rows[-1])
    _print_table(rows)
    sys.exit(FAILED if any(row.failures for row in rows) else MISSING if any(row.missing for row in rows) else 0)


def _print_row(row: Row) -> None:
    for check in row.checked:
        print(f"  ok      {check}")
    for failure in row.failures:
        print(f"  FAILED  {failure}")
    if row.missing:
        print(f"  {row.result}")


def _print_table(rows: list[Row]) -> None:
    table = Table("client", "version", "checked", "result")
    for row in rows:
        table.add_row(row.client, row.version, ", ".join(row.checked), row.result)
    Console().print(table, highlight=False)


if __name__ == "__main__":
    main()

"""`make bench`: measures and prints tables. `python -m bench scaling` runs a part of it, --quick a short form."""

from __future__ import annotations

import argparse
from importlib import import_module

PARTS = {
    "scaling": "cost per operation as the log and the topics grow: commands and time",
    "startup": "start to ready, and the memory of an idle broker",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="; ".join(f"{k}: {v}" for k, v in PARTS.items()))
    parser.add_argument("--quick", action="store_true", help="smaller sizes: shows that it runs, not how fast")
    chosen = parser.parse_args()
    if unknown := [part for part in chosen.parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)} (there are {', '.join(PARTS)})")
    for part in chosen.parts or PARTS:
        print(f"\n## {part}: {PARTS[part]}\n")
        import_module(f"bench.{part}").run(quick=chosen.quick)


if __name__ == "__main__":
    main()

"""The difference between two documents, or sets of rows, and applying it."""

from __future__ import annotations

from typing import Any


def apply(known: dict[Any, Any], changes: dict[Any, Any]) -> None:
    """Takes changes in; None removes."""
    for key, value in changes.items():
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value


def difference(stored: dict[str, bytes], wanted: dict[str, bytes]) -> dict[str, bytes | None]:
    """The changes that turn one into the other."""
    changes: dict[str, bytes | None] = {field: raw for field, raw in wanted.items() if stored.get(field) != raw}
    changes.update(dict.fromkeys(stored.keys() - wanted.keys()))
    return changes

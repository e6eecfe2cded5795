"""Stored fields and rows as values. What cannot be read is reported, and costs nothing else."""

from __future__ import annotations

import logging
from typing import Any

from headrace.broker.owned.contract import Kind, Name
from headrace.store.cluster.owned.things import Taken

log = logging.getLogger(__name__)


def unpacked_fields(kind: Kind[Any], name: Name, taken: Taken) -> dict[str, Any]:
    """All fields, or none."""
    try:
        return {field: kind.unpack_field(field, raw) for field, raw in taken.fields.items()}
    except ValueError as error:
        log.error(
            f"a stored {kind.title} cannot be read; other stored data is kept",
            extra={kind.title: name.id, "why": str(error)},
        )
        return {}


def unpacked_rows(kind: Kind[Any], name: Name, taken: Taken) -> dict[Any, Any]:
    """One row that cannot be read must not cost the others."""
    rows: dict[Any, Any] = {}
    for field, raw in taken.rows.items():
        try:
            row, value = kind.unpack_row(field, raw)
        except ValueError as error:
            log.error(
                f"a stored row of a {kind.title} cannot be read",
                extra={kind.title: name.id, "row": field, "why": str(error)},
            )
        else:
            rows[row] = value
    return rows

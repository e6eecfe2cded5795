"""A thing's document and rows as they are stored: what a decision changes in them, packed and unpacked.

What cannot be read is reported, and costs nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from headrace.broker.owned.contract import Decision, Kind, Name
from headrace.store.cluster.owned.things import Changes, OwnedStore, Taken
from headrace.wire.errors import KafkaError

log = logging.getLogger(__name__)

Document = dict[str, Any]
Both = tuple[Document, dict[Any, Any]]
"""Fields and rows."""


def changes_of(decision: Decision[Any], fields: Document, rows: dict[Any, Any]) -> Both:
    """The fields and rows that a decision sets to something else; None removes."""
    wanted = decision.fields
    changed_rows = {row: value for row, value in decision.rows.items() if value is not None or row in rows}
    if wanted is None:
        return {}, changed_rows
    changed = {field: value for field, value in wanted.items() if fields.get(field) != value}
    return changed | dict.fromkeys(fields.keys() - wanted.keys()), changed_rows


def apply(known: dict[Any, Any], changes: dict[Any, Any]) -> None:
    """Takes changes in; None removes."""
    for key, value in changes.items():
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value


def packed(kind: Kind[Any], fields: Document, rows: dict[Any, Any]) -> Changes:
    return Changes(
        {field: None if value is None else kind.pack_field(field, value) for field, value in fields.items()},
        {kind.row_field(row): None if value is None else kind.pack_row(value) for row, value in rows.items()},
    )


async def write_back(store: OwnedStore, kind: Kind[Any], name: Name, taken: Taken, ours: Both, tried: Both) -> None:
    """Writes back what the store lost, and removes what was never acknowledged or is deleted.

    `tried` is the last write, which the store may have though nobody was told so: that is no loss.
    """
    found = unpacked_fields(kind, name, taken), unpacked_rows(kind, name, taken.rows)
    fields, rows = map(_difference, found, ours)
    if not fields and not rows:
        return
    await store.restore(*name, taken.owner, packed(kind, fields, rows))
    if any(map(_is_lost, (fields, rows), found, tried)):
        log.warning(f"the store had lost state of a {kind.title}: written again", extra={kind.title: name.id})
    else:
        log.debug(f"a write of a {kind.title} that was not acknowledged is undone", extra={kind.title: name.id})


async def put_rows_back(
    store: OwnedStore, kind: Kind[Any], name: Name, ours: dict[Any, Any], *, is_emptied: bool
) -> None:
    """Puts rows back that only this node acknowledged, and the next owner never saw, because the store had lost them.

    A row that is not there at all is left out, unless the store is emptied: the next owner may have deleted it.
    """
    if not (is_emptied or any(map(kind.is_recent, ours.values()))):
        return
    seen = await store.rows(*name)
    found = unpacked_rows(kind, name, seen)

    lost = {
        row: value for row, value in ours.items() if (kind.is_newer(value, found[row]) if row in found else is_emptied)
    }
    fields = {kind.row_field(row): kind.pack_row(value) for row, value in lost.items()}
    if fields and await store.replace_rows(*name, seen, fields):
        log.warning(
            f"the store had lost state of a {kind.title} that another node owns: put back",
            extra={kind.title: name.id, "rows": len(fields)},
        )


async def delete(store: OwnedStore, kind: Kind[Any], name: Name, owner: str | None, claimed: str | None) -> None:
    """Deletes what is stored, if anything is, then its names.

    These may be on a server that is away. They may stay: whoever finds them finds nothing stored.
    """
    if owner is not None:
        await store.delete(*name, owner)
    try:
        if owner is not None:
            await store.unlist(*name)
        if claimed is not None:
            await kind.give_back(name, claimed)
    except KafkaError as error:
        log.info(f"names of a deleted {kind.title} are left", extra={kind.title: name.id, "why": str(error)})


def _difference(found: dict[Any, Any], wanted: dict[Any, Any]) -> dict[Any, Any]:
    changes = {key: value for key, value in wanted.items() if found.get(key) != value}
    return changes | dict.fromkeys(found.keys() - wanted.keys())


def _is_lost(changes: dict[Any, Any], found: dict[Any, Any], tried: dict[Any, Any]) -> bool:
    return any(found.get(key) != tried.get(key, value) for key, value in changes.items())


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


def unpacked_rows(kind: Kind[Any], name: Name, stored: Mapping[str, bytes]) -> dict[Any, Any]:
    """One row that cannot be read must not cost the others."""
    rows: dict[Any, Any] = {}
    for field, raw in stored.items():
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

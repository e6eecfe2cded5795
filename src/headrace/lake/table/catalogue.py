"""Finds, creates and lists the tables of a lake.

A topic's table is in the folder of the topic's name. A recreated topic is another topic, and the old table is kept: on
a file system it is renamed, with its topic's id. Object stores cannot rename, so there the new table gets the id and
the old one stays (docs/decisions/010). By topic id, the right table is found either way; by name alone, the newest.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.lake.records.table_schema import TABLE_SCHEMA
from headrace.lake.storage.conditional_put import check_store
from headrace.lake.storage.place import Place
from headrace.lake.table.delta_log import CHECKPOINT_EVERY
from headrace.lake.table.names import folder_of, folder_with_id, is_derived, is_folder_of
from headrace.lake.table.snapshot import CLUSTER, STARTS, TOPIC, TOPIC_ID, Identity, NoTable, TableRefused
from headrace.lake.table.table import TopicTable

DELTA_PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    # The archive itself keeps the log short (`shorten_log`).
    "delta.enableExpiredLogCleanup": "false",
    # How long a checkpoint remembers replaced files; VACUUM keeps them as long by default.
    "delta.deletedFileRetentionDuration": "interval 2 days",
}
"""Properties of every table, for Delta's own maintenance."""


def find_table(lake: Place, identity: Identity) -> TopicTable | None:
    """The topic's table, if it has one."""
    for place in _places(lake, identity):
        if (table := _open(place)) is not None and table.identity == identity:
            return table
    return None


def place_of_table(lake: Place, identity: Identity) -> Place:
    """The location of the topic's table, whether it exists or not."""
    plain, with_id = _places(lake, identity)
    return with_id if not lake.is_local and with_id.has_table() else plain


def open_or_create(lake: Place, identity: Identity, starts: Mapping[int, int]) -> TopicTable:
    """The topic's table, for writing; a new one records the first offsets of its partitions (`starts`)."""
    check_store(lake)
    if (found := find_table(lake, identity)) is not None:
        return found
    place, with_id = _places(lake, identity)
    if (there := _open(place)) is not None:
        former = there.identity
        if (former.cluster_id, former.topic) != (identity.cluster_id, identity.topic):
            raise TableRefused(
                f"{place} holds topic {former.topic} of cluster {former.cluster_id}, not {identity.topic} of "
                f"{identity.cluster_id}. Give this cluster another --lake, or move the folder away."
            )
        if lake.is_local:
            with contextlib.suppress(FileNotFoundError):
                os.rename(place.uri, (lake / folder_with_id(former.topic, former.topic_id)).uri)
        else:
            place = with_id
    _create(place, identity, starts)
    return TopicTable(place)


OnRefused = Callable[[str, Exception], None]
"""Called with the topic or folder of a table that is refused or unreadable."""

OnElsewhere = Callable[[str, str], None]
"""Called with the topic and the cluster id of a table that belongs to another cluster."""


def tables_in(lake: Place, topics: Sequence[str] = (), refused: OnRefused | None = None) -> list[TopicTable]:
    """The tables of a lake, or of the named topics, without those of deleted topics of the same name.

    A table that cannot be opened is passed to `refused`, so that it does not affect the others.
    """
    folders = [folder for folder in lake.folders() if not is_derived(folder)]
    found: list[TopicTable] = []
    for name in topics or folders:
        try:
            if topics:
                found.append(_newest(lake, name, [folder for folder in folders if is_folder_of(folder, name)]))
            elif (table := _open(lake / name)) is not None:
                found.append(table)
        except (TableRefused, DeltaError, OSError) as error:
            if refused is None:
                raise
            refused(name, error)
    return found


def _open(place: Place) -> TopicTable | None:
    """The table in a folder; None also while it is being created: then the log has no entry yet."""
    if place.has_table():
        with contextlib.suppress(NoTable):
            return TopicTable(place)
    return None


def _places(lake: Place, identity: Identity) -> tuple[Place, Place]:
    """Possible locations of a topic's table."""
    return lake / folder_of(identity.topic), lake / folder_with_id(identity.topic, identity.topic_id)


def _newest(lake: Place, topic: str, folders: Sequence[str]) -> TopicTable:
    tables = [table for folder in folders if (table := _open(lake / folder)) is not None]
    if not tables:
        raise NoTable(f"There is no Delta table in {lake / folder_of(topic)}.")
    return max(tables, key=lambda table: table.created_ms)


def _create(place: Place, identity: Identity, starts: Mapping[int, int]) -> None:
    if place.is_local:
        os.makedirs(place.uri, exist_ok=True)
    try:
        DeltaTable.create(
            place.uri,
            TABLE_SCHEMA,
            mode="ignore",
            name=identity.topic,
            configuration={
                CLUSTER: identity.cluster_id,
                TOPIC: identity.topic,
                TOPIC_ID: identity.topic_id.hex(),
                STARTS: json.dumps(dict(starts)),
                **DELTA_PROPERTIES,
            },
            storage_options=place.storage_options,
            raise_if_key_not_exists=False,
        )
    except DeltaError:
        # A second archive may create it at the same time: its table is as good as ours.
        if not place.has_table():
            raise

"""What to archive of a partition next, or why not: from what the table holds and what the topic still has. No I/O.

Continuity is by range: what lies between the table's end and the topic's log start was never archived and is gone. That
is a gap. It is never stepped over in silence: it stops the partition, or is recorded as accepted.
"""

from __future__ import annotations

import msgspec

from headrace.lake.table import TopicTable


class Plan(msgspec.Struct, frozen=True):
    """The offsets [start, end) to archive next, after a `gap` to record; or the trouble that forbids it."""

    topic: str
    topic_id: bytes
    partition: int
    start: int = 0
    end: int = 0
    gap: tuple[int, int] | None = None
    trouble: str | None = None


def plan_partition(table: TopicTable, partition: int, earliest: int, latest: int, *, accept_gap: bool) -> Plan:
    """The plan for a partition whose topic holds [earliest, latest)."""
    identity, position = table.identity, table.position(partition)
    nothing = Plan(identity.topic, identity.topic_id, partition)
    if trouble := _table_trouble(table, partition):
        return msgspec.structs.replace(nothing, trouble=trouble)
    if latest < position:
        return msgspec.structs.replace(
            nothing,
            trouble=f"it ends at {latest}, behind its table, which holds it up to {position}: the broker's store lost "
            "records or was put back. Move the table's folder out of the lake, and the archive begins a new one",
        )
    if earliest > position:
        if not accept_gap:
            return msgspec.structs.replace(
                nothing,
                trouble=f"offsets {position} to {earliest - 1} were deleted before they were archived; "
                f"--accept-gap records that gap and goes on at {earliest}",
            )
        return msgspec.structs.replace(nothing, start=earliest, end=max(earliest, latest), gap=(position, earliest))
    return msgspec.structs.replace(nothing, start=position, end=latest)


def _table_trouble(table: TopicTable, partition: int) -> str | None:
    if table.foreign:
        return (
            f"its table has files that the archive did not write, such as {table.foreign[0]}: `headrace lake verify` "
            "shows what is wrong, and Delta's RESTORE takes the table back to before"
        )
    covered = table.coverage.get(partition)
    for what, ranges in (("lacks", covered.missing()), ("doubles", covered.doubled())) if covered else ():
        if ranges:
            first, end = ranges[0]
            return f"its table {what} offsets {first} to {end - 1}: take it back with Delta's RESTORE to before that"
    return None

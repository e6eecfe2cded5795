"""Rewrites files that the table's log names but that are missing or truncated, as far as the topic still has them.

The log alone does not show it, so the files are checked periodically. A file's name has its range, row count and
digest. If the topic yields the same content at those offsets, a new file replaces it: readers of the table see no
change, and the notes that `verify` uses stay true. If not, the rows are lost; that is reported once and stops nothing
else, and `--accept-gap` replaces the file with what is left and a gap for the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import msgspec
from deltalake.exceptions import DeltaError

from headrace.lake.archive.plan import Offsets
from headrace.lake.archive.task import ArchiveTask, Outcome
from headrace.lake.archive.troubles import Setbacks
from headrace.lake.fetching import OffsetRange
from headrace.lake.storage.place import reason
from headrace.lake.table.delta_log import Written
from headrace.lake.table.names import RangeFile
from headrace.lake.table.parquet_file import write_gap
from headrace.lake.table.snapshot import StaleArchive
from headrace.lake.table.table import TopicTable

REPAIR_EVERY_S = 600.0
_WHOLE = 1 << 62
"""Maximum size of a rewritten file; the lost one was no larger."""

Fetch = Callable[[Sequence[ArchiveTask]], Sequence[Outcome]]


class Lost(msgspec.Struct, frozen=True):
    """A missing file of a table."""

    table: TopicTable
    file: RangeFile

    @property
    def name(self) -> str:
        return f"{self.table.identity.topic}-{self.file.partition}: offsets {self.file.start} to {self.file.end - 1}"


class Repair:
    """Finds missing files and replaces them. `say` gets the subject of a message, and the message; `again` is called
    for tables to check again in the next round."""

    def __init__(
        self,
        fetch: Fetch,
        say: Callable[[str, str], None],
        again: Callable[[TopicTable], None],
        *,
        accept_gap: bool,
    ) -> None:
        self._fetch, self._say, self._again, self._accept_gap = fetch, say, again, accept_gap

    def round(self, tables: Sequence[TopicTable], hot: Callable[[], tuple[Offsets, Offsets]], done: Setbacks) -> None:
        """Repairs tables; `hot` returns the offsets of the topics that are in Redis."""
        lost: list[Lost] = []
        for table in tables:
            with self._trying(table, done):
                lost += [Lost(table, file) for file in table.snapshot.find_lost()]
        if not lost:
            return
        earliest, latest = hot()
        wanted = {one.file.path: r for one in lost if (r := self._still_there(one, earliest, latest)) is not None}
        answers = dict(zip(wanted, self._fetch([*wanted.values()]), strict=True)) if wanted else {}
        for one in lost:
            with self._trying(one.table, done):
                self._mend(one, answers.get(one.file.path))

    @contextlib.contextmanager
    def _trying(self, table: TopicTable, done: Setbacks) -> Iterator[None]:
        """An error inside is this table's setback, and the table is checked again in the next round."""
        try:
            yield
        except StaleArchive:
            self._again(table)
        except (OSError, ValueError, DeltaError) as error:
            self._again(table)
            done.add(table.identity.topic, reason(error), error)

    def _still_there(self, lost: Lost, earliest: Offsets, latest: Offsets) -> ArchiveTask | None:
        """The topic's records in a missing file's range: all of them, or the last part if a gap is accepted."""
        identity, file = lost.table.identity, lost.file
        at = (identity.topic, file.partition)
        if file.is_gap or at not in earliest or latest[at] < file.end:
            return None
        start = max(file.start, earliest[at])
        if start >= file.end or (start > file.start and not self._accept_gap):
            return None
        offsets = OffsetRange(identity.topic, file.partition, start, file.end)
        return ArchiveTask(offsets, identity.topic_id, lost.table.place, _WHOLE)

    def _mend(self, lost: Lost, found: Outcome | None) -> None:
        table, file = lost.table, lost.file
        written = found.written if found is not None else None
        if file.is_gap:
            written = write_gap(table.place, file.partition, file.start, file.end)
        if written is not None and _stands_for(written.file) == _stands_for(file):
            table.replace([file], [written], same_rows=True)
            self._say(f"mended {file.path}", f"{lost.name} were lost from the table and have been written again")
        elif found is not None and found.passes:
            raise OSError(found.trouble or "")
        elif self._accept_gap:
            table.replace([file], _what_is_left(lost, written), same_rows=False)
            self._say(f"gap {file.path}", f"{lost.name} were lost from the table; missing records are now a gap")
        else:
            why = "the topic no longer has them" if written is None else "the topic has other records now"
            self._say(
                f"lost {file.path}",
                f"{lost.name} are lost from the table, and {why}; --accept-gap records that as a gap",
            )


def _stands_for(file: RangeFile) -> tuple[int, int, int, str]:
    return file.start, file.end, file.rows, file.digest


def _what_is_left(lost: Lost, written: Written | None) -> list[Written]:
    """Files for the whole range: a gap, followed by what the topic still had."""
    file, place = lost.file, lost.table.place
    if written is None or written.file.end != file.end:
        return [write_gap(place, file.partition, file.start, file.end)]
    if written.file.start == file.start:
        return [written]
    return [write_gap(place, file.partition, file.start, written.file.start), written]

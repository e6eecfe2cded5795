"""The archive's own compaction: after each round, what has become many small files is merged by Spark's tasks.

It is a courtesy to readers and never a duty: whatever goes wrong here is said once and leaves the tables as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from deltalake.exceptions import DeltaError

from headrace.lake.compaction import Merge, merge, plan_merges
from headrace.lake.place import reason
from headrace.lake.table import StaleArchive, TopicTable, Written

OnSpark = Callable[[Sequence[bytes], Callable[[bytes], bytes]], list[bytes]]


def run_encoded(content: bytes) -> bytes:
    """What Spark maps over the merges, which travel as bytes."""
    return msgspec.msgpack.encode(merge(msgspec.msgpack.decode(content, type=Merge)))


class Tidying:
    """Merges files of tables as they come to need it."""

    def __init__(self, on_spark: OnSpark, say: Callable[[str, str], None]) -> None:
        self._on_spark, self._say = on_spark, say

    def round(self, tables: Sequence[TopicTable]) -> int:
        """Merges once where there is something to merge; how many files are fewer for it."""
        fewer = 0
        for table in tables:
            if plans := plan_merges(table):
                try:
                    fewer += self._merge(table, plans)
                except (OSError, ValueError, DeltaError) as error:
                    topic = table.identity.topic
                    self._say(f"merge {topic} {error}", f"files of {topic} are not merged: {reason(error)}")
        return fewer

    def _merge(self, table: TopicTable, plans: Sequence[Merge]) -> int:
        answers = self._on_spark([msgspec.msgpack.encode(plan) for plan in plans], run_encoded)
        merged = [msgspec.msgpack.decode(answer, type=Written) for answer in answers]
        replaced = [file for plan in plans for file in plan.files]
        try:
            table.replace(replaced, merged, same_rows=True)
        except StaleArchive:
            return 0  # another archive was first
        return len(replaced) - len(merged)

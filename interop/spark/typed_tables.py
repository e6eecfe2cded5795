"""delta-spark opens the typed tables and rejects that are made from an archived topic, with proper types."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.client import Admin, Cluster, Producer
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import tables_in
from headrace.lake.typed.setting import set_definition
from headrace.schemas.documents import from_examples
from interop.report import expect

TOPIC = "spark-typed"
COUNT = 200
SCHEMA = {
    "_partition": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
    "_key": "binary",
    "id": "bigint",
    "price": "double",
    "at": "timestamp",
    "lines": "array<struct<sku:string,n:bigint>>",
    "gift": "struct<to:string>",
}


class TypedTables:
    """The checks, one after the other on one topic."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self._spark, self._address, self._lake = spark, address, folder / "typed"

    @property
    def checks(self) -> dict[str, Callable[[], None]]:
        return {"delta-spark: typed tables and rejects, with columns added later": self.typed}

    def typed(self) -> None:
        with Cluster(self._address) as cluster:
            Admin(cluster).create_topic(TOPIC, 2)
            self._send(cluster, [_order(n) for n in range(COUNT)] + [b"no order"])
            self._archive(cluster)
            (raw,) = tables_in(place_of(self._lake))
            definition, _ = from_examples([_order(0)])
            set_definition(place_of(self._lake), raw.identity, definition)
            self._send(cluster, [_order(COUNT, gift={"to": "bob"})])
            self._archive(cluster)
        typed, rejects = self._table("typed"), self._table("rejects")
        expect("columns", dict(typed.dtypes), SCHEMA)
        expect("ids", sorted(row.id for row in typed.collect()), list(range(COUNT + 1)))
        gifts = typed.where("gift IS NOT NULL").selectExpr("id", "gift.to AS receiver").collect()
        expect("gifts", [(row.id, row.receiver) for row in gifts], [(COUNT, "bob")])
        found = typed.where("id BETWEEN 10 AND 12").selectExpr("sum(price) AS total", "max(lines[0].n) AS n").first()
        expect("sums", found and (found.total, found.n), (16.5, 12))
        expect("rejects", [bytes(row.value) for row in rejects.collect()], [b"no order"])

    def _send(self, cluster: Cluster, values: list[bytes]) -> None:
        with Producer(cluster) as producer:
            for at, value in enumerate(values):
                producer.send(TOPIC, value, partition=at % 2)

    def _archive(self, cluster: Cluster) -> None:
        Archive(self._spark, cluster, ArchiveSettings(place_of(self._lake), [TOPIC])).run_once()

    def _table(self, what: str) -> DataFrame:
        return self._spark.read.format("delta").load(str(self._lake / f"{TOPIC}_.{what}"))


def _order(number: int, **more: object) -> bytes:
    lines = [{"sku": "a", "n": number}]
    return json.dumps(
        {"id": number, "price": number / 2, "at": "2026-05-01T10:00:00Z", "lines": lines, **more}
    ).encode()

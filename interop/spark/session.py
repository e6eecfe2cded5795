"""A Spark session with the Kafka connector and delta-spark in it, as their documentation sets them up."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from interop.clients import SPARK_JARS

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SMALL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    # The default, 50, is for logs of many thousand files; each takes a task of its own.
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""Starts and plans quickly; with little data nothing else counts."""


@contextlib.contextmanager
def session(folder: Path, settings: Mapping[str, str] = SMALL, *, with_packages: bool = True) -> Iterator[SparkSession]:
    """A local session on two cores that writes its own things to `folder`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    packages = DELTA | {"spark.jars": ",".join(str(jar) for jar in sorted(SPARK_JARS.glob("*.jar")))}
    own = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("interop")
    for name, value in (own | (packages if with_packages else {}) | dict(settings)).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()

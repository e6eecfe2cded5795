"""Spark's Kafka connector and delta-spark, against the broker whose address is the first argument."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from interop.clients import SPARK_JARS
from interop.report import Checks
from interop.spark.connector import Connector
from interop.spark.delta_tables import DeltaTables
from interop.spark.logins import Logins
from interop.spark.session import session
from interop.spark.typed_tables import TypedTables


def version() -> str:
    """Of the connector, of delta-spark and of Spark itself, which comes from PyPI."""
    import pyspark

    def of(name: str) -> str:
        (jar,) = SPARK_JARS.glob(f"{name}-[0-9]*.jar")
        return jar.stem.removeprefix(f"{name}-")

    connector, delta = of("spark-sql-kafka-0-10_2.13"), of("delta-spark_4.2_2.13")
    return f"{connector}, delta-spark {delta}, Spark {pyspark.__version__}"


def main() -> None:
    checks = Checks(version())
    with tempfile.TemporaryDirectory(prefix="headrace-interop-spark-") as name:
        folder = Path(name)
        with session(folder) as spark:
            for part in (Connector, Logins, DeltaTables, TypedTables):
                for title, check in part(spark, sys.argv[1], folder).checks.items():
                    checks.check(title, check)
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()

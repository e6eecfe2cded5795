"""The Spark part of the demo: the archive command and a streaming SQL query."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from demo.orders import HOUR_MS, Tally
from demo.story_errors import Disagreement
from headrace.lake.session import spark_session

_COMMAND = (sys.executable, "-c", "from headrace.cli.main import main; main()")

SQL = """\
SELECT date_trunc('HOUR', timestamp) AS hour,
       count(*) AS orders,
       sum(get_json_object(value::STRING, '$.cents')::BIGINT) AS cents
FROM orders
GROUP BY hour"""


def headrace(*words: str) -> str:
    """Returns the output of a `headrace` command; a failing one ends the demo with its error."""
    done = subprocess.run((*_COMMAND, *words), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Disagreement(f"headrace {' '.join(words)} failed ({done.returncode}): {done.stderr or done.stdout}")
    return done.stdout


def sum_up(address: str, topic: str, folder: Path) -> Tally:
    """A streaming query over all of the topic, in SQL."""
    with spark_session("local[2]") as spark:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        stream = (
            spark.readStream.format("headrace")
            .option("kafka.bootstrap.servers", address)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        stream.createOrReplaceTempView("orders")
        query = (
            spark.sql(SQL)
            .writeStream.format("memory")
            .queryName("by_hour")
            .outputMode("complete")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = spark.sql("SELECT unix_millis(hour) AS ms, orders, cents FROM by_hour").collect()
    tally = Tally(sum(row.orders for row in rows), sum(row.cents for row in rows))
    tally.cents_by_hour.update({row.ms // HOUR_MS: row.cents for row in rows})
    return tally

"""The archive on a real standalone cluster: a master, a worker and its executors, each a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from tests.broker_process import free_port, wait_until
from tests.cli.conftest import COMMAND, environment
from tests.lake.archiving import records_of, table_of
from tests.lake.conftest import Topic
from tests.lake.other_reader import rows_of

pytest.importorskip("pyspark")

START_TIMEOUT_S = 300
ARCHIVE_TIMEOUT_S = 600
ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A master with one worker; its URL."""
    import pyspark

    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = {
        "master": [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        "worker": [
            f"{deploy}.worker.Worker", url, "--host", "127.0.0.1", "--cores", "2", "--memory", "2g",
            "--webui-port", "0", "--work-dir", str(tmp_path / "work"),
        ],
    }  # fmt: skip
    logs = {name: tmp_path / f"{name}.log" for name in commands}
    ready = {"master": "I have been elected leader", "worker": "Successfully registered with master"}
    with ExitStack() as stack:
        for name, command in commands.items():
            log = stack.enter_context(logs[name].open("w"))
            process = subprocess.Popen(
                [spark_class, *command], stdout=log, stderr=log, env=environment(**ENVIRONMENT), cwd=tmp_path
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            wait_until(
                lambda name=name: ready[name] in logs[name].read_text(),  # type: ignore[misc]
                f"the {name} does not start", START_TIMEOUT_S,
            )  # fmt: skip
        yield url


@pytest.mark.faults
@pytest.mark.usefixtures("java")
@pytest.mark.timeout(2 * ARCHIVE_TIMEOUT_S)
def test_executors_of_a_cluster_archive_each_record_once(master: str, orders: Topic, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for first, partition in ((0, 0), (1000, 1)):
        orders.send([b"%d" % n for n in range(first, first + 1000)], partition=partition, compression="zstd")
        archived = subprocess.run(
            [*COMMAND, "lake", "archive", "--lake", str(lake), "--topics", orders.name, "--once", "--master", master],
            env=environment(**ENVIRONMENT, HEADRACE_BOOTSTRAP=orders.address, TMPDIR=str(tmp_path)),
            capture_output=True, text=True, timeout=ARCHIVE_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert (archived.returncode, archived.stderr) == (0, "starting Spark\n1,000 rows archived\n")
    assert rows_of(table_of(lake, orders.name)) == records_of(orders.address, orders.name)
    proof = verify_lake(place_of(lake), orders.cluster)
    assert (proof.rows, proof.findings) == (2000, [])
    assert len(list((tmp_path / "work").glob("app-*/*"))) >= 2, "no executor of the worker has run"

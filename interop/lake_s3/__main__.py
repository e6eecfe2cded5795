"""The lake in a bucket of a real S3 server, by its commands, with topics of the broker given as the first argument."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from tests.lake.made_table import IDENTITY, fill

from headrace.client import Admin, Cluster, Producer
from headrace.cold_log import ColdPartition
from headrace.lake.cold.log import open_cold_log
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import open_or_create
from headrace.wire.records import decode_batch
from interop.clients import LAKE_S3
from interop.lake_s3.server import BUCKET, KEY, SECRET, s3_server, without_conditions
from interop.report import Checks, expect, expect_in

ADDRESS = sys.argv[1]
COUNT = 500
LAKE = f"s3://{BUCKET}/lake"
TOPIC = "in-a-bucket"
LIMIT_S = 240


class InBucket:
    """The checks, one after the other on one lake."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._environment = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, **self._reach(port)}

    @property
    def checks(self) -> dict[str, Callable[[], None]]:
        return {
            "archive, status and verify, credentials from the environment": self.archived,
            "credentials as options": self.by_options,
            "a lost object is written again": self.mended,
            "delta-rs reads the table": self.other_reader,
            "typed tables, by example": self.typed,
            "replay into a topic, exactly once though started twice": self.replayed,
            "wrong credentials: one sentence": self.wrong_credentials,
            "a recreated topic has its own table": self.made_again,
            "cold records are read from the bucket": self.cold,
            "compact, expire and vacuum": self.upkeep,
            "a store without conditional puts is rejected": self.unsafe,
        }

    def archived(self) -> None:
        _make_topic(2)
        self._headrace("lake", "archive", "--lake", LAKE, "--topics", TOPIC, "--once")
        found = self._status()
        expect("rows", sum(p["rows"] for p in found), COUNT)
        expect("lag", [p["lag"] for p in found], [0, 0])
        self._expect_proved(COUNT)

    def by_options(self) -> None:
        options = [f"--storage={name.lower()}={value}" for name, value in self._environment.items()]
        found = json.loads(_run(["lake", "status", "--lake", LAKE, "--json", *options], {}))
        expect("rows", sum(p["rows"] for p in found), COUNT)

    def mended(self) -> None:
        table = place_of(f"{LAKE}/{TOPIC}", {name.lower(): value for name, value in self._environment.items()})
        lost = next(file.path for file in table.files() if file.path.endswith(".parquet") and file.path[0] == "p")
        table.delete(lost)
        expect("lost ranges", sum(len(p["lost"]) for p in self._status()), 1)
        self._headrace("lake", "archive", "--lake", LAKE, "--topics", TOPIC, "--once")
        expect("lost ranges afterwards", sum(len(p["lost"]) for p in self._status()), 0)
        self._expect_proved(COUNT)

    def other_reader(self) -> None:
        options = {name.lower(): value for name, value in self._environment.items()}
        table = DeltaTable(f"{LAKE}/{TOPIC}", storage_options=options).to_pyarrow_table(columns=["value"])
        expect("values", sorted(table["value"].to_pylist()), sorted(b"%d" % n for n in range(COUNT)))

    def typed(self) -> None:
        self._headrace("lake", "schema", "set", "--lake", LAKE, "--topic", TOPIC, "--infer")
        self._headrace("lake", "parse", "--lake", LAKE)
        expect("rows", self._typed_rows(), [COUNT])
        options = {name.lower(): value for name, value in self._environment.items()}
        table = DeltaTable(f"{LAKE}/{TOPIC}_.typed", storage_options=options).to_pyarrow_table(columns=["value"])
        expect("values", sorted(table["value"].to_pylist()), list(range(COUNT)))

    def _typed_rows(self) -> list[int]:
        return [info["rows"] for info in json.loads(self._headrace("lake", "schema", "list", "--lake", LAKE, "--json"))]

    def replayed(self) -> None:
        command = ("lake", "replay", "--lake", LAKE, "--topic", TOPIC, "--into", f"{TOPIC}-copy", "--create", "--json")
        for sent in (COUNT, 0):
            expect("sent", json.loads(self._headrace(*command))["sent"], sent)

    def wrong_credentials(self) -> None:
        said = self._refused("lake", "status", "--lake", LAKE, "--storage=aws_secret_access_key=wrong")
        expect_in("SignatureDoesNotMatch", said)
        expect("lines", len(said.strip().splitlines()), 1)

    def made_again(self) -> None:
        with Cluster(ADDRESS) as cluster:
            Admin(cluster).delete_topic(TOPIC)
        _make_topic(1)
        self._headrace("lake", "archive", "--lake", LAKE, "--topics", TOPIC, "--once")
        expect("rows of both", sorted(p["rows"] for p in self._status()), sorted([COUNT, *self._old_rows()]))
        self._expect_proved(COUNT, "--topics", TOPIC)
        self._expect_proved(2 * COUNT)
        expect("typed rows of both", self._typed_rows(), [COUNT, COUNT])

    def cold(self) -> None:
        options = {name.lower(): value for name, value in self._environment.items()}
        expect("values", asyncio.run(_cold_values(options)), [b"%d" % n for n in range(COUNT)])

    def _old_rows(self) -> list[int]:
        return [p["rows"] for p in self._status() if p["hot_end"] is None]

    def upkeep(self) -> None:
        lake = f"s3://{BUCKET}/upkeep"
        options = {name.lower(): value for name, value in self._environment.items()}
        fill(open_or_create(place_of(lake, options), IDENTITY, {}), 12, rows_each=10)
        (merged,) = json.loads(self._headrace("lake", "compact", "--lake", lake, "--json"))
        expect("files", (merged["merged"], merged["into"]), (12, 1))
        fill(open_or_create(place_of(lake, options), IDENTITY, {}), 2, rows_each=10)
        (gone,) = json.loads(self._headrace("lake", "expire", "--lake", lake, "--before", "125", "--json"))
        expect("expired rows", (gone["rows"], gone["start"]), (120, 120))
        said = self._headrace("lake", "vacuum", "--lake", lake)
        expect("files that are too young", said, f"{IDENTITY.topic}: 0 files deleted\n")
        proof = json.loads(self._headrace("lake", "verify", "--lake", lake, "--offline", "--json"))
        expect("proved", (proof["rows"], proof["findings"]), (20, []))

    def unsafe(self) -> None:
        with without_conditions(self._port) as port:
            lake = f"s3://{BUCKET}/unsafe"
            reach = [f"--storage={name.lower()}={value}" for name, value in self._reach(port).items()]
            said = self._refused("lake", "archive", "--lake", lake, "--topics", TOPIC, "--once", *reach)
        expect_in("lets a second writer overwrite a commit", said)

    # What they are made of

    def _reach(self, port: int) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}

    def _headrace(self, *words: str) -> str:
        return _run(words, self._environment)

    def _refused(self, *words: str) -> str:
        """The last words on stderr of a command that must fail."""
        try:
            self._headrace(*words)
        except subprocess.CalledProcessError as failed:
            return str(failed.stderr).rpartition("Error: ")[2]
        raise AssertionError(f"headrace {' '.join(words)} was not rejected")

    def _status(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._headrace("lake", "status", "--lake", LAKE, "--json"))
        return found

    def _expect_proved(self, rows: int, *words: str) -> None:
        proof = json.loads(self._headrace("lake", "verify", "--lake", LAKE, "--json", *words))
        expect("proved", (proof["rows"], proof["findings"]), (rows, []))


async def _cold_values(storage_options: Mapping[str, str]) -> list[bytes | None]:
    """What a broker with this lake would read of the topic's one partition."""
    with Cluster(ADDRESS) as cluster:
        found = Admin(cluster).describe_topic(TOPIC)
        assert cluster.cluster_id is not None
        cold = open_cold_log(LAKE, storage_options, cluster.cluster_id)
    try:
        read = await cold.read(ColdPartition(TOPIC, found.topic_id, 0), 0, COUNT, 1 << 20)
        return [record.value for batch in read.batches for record in decode_batch(batch)]
    finally:
        await cold.close()


def _make_topic(partitions: int) -> None:
    with Cluster(ADDRESS) as cluster:
        Admin(cluster).create_topic(TOPIC, partitions)
        with Producer(cluster) as producer:
            for n in range(COUNT):
                producer.send(TOPIC, b"%d" % n, None, (), n % partitions)


def _run(words: tuple[str, ...] | list[str], environment: Mapping[str, str]) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-c", "from headrace.cli.main import main; main()", *words]
    given = {**kept, "HEADRACE_BOOTSTRAP": ADDRESS, **environment}
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    sys.stderr.write(done.stderr)
    done.check_returncode()
    return done.stdout


def main() -> None:
    manifest = (LAKE_S3.work_dir / "go.mod").read_text().splitlines()
    (named,) = (line.split()[1] for line in manifest if line.strip().startswith("github.com/versity/versitygw v"))
    checks = Checks(f"versitygw {named.removeprefix('v')}")
    with tempfile.TemporaryDirectory(prefix="headrace-interop-s3-") as folder, s3_server(Path(folder, "s3")) as port:
        for title, check in InBucket(port).checks.items():
            checks.check(title, check)
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()

"""Places: what may be one, and that both kinds keep their promises to the code that uses them."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.lake.cold.process import impatient
from headrace.lake.storage.place import Place, place_of, reason
from headrace.lake.storage.s3 import open_bucket


def test_a_place_is_a_folder_or_an_object_store(tmp_path: Path) -> None:
    assert place_of("file:///data/lake") == Place("/data/lake")
    assert place_of(tmp_path).is_local
    in_bucket = place_of("s3://bucket/lake/", {"AWS_REGION": "eu-central-1"})
    assert (in_bucket / "orders").uri == "s3://bucket/lake/orders"
    assert (in_bucket / "orders").storage_options == {"aws_region": "eu-central-1"}


@pytest.mark.parametrize("wrong", ["hdfs://hub/lake", "s3://", "ftp://host/lake"])
def test_other_schemes_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="neither a folder nor s3://"):
        place_of(wrong)


def test_options_that_let_commits_be_overwritten_are_refused() -> None:
    with pytest.raises(ValueError, match="overwrite each other's commits"):
        place_of("s3://bucket/lake", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    with pytest.raises(ValueError, match="for object stores"):
        place_of("lake", {"aws_region": "eu-central-1"})


def test_a_place_does_not_show_its_credentials() -> None:
    place = place_of("s3://bucket/lake", {"aws_secret_access_key": "hidden"})
    assert "hidden" not in f"{place} {place!r} {[place]}"


def test_a_file_is_put_once_read_back_listed_and_deleted(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    place.put("p0/a", pa.py_buffer(b"hello"))
    with pytest.raises(FileExistsError):
        place.put("p0/a", pa.py_buffer(b"other"))
    assert place.sizes(["p0/a"]) == [None]
    place.settle(["p0/a", "p0/never"])
    with place.open("p0/a") as file:
        assert file.read() == b"hello"
    assert [(file.path, file.size_bytes) for file in place.files()] == [("p0/a", 5)]
    assert place.sizes(["p0/a", "p0/b"]) == [5, None]
    assert place.folders() == ["p0"]
    place.delete("p0/a")
    assert place.files() == []
    with pytest.raises(FileNotFoundError):
        place.open("p0/a")
    assert (place / "nothing").folders() == []


@contextlib.contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """As on a full disk, which it does not need."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_that_could_not_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    with file_size_limit(1 << 16), pytest.raises(OSError, match="File too large"):
        place.put("p0/a", pa.py_buffer(bytes(1 << 20)))
    assert place.files() == []


@pytest.mark.parametrize("give_up_s", [10.0, 10.5, 300.0])
def test_the_patience_of_cold_reads_is_what_both_clients_of_a_store_take(give_up_s: float) -> None:
    reach = {
        "aws_region": "us-east-1",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_allow_http": "true",
    }
    place = place_of("s3://bucket/lake", impatient(give_up_s) | reach | {"aws_endpoint_url": "http://127.0.0.1:1"})
    open_bucket(place)
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1"):  # asked, and not there: the options were understood
        place.delta()


def test_what_a_store_says_becomes_one_line() -> None:
    said = "Generic S3 error\n   \x1b[31m↳\x1b[0m 403 Forbidden\n<Error><Code>SignatureDoesNotMatch</Code></Error>"
    assert reason(OSError(said)) == "Generic S3 error: 403 Forbidden: SignatureDoesNotMatch"


def test_what_a_file_system_says_is_its_own_words_and_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="errno 2") as missing, place_of(tmp_path).open("p0/gone.parquet"):
        pass
    assert reason(missing.value) == f"No such file or directory: {tmp_path}/p0/gone.parquet"
    with file_size_limit(16), pytest.raises((OSError, DeltaError)) as full:
        DeltaTable.create(str(tmp_path / "table"), pa.schema([("a", pa.int64())]))
    assert reason(full.value) == "File too large"
    assert reason(OSError(28, "No space left on device")) == "No space left on device"
    away = "Generic S3 error: tcp connect error: Connection refused (os error 111)"
    assert reason(OSError(away)) == away

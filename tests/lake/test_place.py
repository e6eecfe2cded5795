"""Places: what may be one, and that both kinds keep their promises to the code that uses them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.lake.place import Place, place_of, reason


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


def test_what_a_store_says_becomes_one_line() -> None:
    said = "Generic S3 error\n   \x1b[31m↳\x1b[0m 403 Forbidden\n<Error><Code>SignatureDoesNotMatch</Code></Error>"
    assert reason(OSError(said)) == "Generic S3 error: 403 Forbidden: SignatureDoesNotMatch"

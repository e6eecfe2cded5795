"""The data directory: what is not ours is refused and left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store.embedded.data_directory import MARKER, CannotStart, DataDirectory, ServerRecord


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CannotStart, match=r"not headrace's.*--data-dir"):
        DataDirectory.claim(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_empty_mount_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    DataDirectory.claim(tmp_path).release()
    assert "format = 1" in (tmp_path / MARKER).read_text()


@pytest.mark.parametrize(("text", "says"), [("format = 99\n", "newer headrace"), ("", "restore the line `format = 1`")])
def test_a_marker_that_we_cannot_follow_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / MARKER).write_text(text)
    with pytest.raises(CannotStart, match=says):
        DataDirectory.claim(tmp_path)


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(CannotStart, match="is not a directory"):
        DataDirectory.claim(tmp_path / "data")


def test_a_record_that_is_half_written_counts_as_none(tmp_path: Path) -> None:
    directory = DataDirectory.claim(tmp_path)
    directory.write_record(ServerRecord("/tmp/s", 7))
    assert directory.read_record() == ServerRecord("/tmp/s", 7)
    (tmp_path / "valkey.json").write_text('{"socket": "/t')
    assert directory.read_record() is None
    directory.release()

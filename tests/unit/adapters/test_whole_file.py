"""Files are replaced whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotline.adapters.whole_file import replacing


def test_what_was_written_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    with replacing(path) as unfinished:
        unfinished.write_text("after")
        assert path.read_text() == "before"

    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def write() -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("half")
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_at_once_do_not_share_a_name(tmp_path: Path) -> None:
    path = tmp_path / "file"

    with replacing(path) as one, replacing(path) as other:
        one.write_text("one")
        other.write_text("other")

    assert path.read_text() == "one"  # it was done later
    assert list(tmp_path.iterdir()) == [path]

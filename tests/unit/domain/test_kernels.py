"""Where compiled functions are kept: no rule survives an edit of another file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numba

from spotline.domain import kernels
from spotline.domain.kernels import cache_folder, kernel_sources, sources_digest

PACKAGE = Path(kernels.__file__).parents[1]


def test_an_edit_of_any_kernel_source_changes_the_folder(tmp_path) -> None:
    package = tmp_path / "spotline"
    shutil.copytree(PACKAGE / "domain", package / "domain")
    sources = kernel_sources(package)
    before = sources_digest(sources)
    seen = {before}

    for source in sources[1:]:
        source.write_text(source.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        seen.add(sources_digest(sources))

    assert len(seen) == len(sources)


def test_a_module_that_was_moved_as_it_is_changes_the_folder(tmp_path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "domain").mkdir()
    before, after = tmp_path / "bench" / "law.py", tmp_path / "domain" / "law.py"
    before.write_text("from spotline.domain.kernels import kernel\n", encoding="utf-8")
    was = sources_digest([before])

    before.rename(after)

    assert sources_digest([after]) != was


def test_every_module_that_compiles_is_a_source() -> None:
    names = {source.name for source in kernel_sources()}

    assert {"kernels.py", "units.py", "accounting.py", "offer.py", "settle.py"} <= names
    assert {"lives.py", "ahap.py", "sdp.py", "schedule.py", "table_stage.py"} <= names


def test_kernels_are_kept_in_the_folder_of_their_sources() -> None:
    assert kernels.CACHE_FOLDER is not None
    assert kernels.CACHE_FOLDER.name == f"kernels-{sources_digest(kernel_sources())}"


def test_the_setting_of_other_libraries_stays() -> None:
    before = numba.config.CACHE_DIR

    kernels.kernel(lambda number: number + 1)

    assert before == numba.config.CACHE_DIR


def test_a_folder_that_cannot_be_written_is_passed_over(tmp_path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder", encoding="utf-8")

    assert cache_folder([blocked, tmp_path / "own"], "abc") == tmp_path / "own" / "kernels-abc"
    assert cache_folder([blocked], "abc") is None


def test_old_folders_are_forgotten_but_the_last_few(tmp_path) -> None:
    for number in range(20):
        cache_folder([tmp_path], f"{number:02}")

    assert len(list(tmp_path.iterdir())) == 16
    assert (tmp_path / "kernels-19").is_dir()


def test_a_folder_that_was_just_made_stays_whatever_the_clock_says(tmp_path) -> None:
    for number in range(16):
        folder = cache_folder([tmp_path], f"{number:02}")
        os.utime(folder, (2**32, 2**32))

    fresh = cache_folder([tmp_path], "fresh")

    assert fresh.is_dir()
    assert len(list(tmp_path.iterdir())) == 16

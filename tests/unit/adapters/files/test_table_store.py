"""Value tables on disk: written once, mapped by all, built again where they are spoiled."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from spotline.adapters.files.table_store import MappedTables, machine_tables
from spotline.domain.solvers.table_stage import TableArray

SHAPE = (3, 4, 1, 2, 1, 5)
NAME = "a7" * 32
TABLE_BYTES = 4 * int(np.prod(SHAPE)) + 64


def numbers(first: float = 0.5) -> TableArray:
    return np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE) + np.float32(first)


def never() -> TableArray:
    raise AssertionError("it was built again")


class Counted:
    """Builds numbers, and counts how often."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.times = 0
        self._then = then

    def __call__(self) -> TableArray:
        self.times += 1
        self._then()
        return numbers()


def test_what_one_process_built_another_maps(tmp_path: Path) -> None:
    built = MappedTables(tmp_path).array(NAME, SHAPE, numbers)
    other = MappedTables(tmp_path)

    assert other.has(NAME)
    mapped = other.array(NAME, SHAPE, never)

    assert np.array_equal(mapped, built)
    assert mapped.flags.c_contiguous
    assert mapped.flags.aligned
    assert [path.suffix for path in tmp_path.iterdir()] == [".table"]


def test_writing_to_a_view_spoils_it_for_nobody_else(tmp_path: Path) -> None:
    store, other = MappedTables(tmp_path), MappedTables(tmp_path)
    store.array(NAME, SHAPE, numbers)[:] = 0.0

    assert np.array_equal(other.array(NAME, SHAPE, never), numbers())


@pytest.mark.parametrize("spoiled", ["cut", "changed", "emptied", "of another shape"])
def test_a_spoiled_file_is_built_again(tmp_path: Path, spoiled: str) -> None:
    MappedTables(tmp_path).array(NAME, SHAPE, numbers)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    if spoiled == "cut":
        content = content[:-7]
    elif spoiled == "changed":
        content[-3] ^= 1
    elif spoiled == "emptied":
        content.clear()
    else:
        content += content[-20:]
    path.write_bytes(content)
    build = Counted()

    mapped = MappedTables(tmp_path).array(NAME, SHAPE, build)

    assert build.times == 1
    assert np.array_equal(mapped, numbers())
    assert np.array_equal(MappedTables(tmp_path).array(NAME, SHAPE, never), numbers())


def test_files_used_longest_ago_make_room(tmp_path: Path) -> None:
    store = MappedTables(tmp_path, most_bytes=2 * TABLE_BYTES)
    for at, name in enumerate(("a", "b")):
        store.array(name, SHAPE, numbers)
        os.utime(tmp_path / f"{name}.table", ns=(at, at))
    mapped = store.array("a", SHAPE, never)
    store.array("c", SHAPE, numbers)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.table", "c.table"]
    assert np.array_equal(mapped, numbers())


def test_two_threads_that_want_one_table_build_it_once(tmp_path: Path) -> None:
    store = MappedTables(tmp_path)
    begun, may_end = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert may_end.wait(10)

    build = Counted(wait)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(store.array, NAME, SHAPE, build)
        assert begun.wait(10)
        second = threads.submit(store.array, NAME, SHAPE, build)
        may_end.set()
        assert np.array_equal(first.result(10), second.result(10))

    assert build.times == 1


def test_what_no_disk_takes_is_held_in_memory(tmp_path: Path) -> None:
    store = MappedTables(tmp_path / "store")
    (tmp_path / "store").rmdir()
    (tmp_path / "store").write_bytes(b"")
    build = Counted()

    assert np.array_equal(store.array(NAME, SHAPE, build), numbers())
    assert np.array_equal(store.array(NAME, SHAPE, build), numbers())

    assert build.times == 1


def test_a_folder_that_was_cleared_is_made_again(tmp_path: Path) -> None:
    store = MappedTables(tmp_path / "store")
    (tmp_path / "store").rmdir()

    store.array(NAME, SHAPE, numbers)

    assert np.array_equal(MappedTables(tmp_path / "store").array(NAME, SHAPE, never), numbers())


def test_tables_of_other_solvers_are_forgotten_but_the_latest(tmp_path: Path) -> None:
    for at, name in enumerate(("tables-1", "tables-2", "tables-3", "kernels-1")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, ns=(at, at))

    assert machine_tables(tmp_path) is not None

    left = {path.name for path in tmp_path.iterdir()}
    assert {"tables-2", "tables-3", "kernels-1"} < left
    assert len(left) == 4


def test_a_machine_without_a_writable_folder_has_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    assert machine_tables(tmp_path / "file") is None

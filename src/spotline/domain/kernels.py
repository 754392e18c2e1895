"""How deciding code is compiled: `kernel`, a `part` of kernels, and a `rule` that Python shares.

A *rule* is plain Python: exact there, whatever the numbers, and compiled into the kernels that
call it. A *kernel* exists compiled only and counts in 64 bits; its caller lays the
numbers out in plain Python first. A *part* and an *inlined* kernel are written out where they are
called, by numba and by LLVM. With `NUMBA_DISABLE_JIT=1` all run as written.

numba keeps compiled functions on disk and looks at the time of a function's own file only, so a
kernel would go on calling what a neighbour said before it was edited. Hence the folder of the cache
is named by all sources that kernels are made of.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable
from numba.misc.appdirs import AppDirs

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parents[1]
# What numba reads from the environment; its types say nothing of it.
_numba: Any = numba.config
# Every module of kernels imports this one; the rule of cost and the constants lie in units.
_MARK = b"spotline.domain.kernels"
_MODULE_PARTS = 3  # of a path, from its end: enough to tell where in the package a module lies
# Folders of earlier sources that stay: releases and branches are switched between.
_KEPT_FOLDERS = 16


def kernel_sources(package: Path = _PACKAGE) -> list[Path]:
    """List the files that kernels are made of, in a stable order."""
    files = sorted((package / "domain").rglob("*.py"))
    compiled = [file for file in files if _MARK in file.read_bytes()]
    return [Path(__file__), package / "domain" / "units.py", *compiled]


def sources_digest(sources: Iterable[Path]) -> str:
    """Name the sources by their modules and bytes: the first 16 hexadecimal digits of SHA-256.

    What is cached names the modules that it was compiled from: one that was moved is another.
    """
    digest = hashlib.sha256()
    for source in sources:
        content = source.read_bytes()
        module = "/".join(source.parts[-_MODULE_PARTS:])
        digest.update(f"{module} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def cache_folder(parents: Iterable[Path], digest: str) -> Path | None:
    """Return a folder of its own for kernels of these sources, made where it is missing.

    The first of `parents` that can be written is taken; None where none can (a read-only machine
    compiles at every start).
    """
    for parent in parents:
        folder = parent / f"kernels-{digest}"
        try:
            fresh = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):
                pass
        except OSError:
            continue
        if fresh:
            _forget_oldest(parent, folder)
        return folder
    return None


def _forget_oldest(parent: Path, fresh: Path) -> None:
    # The one just made stays whatever the clock says: folders made at once may have equal times.
    others = [folder for folder in parent.glob("kernels-*") if folder != fresh]
    # Another process may be at it too.
    with suppress(FileNotFoundError):
        others.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
        for folder in others[: 1 - _KEPT_FOLDERS]:
            shutil.rmtree(folder, ignore_errors=True)


def _parents() -> list[Path]:
    """Where a cache may lie: where `NUMBA_CACHE_DIR` says, else with the user's other caches."""
    if _numba.CACHE_DIR:
        return [Path(_numba.CACHE_DIR)]
    return [Path(AppDirs("spotline", appauthor=False).user_cache_dir)]  # type: ignore[no-untyped-call]


CACHE_FOLDER = cache_folder(_parents(), sources_digest(kernel_sources()))


def kernel(function: Function) -> Function:
    """Compile `function` when it is first called, and keep it on disk.

    Divisions by zero give 0, not an error: the numbers come from places that refuse zero.
    """
    return _compiled(function)


def part(function: Function) -> Function:
    """Compile `function` as part of each kernel that calls it: for scalars and bundles of them."""
    return _compiled(function, inline="always")


def inlined(function: Function) -> Function:
    """Compile `function` as a kernel that is written out wherever it is called.

    For bundles of arrays: a part would count each array of a bundle, a plain kernel copy it.
    """
    return _compiled(function, forceinline=True)


def _compiled(function: Function, **options: Any) -> Function:
    if _numba.DISABLE_JIT:
        return function
    before = _numba.CACHE_DIR
    # numba asks for the folder when it decorates; other libraries keep theirs.
    _numba.CACHE_DIR = "" if CACHE_FOLDER is None else str(CACHE_FOLDER)
    try:
        compiled: Any = numba.njit(
            cache=CACHE_FOLDER is not None, nogil=True, error_model="numpy", **options
        )(function)
    finally:
        _numba.CACHE_DIR = before
    # Callers see the function that was decorated, with its types.
    return compiled  # type: ignore[no-any-return]


def rule(function: Function) -> Function:
    """Let kernels call `function`, which stays plain Python for everybody else."""
    both: Function = register_jitable(nogil=True, error_model="numpy")(function)
    return both

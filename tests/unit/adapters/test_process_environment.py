"""The variables of processes are found whenever one looks."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from spotline.adapters import process_environment
from spotline.adapters.process_environment import environment_of


class Proc:
    """A folder like `/proc` with one process, which the kernel is about to replace."""

    def __init__(self, folder):
        self.folder = folder / "7"
        self.folder.mkdir()

    def show(self, environ, *, size=4096, begins=0, ends=0):
        fields = ["S", "1", *["0"] * 18, str(size), *["0"] * 26, str(begins), str(ends), "0"]
        (self.folder / "stat").write_text(f"7 (a) b) {' '.join(fields)}\n")
        (self.folder / "environ").write_bytes(environ)


@pytest.fixture
def proc(tmp_path, monkeypatch):
    monkeypatch.setattr(process_environment, "_PROC", str(tmp_path))
    return Proc(tmp_path)


@pytest.fixture
def looks(monkeypatch):
    """What happens between two looks, one after the other."""
    steps = []
    clock = SimpleNamespace(sleep=lambda _: steps.pop(0)())
    monkeypatch.setattr(process_environment, "time", clock)
    return steps


def test_a_process_that_becomes_another_program_is_looked_at_again(proc, looks):
    proc.show(b"")
    looks += [
        lambda: proc.show(b""),
        lambda: proc.show(b"", begins=100, ends=104),  # it came between our two files
        lambda: proc.show(b"A=1\0B=2\0", begins=100, ends=108),
    ]

    assert environment_of(7)[:2] == [b"A=1", b"B=2"]
    assert looks == []


@pytest.mark.parametrize("shown", [{"size": 0}, {"begins": 100, "ends": 100}])
def test_a_process_without_any_is_looked_at_once(proc, shown):
    proc.show(b"", **shown)

    assert environment_of(7) == [b""]


def test_a_process_that_ends_meanwhile_has_none(proc, looks):
    proc.show(b"")
    looks.append((proc.folder / "environ").unlink)

    assert environment_of(7) == []


def test_a_look_that_never_shows_any_has_an_end(proc, monkeypatch):
    monkeypatch.setattr(process_environment, "_LOOK_S", 0)
    proc.show(b"")

    assert environment_of(7) == [b""]


def test_real_processes_show_theirs():
    given = {**os.environ, "SHOWN": "here"}
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, env=given, stdin=subprocess.PIPE) as process:
        assert b"SHOWN=here" in environment_of(process.pid)
    with subprocess.Popen(waits, env={}, stdin=subprocess.PIPE) as process:
        assert not any(environment_of(process.pid))
    assert environment_of(process.pid) == []

"""Packing a working directory: the same files, the same bytes; what is left out, what is refused."""

from __future__ import annotations

import hashlib
import os
import socket
import tarfile
from pathlib import Path

import fsspec
import pytest

from spotline.adapters.files.mistake import BadFile
from spotline.adapters.files.packing import DEFAULT_MOST_BYTES, packed, store


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "package" / "model.py").write_text("LAYERS = 2\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o750)
    return folder


def packed_bytes(workdir: Path, **options) -> bytes:
    with packed(workdir, where="job.yaml", **options) as package:
        content = package.archive.read_bytes()
        assert package.sha256 == hashlib.sha256(content).hexdigest()
        assert package.size_bytes == len(content)
    return content


def members(workdir: Path, **options) -> dict[str, tarfile.TarInfo]:
    with (
        packed(workdir, where="job.yaml", **options) as package,
        tarfile.open(package.archive) as tar,
    ):
        return {member.name: member for member in tar.getmembers()}


def refused(workdir: Path, **options) -> list[str]:
    with pytest.raises(BadFile) as caught, packed(workdir, where="job.yaml", **options):
        pass
    assert {mistake.field for mistake in caught.value.mistakes} == {"run.workdir"}
    return str(caught.value).splitlines()


def test_the_same_files_are_the_same_bytes_whenever_and_however_they_were_made(tmp_path, workdir):
    again = tmp_path / "again"
    (again / "package").mkdir(parents=True)
    (again / "package" / "model.py").write_text("LAYERS = 2\n")
    for name in ("run.sh", "train.py"):
        (again / name).write_bytes((workdir / name).read_bytes())
        os.utime(again / name, (1, 1))
    (again / "run.sh").chmod(0o711)
    (again / "train.py").chmod(0o600)

    assert packed_bytes(again) == packed_bytes(workdir)


def test_of_modes_only_the_right_to_execute_is_kept_and_owners_and_times_are_not(workdir) -> None:
    found = members(workdir)

    assert [*found] == ["package", "package/model.py", "run.sh", "train.py"]
    assert {name: member.mode for name, member in found.items()} == {
        "package": 0o755,
        "package/model.py": 0o644,
        "run.sh": 0o755,
        "train.py": 0o644,
    }
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in found.values()} == {
        (0, 0, 0, "", "")
    }


def test_another_content_is_another_package(workdir) -> None:
    before = packed_bytes(workdir)
    (workdir / "train.py").write_text("print('hallo')\n")

    assert packed_bytes(workdir) != before


def test_what_the_ignore_file_names_is_left_out_and_what_nobody_needs(workdir) -> None:
    for name in (
        ".git/HEAD",
        "__pycache__/x.pyc",
        ".venv/bin/python",
        "logs/a.txt",
        "data/big.bin",
    ):
        (workdir / name).parent.mkdir(parents=True, exist_ok=True)
        (workdir / name).write_text("x")
    (workdir / "logs" / "keep.txt").write_text("x")
    (workdir / ".spotlineignore").write_text("# mine\n/data\nlogs/*\n!logs/keep.txt\n")

    assert [*members(workdir)] == [
        *(".spotlineignore", "logs", "logs/keep.txt"),
        *("package", "package/model.py", "run.sh", "train.py"),
    ]


def test_the_checkpoints_are_not_packed_where_they_lie_in_it(workdir) -> None:
    before = [*members(workdir)]
    (workdir / "checkpoints").mkdir()
    (workdir / "checkpoints" / "weights").write_text("x")

    assert [*members(workdir, leave_out=[workdir / "checkpoints"])] == before


def test_a_link_within_it_is_kept_and_one_that_leads_out_is_refused_by_name(tmp_path, workdir):
    (tmp_path / "secret").write_text("x")
    (workdir / "inside").symlink_to("package/model.py")
    assert members(workdir)["inside"].linkname == "package/model.py"

    (workdir / "absolute").symlink_to(workdir / "train.py")
    (workdir / "package" / "outside").symlink_to("../../secret")

    lines = refused(workdir)
    assert len(lines) == 2
    assert "links that stay below it" in lines[0]
    # What a file says is shown as far as a line has room.
    assert "found absolute, a link to " in lines[0]
    assert str(workdir)[:40] in lines[0]
    assert lines[1].endswith("found package/outside, a link to ../../secret")


def test_sockets_and_pipes_are_refused_by_name(workdir, monkeypatch) -> None:
    os.mkfifo(workdir / "pipe")
    monkeypatch.chdir(workdir)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        lines = refused(workdir)

    assert [line.rpartition("found ")[2] for line in lines] == [
        "pipe, a pipe",
        "socket, a socket",
    ]


def test_what_is_too_large_is_refused_with_the_largest_files(workdir) -> None:
    (workdir / "weights.bin").write_bytes(os.urandom(300_000))

    (line,) = refused(workdir, most_bytes=200_000)

    assert "expected at most 0.2 MB when packed" in line
    assert ".spotlineignore" in line
    assert "weights.bin (0.3 MB)" in line
    assert DEFAULT_MOST_BYTES == 100_000_000


def test_the_bound_is_of_the_packed_bytes(workdir) -> None:
    (workdir / "zeros.bin").write_bytes(bytes(300_000))

    assert len(packed_bytes(workdir, most_bytes=200_000)) < 200_000


@pytest.mark.parametrize(
    ("name", "said"), [("none", "a folder, found none"), ("f", "found a file")]
)
def test_what_is_no_folder_is_refused(tmp_path, name, said) -> None:
    (tmp_path / "f").write_text("x")

    (line,) = refused(tmp_path / name)

    assert said in line


def test_a_package_is_stored_once_under_its_digest(tmp_path, workdir) -> None:
    location = str(tmp_path / "checkpoints")
    with packed(workdir, where="job.yaml") as package:
        at = package.package_at(location)
        first = store(package.archive, at, where="job.yaml")
        second = store(package.archive, at, where="job.yaml")
        content = package.archive.read_bytes()

    assert (first, second) == (True, False)
    assert at.uri == f"{location}/packages/{at.sha256}.tar.gz"
    assert Path(at.uri).read_bytes() == content
    # Nothing is left of the way there.
    assert os.listdir(tmp_path / "checkpoints" / "packages") == [f"{at.sha256}.tar.gz"]


def test_half_a_package_is_replaced(tmp_path, workdir) -> None:
    with packed(workdir, where="job.yaml") as package:
        at = package.package_at(str(tmp_path))
        Path(at.uri).parent.mkdir()
        Path(at.uri).write_bytes(package.archive.read_bytes()[:50])
        put = store(package.archive, at, where="job.yaml")

    assert put
    assert hashlib.sha256(Path(at.uri).read_bytes()).hexdigest() == at.sha256


def test_any_store_that_fsspec_knows_will_do(workdir) -> None:
    location = f"memory://packing-{os.getpid()}"
    with packed(workdir, where="job.yaml") as package:
        at = package.package_at(location)
        assert store(package.archive, at, where="job.yaml")

    filesystem, path = fsspec.url_to_fs(at.uri)
    assert hashlib.sha256(filesystem.cat_file(path)).hexdigest() == at.sha256


@pytest.mark.parametrize(
    ("location", "said"),
    [("{file}", "Not a directory|File exists"), ("nosuchprotocol://a", "Protocol not known")],
)
def test_a_place_that_cannot_be_written_to_is_said(tmp_path, workdir, location, said) -> None:
    (tmp_path / "file").write_text("x")
    with packed(workdir, where="job.yaml") as package:
        at = package.package_at(location.format(file=tmp_path / "file"))
        with pytest.raises(BadFile, match=f"checkpoint.location: expected a place .*({said})"):
            store(package.archive, at, where="job.yaml")

import gzip
import hashlib
import io
import os
import tarfile

import pytest

from spotline.agent.package import (
    PackageRefused,
    PackageUnavailable,
    fetch_package,
    unpack_package,
)
from spotline.domain.jobs.run import RunPackage


def archive_of(path, *members: tuple[str, dict]):
    with tarfile.open(path, "w:gz") as packed:
        for name, fields in members:
            member = tarfile.TarInfo(name)
            content = fields.pop("content", b"")
            member.size = len(content)
            for key, value in fields.items():
                setattr(member, key, value)
            packed.addfile(member, io.BytesIO(content))
    return path


def stated(path, **fields) -> RunPackage:
    content = path.read_bytes()
    known = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "uri": str(path),
        "size_bytes": len(content),
    }
    return RunPackage(**{**known, **fields})


@pytest.fixture(autouse=True, params=["data filter", "no filter"])
def python(request, monkeypatch):
    """Python with tarfile's filters, and as it was before 3.11.4: Debian 12 has 3.11.2."""
    if request.param == "data filter" or not hasattr(tarfile, "data_filter"):
        return
    today = tarfile.TarFile.extract

    def extract(self, member, path="", set_attrs=True, *, numeric_owner=False):
        trusted = {"numeric_owner": numeric_owner, "filter": "fully_trusted"}
        return today(self, member, path, set_attrs, **trusted)

    monkeypatch.setattr(tarfile.TarFile, "extract", extract)
    monkeypatch.delattr(tarfile, "data_filter")


@pytest.fixture
def packed(tmp_path):
    return archive_of(
        tmp_path / "p.tar.gz",
        ("code", {"type": tarfile.DIRTYPE, "mode": 0o755}),
        ("code/train.py", {"content": b"print(1)\n", "mode": 0o755}),
        ("code/link", {"type": tarfile.SYMTYPE, "linkname": "../code/train.py"}),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "code/train.py"}),
    )


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_package_is_fetched_and_unpacked(packed, tmp_path, prefix):
    fetch_package(stated(packed, uri=prefix + str(packed)), tmp_path / "got")
    unpack_package(tmp_path / "got", tmp_path / "work")

    assert (tmp_path / "work/code/train.py").read_text() == "print(1)\n"
    assert (tmp_path / "work/code/link").read_text() == "print(1)\n"
    assert (tmp_path / "work/hard").read_text() == "print(1)\n"


def test_of_modes_only_the_right_to_execute_is_kept_and_files_are_ours(tmp_path):
    archive = archive_of(
        tmp_path / "p.tar.gz",
        ("run", {"content": b"1", "mode": 0o4777, "uid": 12345, "gid": 12345, "uname": "nobody"}),
        ("read", {"content": b"1", "mode": 0o2666}),
    )

    unpack_package(archive, tmp_path / "work")

    run, read = (tmp_path / "work" / name for name in ("run", "read"))
    assert (run.stat().st_mode & 0o7777, read.stat().st_mode & 0o7777) == (0o755, 0o644)
    assert (run.stat().st_uid, run.stat().st_gid) == (os.getuid(), os.getgid())


def test_unpacking_replaces_what_was_there(packed, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/old").write_text("old")

    unpack_package(packed, tmp_path / "work")

    assert not (tmp_path / "work/old").exists()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sha256": "0" * 64}, "must have sha256 0000"),
        ({"size_bytes": 5}, "must have 5 bytes, had more"),
        ({"size_bytes": 10**9}, "must have 1000000000 bytes, had"),
    ],
)
def test_other_bytes_than_those_stated_are_refused(packed, tmp_path, fields, message):
    with pytest.raises(PackageRefused, match=message):
        fetch_package(stated(packed, **fields), tmp_path / "got")


@pytest.mark.parametrize("uri", ["/nowhere/p.tar.gz", "nosuchstore://p"])
def test_a_package_that_is_not_there_is_unavailable(packed, tmp_path, uri):
    with pytest.raises(PackageUnavailable, match="cannot be read"):
        fetch_package(stated(packed, uri=uri), tmp_path / "got")


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("/etc/x", {}, "paths below its root, has '/etc/x'"),
        ("a/../../x", {}, "paths below its root"),
        ("l", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "'l' leads to '/etc/passwd'"),
        ("a/l", {"type": tarfile.SYMTYPE, "linkname": "../../x"}, "links that stay inside"),
        ("l", {"type": tarfile.LNKTYPE, "linkname": "../x"}, "links that stay inside"),
        ("p", {"type": tarfile.FIFOTYPE}, "'p' is none of them"),
        ("d", {"type": tarfile.CHRTYPE}, "'d' is none of them"),
    ],
)
def test_what_leads_out_is_refused_and_nothing_is_left(tmp_path, name, fields, message):
    archive = archive_of(tmp_path / "p.tar.gz", ("good", {"content": b"1"}), (name, fields))

    with pytest.raises(PackageRefused, match=message):
        unpack_package(archive, tmp_path / "work")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.tar.gz"]


def test_a_file_through_a_link_that_was_unpacked_before_is_refused(tmp_path):
    (tmp_path / "outside").mkdir()
    archive = archive_of(
        tmp_path / "p.tar.gz",
        ("a", {"type": tarfile.SYMTYPE, "linkname": "."}),
        ("a/b", {"type": tarfile.SYMTYPE, "linkname": "../outside"}),
        ("b/x", {"content": b"1"}),
    )

    with pytest.raises(PackageRefused):
        unpack_package(archive, tmp_path / "work")
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_file_over_a_link_that_leads_out_by_now_is_refused(tmp_path):
    archive = archive_of(
        tmp_path / "p.tar.gz",
        ("l", {"type": tarfile.SYMTYPE, "linkname": "d/.."}),
        ("d", {"type": tarfile.SYMTYPE, "linkname": "."}),
        ("l/x", {"content": b"1"}),
    )

    with pytest.raises(PackageRefused):
        unpack_package(archive, tmp_path / "work")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.tar.gz"]


def test_bounds_hold_before_anything_beyond_them_is_written(tmp_path):
    archive = archive_of(tmp_path / "p.tar.gz", *((f"f{n}", {"content": b"12345"}) for n in "abc"))

    for bounds in ({"most_bytes": 14}, {"most_members": 2}):
        with pytest.raises(PackageRefused, match="unpack to at most"):
            unpack_package(archive, tmp_path / "work", **bounds)
    unpack_package(archive, tmp_path / "work", most_bytes=15, most_members=3)


@pytest.mark.parametrize(
    "content",
    [b"no archive", gzip.compress(b"no tar" * 200, mtime=0), b""],
    ids=["text", "compressed text", "nothing"],
)
def test_what_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "p.tar.gz").write_bytes(content)

    with pytest.raises(PackageRefused, match="cannot be unpacked"):
        unpack_package(tmp_path / "p.tar.gz", tmp_path / "work")


def test_an_archive_that_was_cut_off_is_refused(packed, tmp_path):
    packed.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])

    with pytest.raises(PackageRefused, match="cannot be unpacked"):
        unpack_package(packed, tmp_path / "work")

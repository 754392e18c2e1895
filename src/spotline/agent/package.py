"""Fetching and unpacking the program's working directory."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from spotline.contracts.errors import SpotlineError
from spotline.domain.jobs.run import RunPackage

MOST_UNPACKED_BYTES = 16 << 30
MOST_MEMBERS = 200_000

_CHUNK_BYTES = 1 << 20


class PackageUnavailable(SpotlineError):
    """The package could not be fetched now."""


class PackageRefused(SpotlineError):
    """The package is not the one that was packed, or must not be unpacked."""


def fetch_package(package: RunPackage, archive: Path) -> None:
    """Fetch a package by its URI (anything that fsspec opens) and check its bytes.

    Raises
    ------
    PackageUnavailable
        It could not be read; trying again may help.
    PackageRefused
        Its size or SHA-256 are not those that are stated.
    """
    import fsspec  # what opens object stores is not needed by most agents

    digest, size = hashlib.sha256(), 0
    try:
        with fsspec.open(package.uri, "rb") as source, archive.open("wb") as target:
            while chunk := source.read(_CHUNK_BYTES):
                size += len(chunk)
                if package.size_bytes and size > package.size_bytes:
                    break
                digest.update(chunk)
                target.write(chunk)
    except (OSError, ValueError, ImportError) as error:
        raise PackageUnavailable(f"run.package {package.uri} cannot be read: {error}") from error
    if package.size_bytes and size != package.size_bytes:
        more = "more" if size > package.size_bytes else str(size)
        raise PackageRefused(
            f"run.package {package.uri} must have {package.size_bytes} bytes, had {more}"
        )
    if digest.hexdigest() != package.sha256:
        raise PackageRefused(
            f"run.package {package.uri} must have sha256 {package.sha256}, had {digest.hexdigest()}"
        )


def unpack_package(
    archive: Path,
    folder: Path,
    *,
    most_bytes: int = MOST_UNPACKED_BYTES,
    most_members: int = MOST_MEMBERS,
) -> None:
    """Unpack a tar.gz into a folder, which is there only once all of it is.

    Raises
    ------
    PackageRefused
        It is no such archive, holds more than the bounds allow, or anything but files, folders and
        links that stay inside.
    """
    aside = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    size, count = 0, 0
    try:
        with tarfile.open(archive, "r:gz") as packed:
            for member in packed:
                size += member.size
                count += 1
                _check_bounds(size, most_bytes, count, most_members)
                _check(member)
                _extract(packed, member, aside)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise PackageRefused(f"run.package cannot be unpacked: {error}") from error
    except PackageRefused:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    aside.replace(folder)


def _extract(packed: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Unpack a member as a file of ours; where links that were unpacked before lead, it stays."""
    place = folder / member.name
    leads_to = [place]
    if member.issym():
        leads_to = [place.parent / member.linkname]
    elif member.islnk():
        leads_to.append(folder / member.linkname)
    root = os.path.realpath(folder)
    for path in (place.parent, *leads_to):
        if not Path(os.path.realpath(path)).is_relative_to(root):
            raise PackageRefused(
                f"run.package must hold paths below its root, {member.name!r} leads out of it"
            )
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    if hasattr(tarfile, "data_filter"):
        packed.extract(member, folder, filter="data")
    else:
        # Python before 3.11.4, as Debian 12 has it, does not know filters.
        packed.extract(member, folder)


def _check_bounds(size: int, most_bytes: int, count: int, most_members: int) -> None:
    if size > most_bytes or count > most_members:
        raise PackageRefused(
            f"run.package must unpack to at most {most_bytes} bytes in {most_members} files, "
            "has more"
        )


def _check(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise PackageRefused(f"run.package must hold paths below its root, has {member.name!r}")
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise PackageRefused(
            f"run.package must hold files, folders and links, {member.name!r} is none of them"
        )
    if member.issym() or member.islnk():
        target = PurePosixPath(member.linkname)
        start = path.parent if member.issym() else PurePosixPath()
        if target.is_absolute() or _leaves(start / target):
            raise PackageRefused(
                f"run.package must hold links that stay inside, {member.name!r} leads to "
                f"{member.linkname!r}"
            )


def _leaves(path: PurePosixPath) -> bool:
    depth = 0
    for part in path.parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False

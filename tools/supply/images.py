"""The images that the Dockerfiles and compose files name, and what is known of them. Pure but for files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLE = "deploy/images.toml"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

# A default of an argument or of a variable, and an image that is written out.
_DOCKERFILE = re.compile(
    r"(?:^ARG \w+_IMAGE=|^FROM (?:--platform=\S+ )?|\bfrom=)(?P<image>[^\s,]+)", re.MULTILINE
)
_COMPOSE = re.compile(r"^\s+image:\s*[\"']?(?:\$\{\w+:-)?(?P<image>[^\s\"'}]+)", re.MULTILINE)
_STAGE = re.compile(r"^FROM .* AS (\S+)", re.MULTILINE)
_FIELDS = {"name", "digest", "source", "holds", "unpinned_until", "unpinned_because"}


class TableError(ValueError):
    """The table of images is not as it must be; says which field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image by name, with its digest where it has one.

    `name` has a tag and no digest; `digest` is empty where there is none.
    """

    name: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Image:
        """Read `name:tag[@sha256:...]`."""
        name, _, digest = text.partition("@")
        return cls(name=name, digest=digest)

    @property
    def pinned(self) -> str:
        """As the files name it."""
        return f"{self.name}@{self.digest}" if self.digest else self.name

    @property
    def repository(self) -> str:
        """With its registry, without a tag."""
        path = self.name.rpartition(":")[0]
        first = path.partition("/")[0]
        if "/" in path and ("." in first or ":" in first or first == "localhost"):
            return path
        return f"docker.io/{path if '/' in path else f'library/{path}'}"

    @property
    def tag(self) -> str:
        """What a publisher may move."""
        return self.name.rpartition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A row of the table: what is known of an image, or until when it may go unpinned."""

    image: Image
    source: str = ""
    holds: tuple[dict[str, str], ...] = ()
    unpinned_until: date | None = None
    unpinned_because: str = ""


def files(root: Path) -> list[Path]:
    """The Dockerfiles and compose files of a deployment."""
    patterns = ("docker-compose.yml", "deploy/compose/*.yml")
    dockerfiles = [
        path
        for folder in ("deploy", "services")
        for path in (root / folder).rglob("*")
        if path.name == "Dockerfile" or path.suffix == ".Dockerfile"
    ]
    return sorted({*dockerfiles, *(path for found in patterns for path in root.glob(found))})


def named(path: Path, text: str) -> list[Image]:
    """The images of others that a file names, once each, in its order."""
    if path.suffix in (".yml", ".yaml"):
        found = [match["image"] for match in _COMPOSE.finditer(text)]
    else:
        own = set(_STAGE.findall(text))
        found = [match["image"] for match in _DOCKERFILE.finditer(text)]
        found = [image for image in found if image not in own and not image.startswith("$")]
    return [Image.parse(image) for image in dict.fromkeys(found)]


def used(root: Path = ROOT) -> list[tuple[Path, Image]]:
    """Each image with the file that names it."""
    return [
        (path.relative_to(root), image)
        for path in files(root)
        for image in named(path, path.read_text())
    ]


def table(root: Path = ROOT) -> dict[str, Described]:
    """What is known of images, by name.

    Raises
    ------
    TableError
        The file is not as it must be.
    """
    rows = tomllib.loads((root / TABLE).read_text()).get("image", [])
    described = [_row(number, row) for number, row in enumerate(rows, start=1)]
    found = {row.image.name: row for row in described}
    if len(found) != len(described):
        raise TableError(f"{TABLE}: expected each image once")
    return found


def _row(number: int, row: dict[str, Any]) -> Described:
    place = f"{TABLE}: image {number}"
    if unknown := sorted(row.keys() - _FIELDS):
        raise TableError(f"{place}: unknown field {unknown[0]!r}; known: {sorted(_FIELDS)}")
    name, digest, until = row.get("name"), row.get("digest", ""), row.get("unpinned_until")
    if not isinstance(name, str) or ":" not in name or "@" in name:
        raise TableError(f"{place}: name must be NAME:TAG without a digest, was {name!r}")
    if digest and not (isinstance(digest, str) and DIGEST.fullmatch(digest)):
        raise TableError(f"{place}: digest must be sha256: and 64 hex digits, was {digest!r}")
    if bool(digest) == (until is not None):
        raise TableError(f"{place}: expected either digest or unpinned_until")
    if digest and not row.get("source"):
        raise TableError(f"{place}: source must say where the digest is from")
    if until is not None and (type(until) is not date or not row.get("unpinned_because")):
        raise TableError(f"{place}: unpinned_until must be a date, with unpinned_because")
    return Described(
        image=Image(name=name, digest=digest),
        source=row.get("source", ""),
        holds=tuple(row.get("holds", ())),
        unpinned_until=until,
        unpinned_because=row.get("unpinned_because", ""),
    )


def problems(
    uses: Sequence[tuple[Path, Image]], known: dict[str, Described], today: date
) -> Iterator[str]:
    """What is wrong with the images that files name, one line each."""
    for path, image in uses:
        row = known.get(image.name)
        if image.digest and not DIGEST.fullmatch(image.digest):
            yield f"{path}: {image.name}: its digest must be sha256: and 64 hex digits"
        elif row is None:
            yield f"{path}: {image.name} is not in {TABLE}"
        elif not image.digest and row.unpinned_until is None:
            yield f"{path}: {image.name} needs its digest: @{row.image.digest}"
        elif not image.digest and row.unpinned_until and row.unpinned_until < today:
            yield (
                f"{path}: {image.name} may go without a digest until {row.unpinned_until}: "
                "`make pin-images` asks its registry"
            )
        elif image.digest and image.digest != row.image.digest:
            yield f"{path}: {image.name}: {TABLE} says what another digest holds: look it up anew"
    for name in sorted(known.keys() - {image.name for _, image in uses}):
        yield f"{TABLE}: {name} is named nowhere"

"""The navigation of the site: mkdocs.yml names pages, or many of them by a pattern."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

DOCS = "docs/"
OUTSIDE = "repository/"
"""Below this the site has pages and files that are not in `docs/`."""


def nav_of(root: Path) -> list[Any]:
    """The navigation as mkdocs.yml has it, patterns expanded.

    Raises
    ------
    ValueError
        It names a page that there is not.
    """
    stated = yaml.safe_load((root / "mkdocs.yml").read_text(encoding="utf-8"))
    return expanded(root, stated["nav"])


def pages_in(nav: Any) -> list[str]:
    """All pages of a navigation, by their paths in the repository, in its order."""
    if isinstance(nav, str):
        return [repository_path(nav)]
    inner = nav.values() if isinstance(nav, dict) else nav or []
    return [page for part in inner for page in pages_in(part)]


def repository_path(uri: str) -> str:
    """Where the repository has a page of the site."""
    return uri.removeprefix(OUTSIDE) if uri.startswith(OUTSIDE) else DOCS + uri


def expanded(root: Path, nav: list[Any]) -> list[Any]:
    """A navigation whose patterns have become the pages that fit them, by name.

    A pattern that nothing fits is left out; a page that is named by more than one of them, or by its
    own name too, stands where it is named by its own name, else first.

    Raises
    ------
    ValueError
        It names a page, without a pattern, that there is not.
    """
    named = {path for path in pages_in(nav) if "*" not in path}
    absent = sorted(path for path in named if not (root / path).exists())
    if absent:
        raise ValueError(f"mkdocs.yml: nav: expected pages that exist, found {', '.join(absent)}")
    return [part for entry in nav for part in _expanded(root, entry, named)]


def _expanded(root: Path, entry: Any, named: set[str]) -> list[Any]:
    if isinstance(entry, str):
        return _pages_that_fit(root, entry, named) if "*" in entry else [entry]
    ((title, inner),) = entry.items()
    if isinstance(inner, str):
        if "*" not in inner:
            return [entry]
        return [{title: page} for page in _pages_that_fit(root, inner, named)]
    return [{title: [page for part in inner for page in _expanded(root, part, named)]}]


def _pages_that_fit(root: Path, pattern: str, named: set[str]) -> list[Any]:
    prefix = "" if pattern.startswith(OUTSIDE) else DOCS
    uri_prefix = OUTSIDE if pattern.startswith(OUTSIDE) else ""
    found: list[Any] = []
    for path in sorted(root.glob(prefix + pattern.removeprefix(OUTSIDE))):
        place = path.relative_to(root).as_posix()
        if place in named:
            continue
        named.add(place)
        found.append({_title(path): uri_prefix + place.removeprefix(DOCS)})
    return found


def _title(path: Path) -> str:
    """A page's first heading, without marks of code."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"# +(.+)", line):
            return heading[1].replace("`", "")
    return path.stem

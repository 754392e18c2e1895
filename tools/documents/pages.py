"""What a page of the documents holds: headings, links and blocks of code.

The site (`tools/documents/site.py`) and the tests that hold pages to each other read pages by these
functions, so that both mean the same by an anchor and by a link.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^\s{0,3}(?P<fence>`{3,}|~{3,})\s*(?P<language>\w*)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?)\s*#*$")
_LINK = re.compile(r"(?<!\\)\]\((?P<target>[^)\s]+)(?P<title>\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it is written: `target` may end in `#anchor`."""

    target: str
    line: int

    @property
    def path(self) -> str:
        """What it leads to, without the anchor; empty: the page itself."""
        return self.target.partition("#")[0]

    @property
    def anchor(self) -> str:
        """The heading that it leads to; empty: the beginning."""
        return self.target.partition("#")[2]

    @property
    def leads_out(self) -> bool:
        """Whether it leads to the network."""
        return is_address(self.target)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code; `line` is that of its first line of code."""

    language: str
    text: str
    line: int


def is_address(target: str) -> bool:
    """Whether a link names a scheme, such as https."""
    return bool(_SCHEME.match(target)) or target.startswith("//")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside fenced blocks, with their numbers from 1."""
    open_fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if open_fence:
            if fence and fence["fence"].startswith(open_fence) and not fence["language"]:
                open_fence = ""
        elif fence:
            open_fence = fence["fence"]
        else:
            yield number, line


def blocks(text: str) -> Iterator[Block]:
    """Every fenced block of code."""
    outside = {number for number, _ in prose(text)}
    language, first = "", 0
    kept: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        inside = number not in outside and number <= len(text.splitlines())
        fence = _FENCE.match(line) if inside else None
        if inside and not first and fence:
            language, kept, first = fence["language"], [], number + 1
        elif first and fence and not fence["language"]:
            yield Block(language, "\n".join(kept), first)
            first = 0
        elif first:
            kept.append(line)


def slug(title: str, separator: str = "-") -> str:
    """The anchor of a heading, by the rule that GitHub has: lower case, no marks, `-` for spaces."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", separator)


def anchors(text: str) -> list[str]:
    """The anchors of a page's headings, in their order; the same heading again is the same anchor."""
    return [slug(heading["title"]) for _, line in prose(text) if (heading := _HEADING.match(line))]


def links(text: str) -> Iterator[Link]:
    """Every link of a page that is written in its text; none that stands in code."""
    for number, line in prose(text):
        for found in _LINK.finditer(_CODE.sub(lambda code: " " * len(code[0]), line)):
            yield Link(found["target"], number)


def with_links(text: str, page: str, told: dict[str, str]) -> str:
    """The page with other targets of its links.

    Parameters
    ----------
    page
        The path of the page in the repository.
    told
        What takes the place of a link's path, by the path in the repository that it leads to; an empty
        one leaves the words and takes the link away.
    """
    lines = text.splitlines(keepends=True)
    for number, line in prose(text):
        lines[number - 1] = _line_with_links(line, page, told) + "\n"
    return "".join(lines)


def _line_with_links(line: str, page: str, told: dict[str, str]) -> str:
    hidden = _CODE.sub(lambda code: " " * len(code[0]), line)
    for found in reversed(list(_LINK.finditer(hidden))):
        link = Link(found["target"], 0)
        if link.leads_out or not link.path:
            continue
        other = told.get(resolved(page, link.path))
        if other is None:
            continue
        start, end = found.span("target")
        if other:
            anchor = f"#{link.anchor}" if link.anchor else ""
            line = line[:start] + other + anchor + line[end:]
        else:
            opening = _opening(line, found.start())
            line = line[:opening] + line[opening + 1 : found.start()] + line[found.end() :]
    return line


def _opening(line: str, closing: int) -> int:
    """Where the bracket that `closing` ends began."""
    depth = 0
    for place in range(closing, -1, -1):
        depth += {"]": 1, "[": -1}.get(line[place], 0)
        if not depth:
            return place
    raise ValueError(f"no bracket opens what ends here: {line!r}")


def resolved(page: str, path: str) -> str:
    """The path in the repository that a link of a page leads to; both with `/`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def broken(root: Path, page: str) -> list[str]:
    """Links of a page that lead to no file of the repository, or to no heading of it.

    Raises
    ------
    OSError
        There is no such page.
    """
    found = []
    for link in links((root / page).read_text(encoding="utf-8")):
        if link.leads_out:
            continue
        target = resolved(page, link.path) if link.path else page
        if not (root / target).exists():
            found.append(f"{page}:{link.line}: {link.target}: no such file")
        elif link.anchor and link.anchor not in _anchors_of(root / target):
            found.append(f"{page}:{link.line}: {link.target}: no such heading")
    return found


def _anchors_of(path: Path) -> list[str]:
    path = path / "README.md" if path.is_dir() else path
    return anchors(path.read_text(encoding="utf-8")) if path.suffix == ".md" else []

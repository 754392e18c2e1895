"""What a browser would fetch from elsewhere for a built site: it should be nothing.

python -m tools.documents.built site     exit 1 where a page asks for anything over the network
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from tools.documents.pages import is_address

# What a browser fetches by itself; a link is fetched when somebody follows it.
_FETCHED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src", "srcdoc"),
    "img": ("src", "srcset"),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
_STYLE_ADDRESS = re.compile(r"(?:url\(\s*|@import\s+(?!url))['\"]?(?P<address>[^'\")\s]+)")


class _Fetches(HTMLParser):
    """Collects the addresses that a page has its browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.addresses += in_style(values.get("style", ""))
        if tag == "link" and values.get("rel") == "canonical":
            return
        for name in _FETCHED.get(tag, ()):
            if value := values.get(name):
                self.addresses.append(value.split()[0])

    def handle_endtag(self, tag: str) -> None:
        self._in_style = self._in_style and tag != "style"

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.addresses += in_style(data)


def in_style(text: str) -> list[str]:
    """Addresses that a style sheet has its browser fetch."""
    return [found["address"] for found in _STYLE_ADDRESS.finditer(text)]


def fetched(page: str) -> list[str]:
    """Addresses that a page of HTML has its browser fetch, near and far."""
    parser = _Fetches()
    parser.feed(page)
    return parser.addresses


def from_elsewhere(site: Path) -> Iterator[str]:
    """A line for each address on the network that a page or a style sheet of the site fetches."""
    for path in sorted(site.rglob("*")):
        if path.suffix not in (".html", ".css"):
            continue
        text = path.read_text(encoding="utf-8")
        for address in fetched(text) if path.suffix == ".html" else in_style(text):
            if is_address(address) and not address.startswith("data:"):
                yield f"{path.relative_to(site)}: {address}"


def main() -> int:
    """Print what is fetched from elsewhere, and return 1 where anything is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("site", type=Path)
    site = parser.parse_args().site
    pages = len(list(site.rglob("*.html")))
    if not pages:
        print(f"documents: {site}: expected pages, found none", file=sys.stderr)
        return 1
    found = list(from_elsewhere(site))
    for line in found:
        print(f"documents: {line}: expected a file of the site", file=sys.stderr)
    print(f"documents: {pages} pages in {site}, {len(found)} fetches from elsewhere")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())

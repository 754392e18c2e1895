"""What `mkdocs build` is told beyond mkdocs.yml: pages of the repository, links to files, anchors.

mkdocs calls the functions `on_...` (`hooks` of mkdocs.yml). Pages outside `docs/` keep their place in
the repository, below `repository/` of the site; so do the files that any page links to.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.documents.nav import DOCS, OUTSIDE, expanded, repository_path
from tools.documents.pages import is_address, links, resolved, slug, with_links

ROOT = Path(__file__).resolve().parents[2]
_EXAMPLE = re.compile(r"\[\w+\.py\]\((?P<path>examples/\w+\.py)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand the patterns of the navigation, and make anchors as GitHub does."""
    config.nav = expanded(ROOT, config.nav or [])
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside `docs/` that the navigation names, and every file that a page links to."""
    waiting = [file.src_uri for file in files.documentation_pages()]
    waiting += [page for page in _pages_of(config.nav) if page.startswith(OUTSIDE)]
    seen: set[str] = set()
    while waiting:
        uri = waiting.pop()
        if uri in seen:
            continue
        seen.add(uri)
        path = repository_path(uri)
        if uri.startswith(OUTSIDE):
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
        if not path.endswith(".md"):
            continue
        for link in links((ROOT / path).read_text(encoding="utf-8")):
            target = "" if link.leads_out or not link.path else resolved(path, link.path)
            if target and not target.startswith(DOCS) and (ROOT / target).is_file():
                waiting.append(OUTSIDE + target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have links to files of the repository lead to where the site has them."""
    path = repository_path(page.file.src_uri)
    told: dict[str, str] = {}
    for link in links(markdown):
        if is_address(link.target) or not link.path:
            continue
        target = resolved(path, link.path)
        there = ROOT / target
        if there.is_dir() and (there / "README.md").exists():
            told[target] = _from(page, f"{target}/README.md")
        elif there.is_dir():
            # The site has no lists of files: the words stay.
            told[target] = ""
        elif there.exists():
            told[target] = _from(page, target)
    if page.file.src_uri == "examples.md":
        markdown = _with_code(markdown)
    return with_links(markdown, path, told)


def _with_code(markdown: str) -> str:
    """The page of examples with each example's code below the paragraph that begins with its name."""
    paragraphs = []
    for paragraph in markdown.split("\n\n"):
        paragraphs.append(paragraph)
        if named := _EXAMPLE.match(paragraph):
            code = (ROOT / DOCS / named["path"]).read_text(encoding="utf-8")
            paragraphs.append(f"```python\n{code.rstrip()}\n```")
    return "\n\n".join(paragraphs)


def _from(page: Page, target: str) -> str:
    uri = target.removeprefix(DOCS) if target.startswith(DOCS) else OUTSIDE + target
    return posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")


def _pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav or []
    return [page for part in inner for page in _pages_of(part)]

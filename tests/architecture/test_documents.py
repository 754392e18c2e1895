"""The documents hold together: links, headings, navigation, runbooks; and a site asks nothing of others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.fakes.strict_yaml import read_yaml
from tools import document_protos
from tools.documents.built import fetched, from_elsewhere, in_style
from tools.documents.commands import commands_of
from tools.documents.nav import expanded, nav_of, pages_in
from tools.documents.pages import anchors, blocks, broken, links, slug, with_links

# Pages outside docs/ that the site has, besides those that its navigation names.
BESIDE = ("README.md",)
PARTS = ("Means", "Users see", "Mend", "Worry")
SECTION = re.compile(r"^## (?P<alert>\w+)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
RUNBOOK = re.compile(r"\{\{ \$externalLabels\.docs \}\}/(?P<page>[\w/]+)\.html#(?P<anchor>\w+)")


def pages(repository: Path) -> list[str]:
    """Every page of the documents, by its path in the repository."""
    in_docs = [path.relative_to(repository).as_posix() for path in repository.glob("docs/**/*.md")]
    return sorted({*in_docs, *pages_in(nav_of(repository)), *BESIDE})


def alerts(repository: Path) -> dict[str, tuple[str, dict]]:
    """Group and rule of every alert."""
    groups = read_yaml(repository / "deploy/prometheus/alerts.yml")["groups"]
    return {
        rule["alert"]: (group["name"].removeprefix("spotline-"), rule)
        for group in groups
        for rule in group["rules"]
    }


def runbooks(repository: Path) -> dict[str, tuple[str, str]]:
    """Page and text of every runbook, by its alert."""
    return {
        found["alert"]: (path.stem, found["text"])
        for path in sorted(repository.glob("docs/runbooks/*.md"))
        if path.name != "README.md"
        for found in SECTION.finditer(path.read_text())
    }


# --- links and navigation ---------------------------------------------------------------------


def test_every_link_of_the_documents_leads_to_a_file_and_a_heading_of_it(repository: Path) -> None:
    assert [line for page in pages(repository) for line in broken(repository, page)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("see [there](nowhere.md)", "page.md:1: nowhere.md: no such file"),
        ("\n[x](other.md#not-there)", "page.md:2: other.md#not-there: no such heading"),
        ("[x](#neither)", "page.md:1: #neither: no such heading"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "page.md").write_text(text)
    (tmp_path / "other.md").write_text("# Other\n\n## `Not` here, but *there*\n")

    assert broken(tmp_path, "page.md") == [said]


def test_what_looks_like_a_link_in_code_is_none() -> None:
    text = '`[a](b.md)` and\n\n```md\n[c](d.md)\n# no heading\n```\n# One\n[e](f.md "g")\n'

    assert [link.target for link in links(text)] == ["f.md"]
    assert anchors(text) == ["one"]
    assert [(block.language, block.text, block.line) for block in blocks(text)] == [
        ("md", "[c](d.md)\n# no heading", 4)
    ]


@pytest.mark.parametrize(
    ("title", "anchor"),
    [
        ("What a plan says, and how far to trust it", "what-a-plan-says-and-how-far-to-trust-it"),
        ("`spotline.trainer`: inside", "spotlinetrainer-inside"),
        ("AWS: a [link](x.md) - twice", "aws-a-link---twice"),
    ],
)
def test_anchors_are_those_of_github(title: str, anchor: str) -> None:
    assert slug(title) == anchor


def test_links_are_told_where_the_site_has_what_they_lead_to() -> None:
    text = "[a](../deploy/README.md#x) [b](../tests) [c](d.md) `[a](../tests)`\n"
    told = {"deploy/README.md": "repository/deploy/README.md", "tests": ""}

    assert with_links(text, "docs/page.md", told) == (
        "[a](repository/deploy/README.md#x) b [c](d.md) `[a](../tests)`\n"
    )


def test_every_page_is_in_the_navigation_once(repository: Path) -> None:
    named = pages_in(nav_of(repository))
    written = {path.relative_to(repository).as_posix() for path in repository.glob("docs/**/*.md")}

    assert written - set(named) == set(), "in no place of mkdocs.yml"
    assert len(named) == len(set(named))


def test_the_navigation_names_pages_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("a.md", "b1.md", "b2.md"):
        (tmp_path / "docs" / name).write_text(f"# The {name}\n")

    found = expanded(tmp_path, ["a.md", {"Part": ["b*.md", "none*.md", {"Last": "b2.md"}]}])

    assert found == ["a.md", {"Part": [{"The b1.md": "b1.md"}, {"Last": "b2.md"}]}]
    with pytest.raises(ValueError, match=r"expected pages that exist, found docs/gone\.md"):
        expanded(tmp_path, [{"Part": ["gone.md"]}])


def test_the_pages_of_protos_are_as_protos_say(repository: Path) -> None:
    pages = document_protos.documents()

    assert {path.name for path in pages} == {"services.md", "messages.md"}
    for path, text in pages.items():
        assert path.read_text() == text, "run `python -m tools.document_protos`"
    undocumented = re.findall(
        r"^\|(?! no\.| method|-).*\| +\|$", "".join(pages.values()), re.MULTILINE
    )
    assert undocumented == []


# --- nothing from elsewhere -------------------------------------------------------------------


def test_the_site_brings_all_that_it_shows(repository: Path) -> None:
    stated = yaml.safe_load((repository / "mkdocs.yml").read_text())
    theme = repository / stated["theme"]["custom_dir"]

    assert stated["theme"]["font"] is False, "a font of others would be fetched"
    assert "offline" in stated["plugins"]
    assert stated["use_directory_urls"] is False
    # The plugin `offline` looks for this name, and else adds a script of others.
    (polyfill,) = stated["extra"]["polyfills"]
    assert "iframe-worker" in polyfill
    for asset in (polyfill, *stated["extra_css"]):
        assert (theme / asset).exists()
    assert "mermaid" not in {
        block.language
        for page in pages(repository)
        for block in blocks((repository / page).read_text())
    }, "the theme would fetch what draws it"


def test_what_a_page_fetches_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        '<link rel="canonical" href="https://a.example"><script src="https://b.example/x.js">'
        '</script><img src="near.png"><a href="https://c.example">c</a>'
        '<style>@import url("//d.example/s.css");</style><p style="background:url(e.png)">'
    )
    (tmp_path / "sheet.css").write_text("@font-face{src:url(https://f.example/f.woff)}")

    assert list(from_elsewhere(tmp_path)) == [
        "page.html: https://b.example/x.js",
        "page.html: //d.example/s.css",
        "sheet.css: https://f.example/f.woff",
    ]
    assert fetched('<img srcset="https://g.example/h.png 2x">') == ["https://g.example/h.png"]
    assert in_style("a{b:url(data:image/png;base64,AA)}") == ["data:image/png;base64,AA"]


# --- runbooks ---------------------------------------------------------------------------------


def test_every_alert_has_a_runbook_and_every_runbook_an_alert(repository: Path) -> None:
    written = {alert: page for alert, (page, _) in runbooks(repository).items()}

    assert written == {alert: group for alert, (group, _) in alerts(repository).items()}


def test_every_alert_links_to_its_runbook(repository: Path) -> None:
    for alert, (_, rule) in alerts(repository).items():
        link = RUNBOOK.fullmatch(rule["annotations"]["runbook_url"])
        assert link, alert
        assert link["anchor"] == slug(alert)
        assert link["anchor"] in anchors((repository / f"docs/{link['page']}.md").read_text())


def test_every_runbook_says_all_that_one_needs_at_night(repository: Path) -> None:
    for alert, (page, text) in runbooks(repository).items():
        found = re.findall(r"^\*\*(.+?)\*\* \S", text, re.MULTILINE)
        assert tuple(found) == PARTS, alert
        (block,) = blocks(text)
        lines = block.text.splitlines()
        assert len(lines) == 3, alert
        assert all(" #" in line for line in lines), f"{alert}: what does each command show?"
        assert any(commands_of(text, page)), alert

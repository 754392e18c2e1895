"""A running system's pages are folded of all that chapters take: the same as of its log."""

from __future__ import annotations

import ast
from pathlib import Path

import spotline.application.page
from spotline.application.read_model.handler import SPEC
from spotline.contracts.subjects import KINDS

FOLDER = Path(spotline.application.page.__file__).parent


def test_the_read_model_takes_every_event_that_a_page_knows() -> None:
    known = {event_type.__name__: event_type for event_type in KINDS}
    named = {
        alias.name
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("spotline.domain.events")
        for alias in node.names
    } & set(known)

    assert len(named) >= 4
    assert {name for name in named if known[name] not in SPEC.consumes} == set()

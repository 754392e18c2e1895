"""Pages from templates: everything in them is escaped, and what a template misses is an error."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from spotline.adapters.page.formats import FILTERS

_PAGE = "spotline.adapters.page"


@cache
def templates(*packages: str) -> Environment:
    """The environment that pages are rendered in: templates of `packages` come before those of pages."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name, "templates") for name in (*packages, _PAGE)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment


def rendered(template: str, **names: Any) -> str:
    """A page, or a part of one."""
    return templates().get_template(template).render(**names)

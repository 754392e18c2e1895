"""Pages from templates: everything in them is escaped, and what a template misses is an error."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from spotline.adapters.page.formats import FILTERS


@cache
def templates() -> Environment:
    """The environment that all pages are rendered in."""
    environment = Environment(
        loader=PackageLoader("spotline.adapters.page", "templates"),
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

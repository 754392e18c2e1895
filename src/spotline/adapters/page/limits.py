"""Where the page of money learns which limits are in force: not from the log, but from who holds to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spotline.adapters.page.app import Gather, Model, Page
from spotline.adapters.page.asked import PageAsked
from spotline.application.operations.messages import LimitsInForce
from spotline.application.selector.state import SelectorOptions
from spotline.contracts.errors import SpotlineError

PATH = "/money"


def with_limits(pages: Sequence[Page], gather: Gather) -> tuple[Page, ...]:
    """The pages, of which that of money asks for the limits."""
    return tuple(replace(page, gather=gather) if page.path == PATH else page for page in pages)


def live_limits(ask: Callable[[], Awaitable[LimitsInForce]]) -> Gather:
    """Ask a running system; where it does not answer the page says that they are not known."""

    async def gather(asked: PageAsked) -> Model:
        try:
            return {"limits": await ask()}
        except SpotlineError:
            return {}

    return gather


def recorded_limits(settings: Mapping[str, Any]) -> Gather:
    """Take them from the settings that a log's manifest states.

    Raises
    ------
    ValueError
        What they state of spending is malformed.
    """
    selector = settings.get("selector")
    found: Model = {}
    if isinstance(selector, Mapping):
        found = {
            "options": SelectorOptions(
                spending=str(selector.get("spending", "")),
                limits=bool(selector.get("limits", False)),
            )
        }

    async def gather(asked: PageAsked) -> Model:
        return found

    return gather

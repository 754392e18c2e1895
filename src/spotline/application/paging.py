"""Answers that come a page at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedQuery:
    """How much is asked for: `page_token` is the `next_page_token` of the page before.

    A `page_size` of 0 is `DEFAULT_PAGE`; more than `LARGEST_PAGE` is never given.
    """

    page_size: int = 0
    page_token: str = ""

    def __post_init__(self) -> None:
        if self.page_size < 0:
            raise ValueError(f"page_size must be >= 0, was {self.page_size}")

    @property
    def size(self) -> int:
        """How many a page holds at most."""
        return min(self.page_size or DEFAULT_PAGE, LARGEST_PAGE)


def page_of_ids(query: PagedQuery, ids: Iterable[str]) -> tuple[list[str], str]:
    """The ids of a page, ascending, and the next page's token; empty: it is the last.

    The token is the last id of a page.
    """
    found = sorted(wanted for wanted in ids if wanted > query.page_token)
    shown = found[: query.size]
    return shown, shown[-1] if len(found) > len(shown) else ""

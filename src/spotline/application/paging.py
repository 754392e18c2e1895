"""Answers that come a page at a time."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000

_CHECK_BYTES = 9
_PAGING = ("page_size", "page_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedQuery:
    """How much is asked for: `page_token` is the `next_page_token` of the page before.

    A `page_size` of 0 is `DEFAULT_PAGE`; more than `LARGEST_PAGE` is never given. It may differ
    from page to page; all else must stay as it was, for a token continues the query that gave it.
    """

    page_size: int = 0
    page_token: str = ""

    def __post_init__(self) -> None:
        if self.page_size < 0:
            raise ValueError(f"page_size must be >= 0, was {self.page_size}")
        self.last_place()

    @property
    def size(self) -> int:
        """How many a page holds at most."""
        return min(self.page_size or DEFAULT_PAGE, LARGEST_PAGE)

    def token_after(self, place: str) -> str:
        """The token of the page that follows `place`; says nothing to its reader."""
        told = place.encode()
        return base64.urlsafe_b64encode(self._check(told) + told).decode().rstrip("=")

    def last_place(self) -> str:
        """The last place of the page before, empty where this is the first page.

        Raises
        ------
        ValueError
            The token was not given for this query, or was altered.
        """
        if not self.page_token:
            return ""
        try:
            padded = self.page_token + "=" * (-len(self.page_token) % 4)
            told = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
            check, place = told[:_CHECK_BYTES], told[_CHECK_BYTES:].decode()
        except (binascii.Error, ValueError):
            check, place = b"", ""
        # Spare bits make several texts of the same bytes: only the one that was given is taken.
        if check != self._check(place.encode()) or self.token_after(place) != self.page_token:
            raise ValueError(
                "page_token must be the next_page_token of an earlier answer to the same query, was "
                f"{self.page_token[:80]!r}"
            )
        return place

    def _check(self, place: bytes) -> bytes:
        """Bind a place to everything that is asked for but the page."""
        asked = [
            (field.name, str(getattr(self, field.name)))
            for field in fields(self)
            if field.name not in _PAGING
        ]
        text = repr((type(self).__name__, asked)).encode()
        return hashlib.sha256(text + b"\0" + place).digest()[:_CHECK_BYTES]


def page_of_ids(query: PagedQuery, ids: Iterable[str]) -> tuple[list[str], str]:
    """The ids of a page, ascending, and the next page's token; empty: it is the last."""
    last = query.last_place()
    found = sorted(wanted for wanted in ids if wanted > last)
    shown = found[: query.size]
    return shown, query.token_after(shown[-1]) if len(found) > len(shown) else ""

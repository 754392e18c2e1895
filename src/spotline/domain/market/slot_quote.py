"""A quote as a slot shows it."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.market.offering import Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotQuote:
    """A quote as it stood when a slot opened, and how old it was."""

    quote: Quote
    age_s: int

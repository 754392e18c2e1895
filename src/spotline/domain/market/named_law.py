"""A market law by its content."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.market.law import MarketLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLaw:
    """A law and its content's SHA-256."""

    law_id: str
    law: MarketLaw

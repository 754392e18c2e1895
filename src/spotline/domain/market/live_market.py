"""A market that goes on as long as its feeds speak: nobody knows its quotes ahead."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.market.offering import Offering


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMarket:
    """What is known of a live market before it opens: what is traded, on which grid.

    Slot k opens at `start_ns` + k slots of `slot_s` seconds, in market time. It does not end.

    Raises
    ------
    ValueError
        There is no offering, two have the same id, or the grid is none; names the field.
    """

    source: str
    offerings: tuple[Offering, ...]
    slot_s: int
    start_ns: int

    def __post_init__(self) -> None:
        if self.slot_s < 1:
            raise ValueError(f"slot_s must be >= 1, was {self.slot_s}")
        if self.start_ns < 0:
            raise ValueError(f"start_ns must be >= 0, was {self.start_ns}")
        ids = [offering.offering_id for offering in self.offerings]
        if not ids:
            raise ValueError("offerings must be at least one, were none")
        if len(set(ids)) != len(ids):
            raise ValueError(f"offering ids must be unique, were {ids}")

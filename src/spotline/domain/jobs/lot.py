"""What a job holds: lots of instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from spotline.domain.canonical import canonical_as
from spotline.domain.jobs.program import Holding


@canonical_as("Lot", "offering_id spot on_demand")
@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """Instances of one offering; an allocation is a tuple of lots."""

    offering_id: str
    spot: int = 0
    on_demand: int = 0

    def __post_init__(self) -> None:
        if self.spot < 0 or self.on_demand < 0:
            raise ValueError(f"a lot's counts must be >= 0, were {self.spot}, {self.on_demand}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHolding:
    """What the cloud holds for a job, reported by the actuator.

    `instance_ids` are in launch order; logs from before 0.3.0 name none.
    """

    job_id: str
    lots: tuple[Lot, ...]
    instance_ids: tuple[str, ...] = ()


def holding_of(lots: Sequence[Lot]) -> Holding:
    """What lots of one offering come to."""
    if len(lots) == 1:
        return holding(lots[0].spot, lots[0].on_demand)
    return holding(sum(lot.spot for lot in lots), sum(lot.on_demand for lot in lots))


# Few counts make up all that jobs hold, and a slot asks for thousands of lots and holdings.
@lru_cache(maxsize=16_384)
def lot_of(offering_id: str, spot: int, on_demand: int) -> Lot:
    """So many instances of an offering; the same object for the same counts."""
    return Lot(offering_id=offering_id, spot=spot, on_demand=on_demand)


@lru_cache(maxsize=4096)
def holding(spot: int, on_demand: int) -> Holding:
    """So many instances of one offering; the same object for the same counts."""
    return Holding(spot=spot, on_demand=on_demand)

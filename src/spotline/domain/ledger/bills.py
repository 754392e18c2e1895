"""What each instance costs: the share of every charge that is its own, and what was paid at last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from spotline.domain.market.offering import CapacityType


class BillSource(Enum):
    """Whose word a settled amount is; the provider's outweighs our own."""

    OWN_COUNT = "own_count"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """One source's word on what an instance cost in all, in micro-USD, given at `ts_ns`.

    `ts_ns` is market time. Of one source the latest word counts. `disk_micro_usd` is the part of
    `micro_usd` that is its disks'.
    """

    instance_id: str
    source: BillSource
    micro_usd: int
    ts_ns: int
    disk_micro_usd: int = 0

    def __post_init__(self) -> None:
        if self.micro_usd < 0:
            raise ValueError(f"micro_usd must be >= 0, was {self.micro_usd}")
        if not 0 <= self.disk_micro_usd <= self.micro_usd:
            raise ValueError(
                f"disk_micro_usd must lie in 0..{self.micro_usd}, was {self.disk_micro_usd}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceBill:
    """An instance's estimate, its share of what was charged so far, and its settled bill if any.

    What a provider bills for and the ledger never held has the estimate 0 and no job.
    """

    instance_id: str
    job_id: str
    tenant: str
    quota_pool: str
    estimate_micro_usd: int
    settled: Settlement | None = None

    @property
    def micro_usd(self) -> int:
        """What to reckon with: the settled amount where there is one, else the estimate."""
        return self.estimate_micro_usd if self.settled is None else self.settled.micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSpan:
    """From when until when an instance is held: slot and seconds into it; no end while it is held."""

    instance_id: str
    job_id: str
    offering_id: str
    capacity_type: CapacityType
    start_slot: int
    start_offset_s: int
    end_slot: int | None = None
    end_offset_s: int | None = None

    def overlap_s(self, slot: int, start_s: int, end_s: int) -> int:
        """How many of the seconds [`start_s`, `end_s`) of a slot it is held."""
        if self.start_slot > slot:
            return 0
        first = max(start_s, self.start_offset_s) if self.start_slot == slot else start_s
        last = end_s
        if self.end_slot is not None:
            if self.end_slot < slot:
                return 0
            if self.end_slot == slot:
                last = min(end_s, self.end_offset_s or 0)
        return max(0, last - first)


def apportion(micro_usd: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Divide an amount by weights >= 0, to whole micro-USD whose sum is the amount exactly.

    Each part is within one micro-USD of its exact share.

    Raises
    ------
    ValueError
        No weight is above 0.
    """
    total = sum(weights)
    if total <= 0:
        raise ValueError(f"some weight must be > 0, were {tuple(weights)}")
    parts: list[int] = []
    given, seen = 0, 0
    for weight in weights:
        seen += weight
        until_here = micro_usd * seen // total
        parts.append(until_here - given)
        given = until_here
    return tuple(parts)


def strongest(settlements: Sequence[Settlement]) -> Mapping[str, Settlement]:
    """Choose by instance what counts: the provider's word before our own."""
    ranks = list(BillSource)
    ordered = sorted(settlements, key=lambda settlement: ranks.index(settlement.source))
    return {settlement.instance_id: settlement for settlement in ordered}

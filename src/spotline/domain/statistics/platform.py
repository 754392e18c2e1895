"""What bills, outcomes, feedback and decisions say of a window, by policy; all integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from spotline.domain.statistics.figures import (
    DeadlineFigures,
    LatencyFigures,
    PlatformFigures,
    PolicyFigures,
    RegretFigures,
    SpendFigures,
)
from spotline.domain.statistics.panes import Arrival, cuts
from spotline.domain.statistics.windows import share


@dataclass(frozen=True, slots=True, kw_only=True)
class BillPart:
    """The part of a bill that lies in one pane; micro-USD and instance-seconds."""

    spend: int
    on_demand_equivalent: int
    spot_s: int
    on_demand_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnding:
    """How a job ended; None: it was withdrawn, or its own program failed."""

    hard: bool
    hit: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFeedback:
    """What every policy earns on a job, and which one the job had; micro-USD by policy id."""

    utilities: Mapping[str, int]
    drawn_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLatency:
    """How long after a slot's opening, and after its forecast (None: it had none), it was decided."""

    slot: int
    after_slot_ns: int
    after_forecast_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformPiece:
    """What an observation says of one pane, and whose policy it concerns."""

    arrival: Arrival
    start_s: int
    policy_id: str
    said: BillPart | JobEnding | JobFeedback | SlotLatency


def bill_pieces(
    arrival: Arrival, policy_id: str, bill: BillPart, *, slot_s: int, pane_s: int
) -> Iterator[PlatformPiece]:
    """Spread a bill evenly over its slot, cut at the borders of panes; the parts add up exactly."""
    at_s = arrival.at_s
    for start_s, end_s in cuts(at_s, at_s + slot_s, pane_s):

        def part(amount: int, start_s: int = start_s, end_s: int = end_s) -> int:
            return share(amount, end_s - at_s, slot_s) - share(amount, start_s - at_s, slot_s)

        yield PlatformPiece(
            arrival=arrival,
            start_s=start_s,
            policy_id=policy_id,
            said=BillPart(
                spend=part(bill.spend),
                on_demand_equivalent=part(bill.on_demand_equivalent),
                spot_s=part(bill.spot_s),
                on_demand_s=part(bill.on_demand_s),
            ),
        )


@dataclass(slots=True, kw_only=True)
class PolicyTally:
    """What concerns one policy; addition is commutative."""

    spend: int = 0
    on_demand_equivalent: int = 0
    spot_s: int = 0
    on_demand_s: int = 0
    hits: list[int] = field(default_factory=lambda: [0, 0])
    misses: list[int] = field(default_factory=lambda: [0, 0])
    cancelled: int = 0
    jobs: int = 0
    utilities: dict[str, int] = field(default_factory=dict)
    drawn: int = 0
    latencies: dict[int, SlotLatency] = field(default_factory=dict)

    def count(self, said: BillPart | JobEnding | JobFeedback | SlotLatency) -> None:
        """Count what one piece says."""
        match said:
            case BillPart():
                self.spend += said.spend
                self.on_demand_equivalent += said.on_demand_equivalent
                self.spot_s += said.spot_s
                self.on_demand_s += said.on_demand_s
            case JobEnding():
                if said.hit is None:
                    self.cancelled += 1
                else:
                    (self.hits if said.hit else self.misses)[said.hard] += 1
            case JobFeedback():
                self.jobs += 1
                self.drawn += said.drawn_micro_usd
                for policy_id, utility in said.utilities.items():
                    self.utilities[policy_id] = self.utilities.get(policy_id, 0) + utility
            case SlotLatency():
                self.latencies[said.slot] = said

    def add(self, other: PolicyTally) -> None:
        """Add another's."""
        self.spend += other.spend
        self.on_demand_equivalent += other.on_demand_equivalent
        self.spot_s += other.spot_s
        self.on_demand_s += other.on_demand_s
        for index in (0, 1):
            self.hits[index] += other.hits[index]
            self.misses[index] += other.misses[index]
        self.cancelled += other.cancelled
        self.jobs += other.jobs
        self.drawn += other.drawn
        for policy_id, utility in other.utilities.items():
            self.utilities[policy_id] = self.utilities.get(policy_id, 0) + utility
        self.latencies |= other.latencies

    def figures(self) -> PlatformFigures:
        """The figures."""
        # Of several that earn the same, the first by id.
        best = min(
            self.utilities.items(), key=lambda one: (-one[1], one[0]), default=("", self.drawn)
        )
        after_forecast = (slot.after_forecast_ns for slot in self.latencies.values())
        return PlatformFigures(
            spend=SpendFigures(
                spend_micro_usd=self.spend,
                on_demand_equivalent_micro_usd=self.on_demand_equivalent,
                saving_micro_usd=self.on_demand_equivalent - self.spend,
                spot_instance_s=self.spot_s,
                on_demand_instance_s=self.on_demand_s,
            ),
            deadlines=DeadlineFigures(
                hard_hits=self.hits[True],
                hard_misses=self.misses[True],
                soft_hits=self.hits[False],
                soft_misses=self.misses[False],
                cancelled=self.cancelled,
            ),
            regret=RegretFigures(
                jobs=self.jobs,
                best_policy_id=best[0],
                best_utility_micro_usd=best[1],
                regret_micro_usd=best[1] - self.drawn,
            ),
            decision_after_slot=latency(slot.after_slot_ns for slot in self.latencies.values()),
            decision_after_forecast=latency(ns for ns in after_forecast if ns is not None),
        )


@dataclass(slots=True)
class PlatformTally:
    """What a tenant's pieces add up to, by policy."""

    by_policy: dict[str, PolicyTally] = field(default_factory=dict)

    def append(self, other: Self) -> None:
        """Add another's; their order does not matter."""
        for policy_id, tally in other.by_policy.items():
            self.by_policy.setdefault(policy_id, PolicyTally()).add(tally)

    def total(self) -> PlatformFigures:
        """All policies together."""
        whole = PolicyTally()
        for _, tally in sorted(self.by_policy.items()):
            whole.add(tally)
        return whole.figures()

    def policies(self) -> tuple[PolicyFigures, ...]:
        """Each policy's figures, by id."""
        return tuple(
            PolicyFigures(policy_id=policy_id, figures=tally.figures())
            for policy_id, tally in sorted(self.by_policy.items())
        )


class PlatformPaneLaw:
    """How the pieces of a tenant add up."""

    def empty(self, before: PlatformTally | None = None) -> PlatformTally:
        """Nothing, whatever came before."""
        return PlatformTally()

    def add(self, tally: PlatformTally, piece: PlatformPiece) -> None:
        """Count a piece."""
        tally.by_policy.setdefault(piece.policy_id, PolicyTally()).count(piece.said)


def latency(samples_ns: Iterable[int]) -> LatencyFigures:
    """Exact percentiles by nearest rank; all 0 without a sample."""
    ordered = sorted(samples_ns)
    if not ordered:
        return LatencyFigures(samples=0, p50_ns=0, p99_ns=0, max_ns=0)
    count = len(ordered)
    return LatencyFigures(
        samples=count,
        p50_ns=ordered[(50 * count + 99) // 100 - 1],
        p99_ns=ordered[(99 * count + 99) // 100 - 1],
        max_ns=ordered[-1],
    )

"""From on-demand alone to what was really charged, in parts that add up to the micro-dollar.

The work that a job did in a slot is worth that share of its quote: what all of it would have cost
on on-demand alone, by the quote of its admission. A slot of a job is of one class:

- *compared*: its job was quoted, and it made progress before its deadline. Priced at on-demand,
  what was held is the work's worth, plus the overhead (instance-time that the progress did not
  take: starts, restarts, saves, waiting), plus the timing (the rest: other hours, places and counts
  than the quote's). Spot and the provider's billing rules then lower it to the bill.
- *no progress*: held, and no work done, or work lost. All that it differs from the work's worth.
- *late*: after the deadline. All that it differs from the work's worth.
- *not compared*: of jobs without a quote, and slots of which the progress is not told yet.

Copies of checkpoints are a part of their own in every class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from spotline.application.page.money import BilledCharge, SlotProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgePart:
    """A step of the waterfall: micro-USD, more (> 0) or less (< 0) than before it."""

    name: str
    micro_usd: int
    means: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """`on_demand_micro_usd` and all `parts` together are `actual_micro_usd`, exactly.

    `jobs` are those that are compared, `left_out_jobs` those without a quote.
    """

    on_demand_micro_usd: int
    parts: tuple[BridgePart, ...]
    actual_micro_usd: int
    jobs: int
    left_out_jobs: int


_MEANS: Mapping[str, str] = {
    "timing": "other hours, places and counts than on-demand from the first slot on, at on-demand prices",
    "restarts": "instance-time that the progress did not take: starts, restarts, saves, waiting",
    "spot discount": "spot instead of on-demand, there and then",
    "billing rules": "what the provider billed differently from its quoted on-demand price",
    "reserved": "work done on what is paid for already",
    "moves": "copies of checkpoints to other offerings",
    "no progress": "held without progress, and work that was lost",
    "late": "bought after the deadline, against what that work was quoted",
    "not compared": "charges of jobs without an on-demand quote, or not reported on yet",
}


class _Slot:
    """A slot of a job: how far it came, and what it was charged, summed."""

    __slots__ = (
        *("worth", "progress", "needed_s", "late", "told", "charges", "copies", "bill"),
        *("on_demand", "held_s", "discount", "reserved"),
    )

    def __init__(self) -> None:
        self.worth = self.progress = self.charges = self.copies = self.bill = 0
        self.on_demand = self.held_s = self.discount = 0
        self.needed_s = -1
        self.late = self.told = False
        self.reserved = True

    def come(self, step: SlotProgress) -> None:
        self.worth += step.worth_micro_usd
        self.progress += step.progress_ppm
        self.late = self.late or step.late
        self.needed_s = -1 if self.told else step.needed_instance_s
        self.told = True

    def charge(self, charge: BilledCharge) -> None:
        self.charges += 1
        cost = charge.cost_micro_usd
        if not charge.instances:
            self.copies += cost
            return
        self.bill += cost
        self.on_demand += charge.on_demand_micro_usd
        self.held_s += charge.instances * charge.held_s
        kind = charge.kind
        if kind == "spot":
            self.discount += cost - charge.on_demand_micro_usd
        if kind != "reserved":
            self.reserved = False


def waterfall(
    charges: Iterable[BilledCharge],
    steps: Iterable[SlotProgress],
    quoted: Mapping[str, int],
    closed: Mapping[str, int] = MappingProxyType({}),
) -> Waterfall:
    """Tell apart what made the bill differ from on-demand alone.

    Parameters
    ----------
    charges, steps
        Of the same jobs and the same period.
    quoted
        By job, what all of it was quoted on on-demand alone, micro-USD; 0 or absent: not known.
    closed
        The last slot of every job that is over: what it was charged for later made no progress.
    """
    slots: dict[tuple[str, int], _Slot] = {}
    for step in steps:
        _slot_of(slots, step.job_id, step.slot).come(step)
    for charge in charges:
        _slot_of(slots, charge.job_id, charge.slot).charge(charge)
    sums = dict.fromkeys(_MEANS, 0)
    worth = actual = 0
    for (job_id, number), slot in slots.items():
        if slot.progress > 0 and not slot.charges:
            # Its bill is not in yet.
            continue
        slot.told = slot.told or number > closed.get(job_id, number)
        actual += slot.bill + slot.copies
        if not quoted.get(job_id, 0):
            sums["not compared"] += slot.bill + slot.copies
            continue
        worth += slot.worth
        _add(sums, slot)
    jobs = {job_id for job_id, _ in slots}
    compared = {job_id for job_id in jobs if quoted.get(job_id, 0)}
    return Waterfall(
        on_demand_micro_usd=worth,
        parts=tuple(
            BridgePart(name=name, micro_usd=sums[name], means=means)
            for name, means in _MEANS.items()
        ),
        actual_micro_usd=actual,
        jobs=len(compared),
        left_out_jobs=len(jobs - compared),
    )


def _slot_of(slots: dict[tuple[str, int], _Slot], job_id: str, number: int) -> _Slot:
    key = job_id, number
    slot = slots.get(key)
    if slot is None:
        slot = slots[key] = _Slot()
    return slot


def _add(sums: dict[str, int], slot: _Slot) -> None:
    """Add the parts of a slot of a job that was quoted: they are its bill less the worth of its work."""
    if not slot.told:
        sums["not compared"] += slot.bill + slot.copies - slot.worth
        return
    sums["moves"] += slot.copies
    differs = slot.bill - slot.worth
    if slot.late:
        sums["late"] += differs
    elif slot.progress <= 0:
        sums["no progress"] += differs
    elif slot.reserved and slot.held_s:
        sums["reserved"] += differs
    else:
        overhead = 0
        if 0 <= slot.needed_s < slot.held_s:
            overhead = slot.on_demand * (slot.held_s - slot.needed_s) // slot.held_s
        sums["restarts"] += overhead
        sums["timing"] += slot.on_demand - overhead - slot.worth
        sums["spot discount"] += slot.discount
        sums["billing rules"] += slot.bill - slot.on_demand - slot.discount


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallBar:
    """A bar of the picture: from `low` to `high` of the way (0..1); `kind` says its colour."""

    name: str
    micro_usd: int
    low: float
    high: float
    kind: str
    means: str = ""


def levels_of(told: Waterfall) -> list[int]:
    """0, and where each bar of a waterfall ends, micro-USD."""
    levels = [0, told.on_demand_micro_usd]
    for part in told.parts:
        levels.append(levels[-1] + part.micro_usd)
    return levels


def scale_of(levels: Sequence[int]) -> tuple[int, int]:
    """From where to where bars are drawn, micro-USD: from 0, or from where parts can be told apart.

    `levels` are the ends of all bars, 0 among them. Where all others lie close together the scale
    begins as far below them as they lie apart.
    """
    low, high = min(levels[1:]), max(levels[1:])
    if low <= 0:
        return min(0, low), max(0, high)
    return max(0, 2 * low - high), high


def bars(told: Waterfall) -> list[WaterfallBar]:
    """Where the bars of a waterfall stand: totals from the ground, parts from where the last ended."""
    least, most = scale_of(levels_of(told))
    width = max(1, most - least)

    def bar(
        name: str, micro_usd: int, start: int, end: int, kind: str, means: str = ""
    ) -> WaterfallBar:
        low, high = sorted(((start - least) / width, (end - least) / width))
        return WaterfallBar(
            name=name, micro_usd=micro_usd, low=low, high=high, kind=kind, means=means
        )

    worth, actual = told.on_demand_micro_usd, told.actual_micro_usd
    ground = max(0, least)
    found = [bar("on-demand alone", worth, ground, worth, "on-demand", "as quoted at admission")]
    at = worth
    for part in told.parts:
        if part.micro_usd:
            kind = "good" if part.micro_usd < 0 else "bad"
            end = at + part.micro_usd
            found.append(bar(part.name, part.micro_usd, at, end, kind, part.means))
            at = end
    found.append(bar("charged", actual, ground, actual, "spot", "the ledger's bills"))
    return found

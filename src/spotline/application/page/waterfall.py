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
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class _Slot:
    worth: int = 0
    progress: int = 0
    needed_s: int = -1
    late: bool = False
    told: bool = False
    charges: list[BilledCharge] = field(default_factory=list)


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
        slot = slots.setdefault((step.job_id, step.slot), _Slot())
        slot.worth += step.worth_micro_usd
        slot.progress += step.progress_ppm
        slot.late = slot.late or step.late
        slot.needed_s = step.needed_instance_s if not slot.told else -1
        slot.told = True
    for charge in charges:
        slots.setdefault((charge.job_id, charge.slot), _Slot()).charges.append(charge)
    sums = dict.fromkeys(_MEANS, 0)
    worth = actual = 0
    for (job_id, number), slot in slots.items():
        if slot.progress > 0 and not slot.charges:
            # Its bill is not in yet.
            continue
        slot.told = slot.told or number > closed.get(job_id, number)
        actual += sum(charge.cost_micro_usd for charge in slot.charges)
        if quoted.get(job_id, 0):
            worth += slot.worth
        _add(sums, slot, is_quoted=bool(quoted.get(job_id, 0)))
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


def _add(sums: dict[str, int], slot: _Slot, *, is_quoted: bool) -> None:
    """Add the parts of a job's slot: they are its bill less the worth of its work."""
    held = [charge for charge in slot.charges if charge.instances]
    bill = sum(charge.cost_micro_usd for charge in held)
    copies = sum(charge.cost_micro_usd for charge in slot.charges) - bill
    if not is_quoted or not slot.told:
        sums["not compared"] += bill + copies - (slot.worth if is_quoted else 0)
        return
    sums["moves"] += copies
    if slot.late:
        sums["late"] += bill - slot.worth
    elif slot.progress <= 0:
        sums["no progress"] += bill - slot.worth
    elif held and all(charge.kind == "reserved" for charge in held):
        sums["reserved"] += bill - slot.worth
    else:
        _add_compared(sums, slot, held)


def _add_compared(sums: dict[str, int], slot: _Slot, held: Sequence[BilledCharge]) -> None:
    on_demand = sum(charge.on_demand_micro_usd for charge in held)
    held_s = sum(charge.instances * charge.held_s for charge in held)
    overhead = 0
    if 0 <= slot.needed_s < held_s:
        overhead = on_demand * (held_s - slot.needed_s) // held_s
    sums["restarts"] += overhead
    sums["timing"] += on_demand - overhead - slot.worth
    for charge in held:
        name = "spot discount" if charge.kind == "spot" else "billing rules"
        sums[name] += charge.cost_micro_usd - charge.on_demand_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
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


def bars(told: Waterfall) -> list[Bar]:
    """Where the bars of a waterfall stand: totals from the ground, parts from where the last ended."""
    least, most = scale_of(levels_of(told))
    width = max(1, most - least)

    def bar(name: str, micro_usd: int, start: int, end: int, kind: str, means: str = "") -> Bar:
        low, high = sorted(((start - least) / width, (end - least) / width))
        return Bar(name=name, micro_usd=micro_usd, low=low, high=high, kind=kind, means=means)

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

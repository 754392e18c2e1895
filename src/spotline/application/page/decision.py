"""The page of one decision: what was decided, on what forecast, and what really came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotline.application.explaining.messages import CauseLink, DecisionExplanation
from spotline.application.page.decisions import DecisionMade, QuoteThen, StepAhead
from spotline.application.page.state import PageState
from spotline.application.read_model.ports import InputProblem, ViewRefused
from spotline.contracts.reasons import Reason

DIVERGENCE = "divergence"
"""The kind of the input that says in what a recomputed decision differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPlace:
    """A decision among those of its job; the neighbours are None at the ends."""

    made: DecisionMade
    revisions: tuple[DecisionMade, ...]
    before: DecisionMade | None
    after: DecisionMade | None


def decision_place(state: PageState, job_id: str, slot: int, revision: int | None) -> DecisionPlace:
    """A job's decision in a slot; no revision: the last.

    Raises
    ------
    ViewRefused
        There is none; the message names the nearest.
    """
    decided = list(state.decisions.of_job.get(job_id, {}).values())
    made = state.decisions.made(job_id, slot, revision)
    if made is None:
        raise _unknown(decided, job_id, slot, revision)
    at = decided.index(made)
    return DecisionPlace(
        made=made,
        revisions=tuple(each for each in decided if each.event.slot == slot),
        before=decided[at - 1] if at else None,
        after=decided[at + 1] if at + 1 < len(decided) else None,
    )


def _unknown(
    decided: Sequence[DecisionMade], job_id: str, slot: int, revision: int | None
) -> ViewRefused:
    what = f"slot {slot}" if revision is None else f"revision {revision} of slot {slot}"
    if not decided:
        follows = "nothing has been decided for it yet"
    else:
        nearest = min(decided, key=lambda each: (abs(each.event.slot - slot), each.seq)).event
        follows = f"the nearest is revision {nearest.revision} of slot {nearest.slot}"
    return ViewRefused(
        Reason.UNKNOWN_JOB,
        f"job {job_id[:8]} has no decision in {what}: {follows}",
        (InputProblem(field="slot", expected="a slot with a decision", found=str(slot)),),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastThen:
    """What was expected of the slots after a decision's, and what has come of it.

    `ahead[i]` is of slot `first_slot + i`; `came` are the slots that have opened since.
    """

    offering_id: str
    first_slot: int
    ahead: tuple[StepAhead, ...]
    came: tuple[QuoteThen, ...]

    @property
    def inside(self) -> tuple[int, int]:
        """Of the slots whose count is known, how many came between low and high, and how many."""
        known = [quote for quote in self.came if quote.spot >= 0]
        hits = 0
        for quote in known:
            step = self.ahead[quote.slot - self.first_slot]
            hits += step.low <= quote.spot <= step.high
        return hits, len(known)


def forecast_then(state: PageState, made: DecisionMade) -> ForecastThen | None:
    """The forecast that a decision was made with, None where none was issued for its offering."""
    slot = made.event.slot
    ahead = state.decisions.ahead(slot, made.home)
    if not ahead:
        return None
    came = state.decisions.quotes(made.home, slot + 1, slot + len(ahead))
    return ForecastThen(
        offering_id=made.home, first_slot=slot + 1, ahead=tuple(ahead), came=tuple(came)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseStep:
    """A step of the chain from the quote to the bill.

    `page` is the one of the job's events on which it can be looked at, 0: it names no job.
    """

    link: CauseLink
    role: str
    page: int


_ROLES = (
    ("market.slot", "quote"),
    ("market.quote", "quote"),
    ("forecast", "forecast"),
    ("allocation", "answer"),
    ("decision", "decision"),
    ("provisioning", "command"),
    ("capacity", "cloud"),
    ("bill", "bill"),
    ("cost", "bill"),
    ("job.closed", "end"),
)


def cause_steps(
    explanation: DecisionExplanation, *, until_seq: int, pages: Mapping[str, int]
) -> list[CauseStep]:
    """The chain as far as the log had come at `until_seq`; `pages` say where each event id is."""
    return [
        CauseStep(
            link=link,
            role=next((role for kind, role in _ROLES if link.kind.startswith(kind)), "event"),
            page=pages.get(link.event_id, 0),
        )
        for link in explanation.chain
        if link.seq <= until_seq
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePoint:
    """What holding so many instances was worth; `x` and `y` are places in a drawing of 100 by 100."""

    instances: int
    kind: str
    utility_micro_usd: int
    chosen: bool
    could: bool
    x: float
    y: float


def value_points(explanation: DecisionExplanation) -> list[ValuePoint]:
    """Utility against count of the alternatives on the chosen offering; fewer than 3 say nothing."""
    chosen = next((each for each in explanation.alternatives if each.chosen), None)
    if chosen is None:
        return []
    home = chosen.lots[0].offering_id if chosen.lots else ""
    found = []
    for each in explanation.alternatives:
        places = {lot.offering_id for lot in each.lots if lot.spot or lot.on_demand}
        if not home and len(places) == 1 and not chosen.lots:
            home = next(iter(places))
        if places - {home}:
            continue
        spot = sum(lot.spot for lot in each.lots)
        on_demand = sum(lot.on_demand for lot in each.lots)
        kind = "mixed" if spot and on_demand else "on-demand" if on_demand else "spot"
        kind = kind if spot or on_demand else "nothing"
        found.append((spot + on_demand, kind, each))
    if len(found) < 3:
        return []
    most = max(count for count, _, _ in found) or 1
    worths = [each.utility_micro_usd for _, _, each in found]
    low, high = min(worths), max(worths)
    height = max(1, high - low)
    return [
        ValuePoint(
            instances=count,
            kind=kind,
            utility_micro_usd=each.utility_micro_usd,
            chosen=each.chosen,
            could=each.cut is None,
            x=round(100.0 * count / most, 2),
            y=round(100.0 - 100.0 * (each.utility_micro_usd - low) / height, 2),
        )
        for count, kind, each in sorted(
            found, key=lambda row: (row[0], row[1], row[2].worse_by_micro_usd)
        )
    ]


def reproduced(explanation: DecisionExplanation) -> bool:
    """Whether the decision that was worked out again is the recorded one."""
    return all(each.kind != DIVERGENCE for each in explanation.inputs)

"""What the selector knew when it decided, copied from its state: that goes on with the log.

Money is micro-USD, times nanoseconds since the epoch, of the market.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spotline.application.allocation.messages import AllocateRequest
from spotline.application.selector.freezing import blocking
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.state import SelectorState
from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.program import Holding
from spotline.domain.limits.freezes import Freeze
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.domain.policies.registry import POOL
from spotline.domain.selection.rules import weights_ppb
from spotline.domain.units import NS_PER_S, PPM

STRANGER = "a job of another tenant"
"""How a job is called to whom it is not to be named."""

_SHOWN_OF_ID = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One running job when it was decided on.

    `done_ppm` and `saved_ppm` (None: not known) are shares of its work, `reported` says that they
    are its program's word and not the formula's. `weights_ppb` are those its policy was drawn
    from, by policy. `tables` are the laws of its value tables, by offering and table id, `stopped` is
    what stood against buying anything for it at home.
    """

    job: Job
    policy_id: str
    offering_id: str
    first_slot: int
    deadline_slot: int
    held_lots: tuple[Lot, ...]
    done_ppm: int
    saved_ppm: int | None
    reported: bool
    generation: int
    weights_ppb: tuple[tuple[str, int], ...]
    tables: tuple[tuple[str, str, str], ...]
    retry: int
    not_before_ns: int
    stopped: Freeze | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketFacts:
    """The market and the fleet when something was decided.

    `history` ends with the open slot. `caps` are what refusals have shown to be all there is,
    `fault` says why the forecast is not used, empty where it is; `shares_ppm` how much of its next
    step is believed, by offering.
    """

    opened: SlotOpened
    offset_s: int
    revision: int
    history: tuple[SlotOpened, ...]
    caps: Mapping[tuple[str, CapacityType], int]
    forecast_reason: DecisionReason
    fault: str
    shares_ppm: Mapping[str, int]

    @property
    def now_ns(self) -> int:
        """The moment in the market."""
        return self.opened.ts_event_ns + self.offset_s * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedTurn:
    """What was decided at once: what was asked, what was answered, and what followed, recomputed.

    `request` is what the allocator was asked, or what was decided without it; None where no policy
    was to be asked. `digest` is its content's hash, `answered` the recorded answer. `answers` are
    the policies', recomputed, in the order of the request.
    """

    market: MarketFacts
    jobs: Mapping[str, JobFacts]
    request: AllocateRequest | None
    digest: str
    answered: AllocationAnswered | None
    answers: tuple[JobAnswer, ...]
    decisions: tuple[AllocationDecided, ...]

    def decision_of(self, job_id: str) -> AllocationDecided | None:
        """What is decided for a job, recomputed; None: nothing."""
        return next((found for found in self.decisions if found.job_id == job_id), None)


def market_facts(state: SelectorState) -> MarketFacts:
    """Copy what a state knows of the market."""
    opened = state.current
    return MarketFacts(
        opened=opened,
        offset_s=state.offset_s,
        revision=state.revision,
        history=(*(slot for slot, _ in state.history), opened),
        caps=dict(state.caps),
        forecast_reason=state.forecast_reason,
        fault=state.trust.fault(),
        shares_ppm={
            slot_quote.quote.offering_id: state.trust.share_ppm(slot_quote.quote.offering_id, 1)
            for slot_quote in opened.quotes
        },
    )


def jobs_facts(state: SelectorState) -> dict[str, JobFacts]:
    """Copy what a state knows of its running jobs."""
    return {run.job.job_id: _job_facts(state, run) for run in state.running()}


def _job_facts(state: SelectorState, run: JobRun) -> JobFacts:
    program = run.compiled
    now = run.state_at(state.offset_s) if state.offset_s else run.state
    saved = run.saved
    draw = state.draws.get(run.job.job_id)
    drawn = () if draw is None else weights_ppb(draw.weights)
    named = zip((policy.policy_id for policy in POOL), drawn, strict=False)
    return JobFacts(
        job=run.job,
        policy_id=run.policy_id,
        offering_id=run.offering_id,
        first_slot=run.first_slot,
        deadline_slot=run.first_slot + program.deadline_slots - 1,
        held_lots=run.held_lots,
        done_ppm=now.progress_quanta * PPM // program.work_quanta,
        saved_ppm=None if saved is None else saved * PPM // program.work_quanta,
        reported=run.reported_quanta is not None or run.is_run,
        generation=run.generation,
        weights_ppb=tuple(sorted(named, key=lambda pair: (-pair[1], pair[0]))),
        tables=tuple(
            (offering_id, table.spec.table_id, table.named.law_id)
            for offering_id, table in sorted(run.tables.items())
        ),
        retry=run.retry,
        not_before_ns=run.not_before_ns,
        stopped=_stopped(state, run),
    )


def _stopped(state: SelectorState, run: JobRun) -> Freeze | None:
    """What stands against buying both spot and on-demand for a job where it is."""
    found = [blocking(state, run, run.offering_id, kind) for kind in CapacityType]
    return None if None in found else found[0]


def lot_text(lots: tuple[Lot, ...]) -> str:
    """What is held, for people: `4 spot + 1 on-demand on zone-a`, `nothing`."""
    said = [
        f"{_counts(Holding(spot=lot.spot, on_demand=lot.on_demand))} on {lot.offering_id}"
        for lot in lots
        if lot.spot or lot.on_demand
    ]
    return " and ".join(said) or "nothing"


def _counts(holding: Holding) -> str:
    parts = []
    if holding.spot:
        parts.append(f"{holding.spot} spot")
    if holding.on_demand:
        parts.append(f"{holding.on_demand} on-demand")
    return " + ".join(parts)


def job_text(turn: DecidedTurn, job_id: str, other_id: str) -> str:
    """Another job's name or id, as the owner of `job_id` may know it; no id: another tenant's."""
    other, own = turn.jobs.get(other_id), turn.jobs.get(job_id)
    if not other_id or (
        other is not None and own is not None and own.job.tenant != other.job.tenant
    ):
        return STRANGER
    return (other.job.name if other is not None else "") or other_id[:_SHOWN_OF_ID]


def counted(number: int, name: str) -> str:
    """A number of things: `1 slot`, `2 slots`."""
    return f"{number} {name}{'' if number == 1 else 's'}"


def usd_text(micro_usd: int) -> str:
    """An amount for people, to the cent; less than that to the part that shows."""
    cents = round(micro_usd / 10_000)
    if cents or not micro_usd:
        return f"USD {cents / 100:,.2f}"
    return f"USD {micro_usd / 1e6:.6f}".rstrip("0")

"""Generated logs for the statistics: out of order, with entries twice, and their folding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random

from spotline.application.analytics.handler import StatisticsFold
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.analytics.store import Issue, StatisticsStore
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.envelope import Envelope, StoredEntry, derive_id
from spotline.contracts.publishers import CAUSED, PUBLISHERS
from spotline.contracts.subjects import KINDS, filter_of
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.placement import PipelineSubmitted, PlacementEnd, PlacementEnded
from spotline.domain.events.selection import PolicyWeight, PolicyWeightsUpdated
from spotline.domain.jobs.job import Deadline, DeadlineKind
from spotline.domain.market.offering import CapacityType, Count, Provenance, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S, cost_micro_usd
from tests.samples.events import JOB, PIPELINE, START_NS

POLICIES = ("ahap(3,1,0.5)", "msu", "sdp")
OFFERINGS = ("aws/a/1/p3", "aws/b/2/p3")


def generated(seed: int, *, slots: int, slot_s: int, jobs: int = 3) -> list[tuple[Event, str, str]]:
    """The events of a run in the order in which they happened, with id and cause."""
    dice = Random(seed)
    log: list[tuple[Event, str, str]] = []

    def tell(event: Event, cause: str = "") -> str:
        kind = KINDS[type(event)]
        event_id = derive_id(cause, kind, len(log)) if kind in CAUSED else f"e{len(log)}"
        log.append((event, event_id, cause))
        return event_id

    plans = [_plan(dice, number, slots) for number in range(jobs)]
    for plan in plans:
        tell(JobSubmitted(job=plan["job"], ts_event_ns=START_NS))
    pipelines = [_plan(dice, number, slots) for number in range(jobs, jobs + 1)]
    prices = {name: [3_000_000, 9_000_000] for name in OFFERINGS}
    for slot in range(slots):
        if dice.random() < 0.08 and 0 < slot < slots - 1:
            continue  # a slot that never opened
        quotes = _quotes(dice, prices, START_NS + slot * slot_s * NS_PER_S)
        opened = tell(
            SlotOpened(
                slot=slot,
                ts_event_ns=START_NS + slot * slot_s * NS_PER_S,
                slot_s=slot_s,
                quotes=quotes,
            )
        )
        for plan in [*plans, *pipelines]:
            _bill(tell, dice, plan, slot - 1, slot_s, opened)
        for plan in pipelines:
            _turn_of_pipeline(tell, plan, slot, slot_s, opened)
        for plan in plans:
            _turn(tell, dice, plan, slot, opened)
        if dice.random() < 0.8:
            tell(ForecastIssued(slot=slot, model_id="m", forecasts=(), scores=()), opened)
        for plan in plans:
            if plan["first"] <= slot < plan["first"] + plan["slots"]:
                tell(_choice(plan, slot), opened)
        tell(SlotDecided(slot=slot, revision=0, offset_s=0, commands=0), opened)
        if dice.random() < 0.3:
            tell(SlotDecided(slot=slot, revision=1, offset_s=60, commands=0), opened)
    return log


def _plan(dice, number, slots):
    hard = dice.random() < 0.5
    deadline = Deadline(
        kind=DeadlineKind.HARD if hard else DeadlineKind.SOFT,
        at_ns=START_NS + 10**15,
        expires_ns=START_NS + 10**15 + (0 if hard else 10**14),
    )
    return {
        "job": replace(
            JOB, job_id=f"job-{number}", tenant=dice.choice(["red", "blue"]), deadline=deadline
        ),
        "policy": dice.choice(POLICIES),
        "offering": dice.choice(OFFERINGS),
        "first": dice.randrange(max(1, slots // 2)),
        "slots": dice.randint(1, max(1, slots // 2)),
        "outcome": dice.choice(list(JobOutcome)),
    }


def _quotes(dice, prices, ts_ns):
    quotes = []
    for name in OFFERINGS:
        if dice.random() < 0.05:
            continue
        price = prices[name]
        for place in (0, 1):
            if dice.random() < (0.5, 0.1)[place]:
                price[place] = max(1, price[place] + dice.randint(-900_001, 900_000))
        known = dice.random() < 0.9
        count = Count(
            instances=dice.choice([0, 0, 1, 3, 7]) if known else 0,
            provenance=Provenance.OBSERVED if known else Provenance.UNKNOWN,
        )
        quote = Quote(
            offering_id=name,
            ts_event_ns=ts_ns,
            spot_price_micro_usd=price[0],
            on_demand_price_micro_usd=price[1],
            spot_available=count,
            on_demand_available=count,
        )
        quotes.append(SlotQuote(quote=quote, age_s=0))
    return tuple(quotes)


def _bill(tell, dice, plan, slot, slot_s, cause):
    if not plan["first"] <= slot < plan["first"] + plan["slots"]:
        return
    for capacity_type in CapacityType:
        instances = dice.randint(0, 4)
        held_s = dice.randint(1, slot_s)
        price = dice.randint(1_000_000, 9_000_000)
        tell(
            CostAccrued(
                job_id=plan["job"].job_id,
                tenant=plan["job"].tenant,
                offering_id=plan["offering"],
                quota_pool="q",
                capacity_type=capacity_type,
                slot=slot,
                instances=instances,
                held_s=held_s if instances else 0,
                price_micro_usd=price,
                cost_micro_usd=cost_micro_usd(price, instances, held_s) if instances else 777,
            ),
            cause,
        )


def _turn(tell, dice, plan, slot, cause):
    whose = {"job_id": plan["job"].job_id, "tenant": plan["job"].tenant}
    if slot == plan["first"]:
        tell(
            JobAdmitted(
                **whose,
                slot=slot,
                policy_id=plan["policy"],
                offering_id=plan["offering"],
                deadline_slot=slot + plan["slots"] + 2,
                weight_ppb=1,
            ),
            cause,
        )
    over = slot - plan["first"] - plan["slots"]
    if over == 0:
        tell(
            JobClosed(
                **whose,
                slot=slot - 1,
                outcome=plan["outcome"],
                policy_id=plan["policy"],
                cost_micro_usd=0,
                value_micro_usd=0,
                progress_ppm=0,
            ),
            cause,
        )
    if over in (0, 2):
        # Rehearsals move the weights too, and are nobody's job.
        tell(
            PolicyWeightsUpdated(
                round=1,
                job_id=plan["job"].job_id,
                rule="adahedge",
                weights=tuple(
                    PolicyWeight(
                        policy_id=name,
                        weight_ppb=1,
                        utility_micro_usd=dice.randint(-(10**9), 10**9),
                    )
                    for name in POLICIES
                ),
                rehearsed_slot=-1 if over else 3,
                utility_floor_micro_usd=0,
                utility_ceiling_micro_usd=0,
            ),
            cause,
        )


def _turn_of_pipeline(tell, plan, slot, slot_s, cause):
    whose = {"job_id": plan["job"].job_id, "tenant": plan["job"].tenant}
    ts_event_ns = START_NS + slot * slot_s * NS_PER_S
    if slot == plan["first"]:
        tell(PipelineSubmitted(pipeline=replace(PIPELINE, **whose), ts_event_ns=ts_event_ns))
    if slot == plan["first"] + plan["slots"]:
        tell(
            PlacementEnded(
                **whose,
                ts_event_ns=ts_event_ns,
                end=PlacementEnd.COMPLETED,
                iterations_done=1,
                cost_micro_usd=1,
            ),
            cause,
        )


def _choice(plan, slot):
    return AllocationDecided(
        job_id=plan["job"].job_id,
        tenant=plan["job"].tenant,
        slot=slot,
        revision=0,
        offset_s=0,
        policy_id=plan["policy"],
        lots=(),
        reason=DecisionReason.POLICY,
        forecast_used=True,
        explanation="",
    )


def stored(
    log: Sequence[tuple[Event, str, str]], order: Iterable[int], *, stored_ns=None
) -> list[StoredEntry]:
    """The entries of a stream that got `log` in an order; an index may come twice."""
    entries = []
    for seq, index in enumerate(order, start=1):
        event, event_id, cause = log[index]
        envelope = envelope_for(
            event,
            event_id=event_id,
            source=min(PUBLISHERS[KINDS[type(event)]]),
            causation_id=cause,
            correlation_id="",
            index=index,
        )
        entries.append(
            entry_of(envelope, seq, START_NS + (seq if stored_ns is None else index) * 1_000_003)
        )
    return entries


def entry_of(envelope: Envelope, seq: int, stored_ns: int) -> StoredEntry:
    return StoredEntry(
        seq=seq,
        stored_ns=stored_ns,
        subject=envelope.subject,
        headers=envelope.headers(),
        payload=envelope.payload,
    )


def shuffled(count: int, seed: int, *, reach: int, twice: float = 0.1) -> list[int]:
    """Indices displaced by up to `reach` places, some of them a second time later."""
    dice = Random(seed)
    places = [(index + dice.uniform(0, reach), index) for index in range(count)]
    again = [
        (place + dice.uniform(0, 3 * reach + 5), i) for place, i in places if dice.random() < twice
    ]
    return [index for _, index in sorted([*places, *again])]


def take(fold: StatisticsFold, entry: StoredEntry) -> Sequence[Issue]:
    envelope = entry.envelope()
    return fold.take(
        event_of(entry),
        event_id=envelope.event_id,
        seq=entry.seq,
        stored_ns=entry.stored_ns,
        causation_id=envelope.causation_id,
        place=entry.place,
    )


def in_batches(entries: Sequence[StoredEntry], *, most: int) -> list[StoredEntry]:
    """The same events, up to `most` neighbours in one entry; an opening has one of its own."""
    batched: list[StoredEntry] = []
    seq, place, opening = 0, 0, True
    for entry in entries:
        opens = entry.subject == filter_of(SlotOpened)
        place += 1
        if opens or opening or place >= most:
            seq, place = seq + 1, 0
        opening = opens
        batched.append(replace(entry, seq=seq, place=place))
    return batched


def folded(
    entries: Sequence[StoredEntry],
    options: StatisticsOptions,
    *,
    store: StatisticsStore | None = None,
    forgetting: bool | Callable[[], bool] = True,
) -> list[Issue]:
    """Everything issued for `entries`; it may forget behind each, or where it is told to."""
    fold = StatisticsFold(options, store)
    issues: list[Issue] = []
    for entry in entries:
        fresh = take(fold, entry)
        fold.issued(fresh)
        issues.extend(fresh)
        if forgetting() if callable(forgetting) else forgetting:
            fold.forget(entry.seq)
    return issues

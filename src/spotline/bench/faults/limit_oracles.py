"""What must hold of limits on money, told from ledger rows, the cloud's own book and the log.

Nothing here asks the limits themselves: sums, windows and shares are worked out again.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spotline.bench.faults.accounts import Accounts, CloudInstance, slot_s_of
from spotline.bench.faults.oracles import Oracle, Problems, Violation
from spotline.domain.events.allocation import AllocationAnswered
from spotline.domain.events.capacity import LaunchRefused
from spotline.domain.events.freeze import BuyingExcepted, BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome
from spotline.domain.events.limits import LimitAction, LimitReached
from spotline.domain.events.market import MarketOpened
from spotline.domain.events.parking import EntryParked
from spotline.domain.units import NS_PER_S, S_PER_HOUR

_MINUTE_NS = 60 * NS_PER_S
_MOST_TOLD = 3
_FORWARD = "value still to gain"
_ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLimit:
    """The most that may be spent in any so long a time; an empty tenant or kind stands for all."""

    tenant: str
    capacity_type: str
    span_s: int
    most_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLimits:
    """The limits of a run, as its family drew them; None: there is no such limit."""

    job_micro_usd: int | None
    launches_per_minute: int | None
    spans: tuple[SpanLimit, ...]
    quotas: Mapping[str, int] = field(default_factory=dict)

    @property
    def on_money(self) -> bool:
        """Whether any of them is about money."""
        return bool(self.spans) or self.job_micro_usd is not None


# --- money ------------------------------------------------------------------------------------


def jobs_stay_within_their_cap(accounts: Accounts) -> Problems:
    """No job costs more than a job may, the copies of its checkpoint counted."""
    most = _limits(accounts).job_micro_usd
    if most is None:
        return
    for job_id, spent in sorted(_spent_by_job(accounts).items()):
        if spent > most:
            yield f"job {job_id} was charged {spent} micro-USD, it may be {most}"


def spend_stays_within_every_limit(accounts: Accounts) -> Problems:
    """In no hour and no day more is charged than may be: in total, of a kind, of a tenant."""
    slot_s = slot_s_of(accounts)
    rows = accounts.ledger["charges"]
    for limit in _limits(accounts).spans:
        by_slot: Counter[int] = Counter()
        number: Counter[int] = Counter()
        for row in rows:
            theirs = limit.tenant in ("", row["tenant"])
            if theirs and limit.capacity_type in ("", row["capacity_type"]):
                by_slot[row["slot"]] += row["cost_micro_usd"]
                number[row["slot"]] += 1
        back = -(-limit.span_s // slot_s)
        for slot in sorted(by_slot):
            window = range(slot - back + 1, slot + 1)
            spent = sum(by_slot[each] for each in window)
            # Each charge is rounded by itself.
            if spent > limit.most_micro_usd + sum(number[each] for each in window):
                yield f"{spent} micro-USD in {limit.span_s} s to slot {slot} pass {limit}"
                break


def what_is_not_worth_it_is_not_paid(accounts: Accounts) -> Problems:
    """After prices have jumped, no job costs more than it could still gain."""
    first: Any = accounts.outcome.notes.get("jumped_at")
    if first is None:
        return
    worth = {job.job_id: job.value_micro_usd for job in accounts.outcome.scenario.jobs}
    since: Counter[str] = Counter()
    for row in accounts.ledger["charges"]:
        if row["slot"] >= first:
            since[row["job_id"]] += row["cost_micro_usd"]
    for job_id, spent in sorted(since.items()):
        if spent > worth.get(job_id, 0):
            yield f"job {job_id} is worth {worth.get(job_id, 0)}, and cost {spent} after the jump"


# --- launches ---------------------------------------------------------------------------------


def launches_stay_within_the_rate(accounts: Accounts) -> Problems:
    """In no minute the cloud starts more than may be, but what was excepted and is on record."""
    most = _limits(accounts).launches_per_minute
    if most is None:
        return
    excepted: Counter[int] = Counter()
    for event in accounts.events(BuyingExcepted):
        # What a stop is excepted from is so from the rate as well: one of them is named.
        excepted[event.slot] += event.instances
    starts = sorted(instance.start_ns for instance in accounts.instances)
    for place, at_ns in enumerate(starts):
        if place + 1 < len(starts) and starts[place + 1] == at_ns:
            continue
        began = bisect_right(starts, at_ns - _MINUTE_NS)
        slots = {_slot_at(accounts, start) for start in starts[began : place + 1]}
        allowed = most + sum(excepted[slot] for slot in slots)
        if place + 1 - began > allowed:
            yield f"{place + 1 - began} instances started in a minute of slot {max(slots)}, {allowed} may be"


def quotas_are_kept(accounts: Accounts) -> Problems:
    """Of no quota pool more is held than may be, but on-demand that was excepted and is on record."""
    quotas = _limits(accounts).quotas
    pools = {
        offering.offering_id: offering.quota_pool
        for opened in accounts.events(MarketOpened)
        for offering in opened.offerings
    }
    for pool, most in sorted(quotas.items()):
        held = [each for each in accounts.instances if pools.get(each.offering_id) == pool]
        excepted = [
            event
            for event in accounts.events(BuyingExcepted)
            if pools.get(event.offering_id) == pool
        ]
        for at_ns in sorted({instance.start_ns for instance in held}):
            slot = _slot_at(accounts, at_ns)
            running = sum(
                instance.start_ns <= at_ns and not (instance.end_ns or at_ns + 1) <= at_ns
                for instance in held
            )
            # What was excepted may be held for as long as its job needs it.
            allowed = most + sum(event.instances for event in excepted if event.slot <= slot)
            if running > allowed:
                yield f"{running} of quota pool {pool} were held in slot {slot}, {allowed} may be"
                break


def what_is_cut_is_told(accounts: Accounts) -> Problems:
    """A launch that limits cut is refused in the log; one that they let through is excepted there."""
    refused = {event.command_id for event in accounts.events(LaunchRefused)}
    excepted: Counter[tuple[str, int]] = Counter()
    for event in accounts.events(BuyingExcepted):
        excepted[event.job_id, event.slot] += event.instances
    bought: Counter[tuple[str, int]] = Counter()
    held = Counter(
        (row["command_id"], row["attempt"], row["capacity_type"])
        for row in accounts.ledger["instances"]
    )
    for row in accounts.ledger["intents"]:
        for kind, requested, permitted, _, detail, *_ in json.loads(row["launches"]):
            if permitted < requested and row["command_id"] not in refused:
                yield f"command {row['command_id']} was cut to {permitted} of {requested} ({detail}), and the log does not say so"
            if detail.startswith("excepted"):
                bought[row["job_id"], row["slot"]] += held[row["command_id"], row["attempt"], kind]
    for (job_id, slot), count in sorted(bought.items()):
        if excepted[job_id, slot] < count:
            yield f"{count} instances of job {job_id} were excepted in slot {slot}, on record are {excepted[job_id, slot]}"


def exceptions_are_for_hard_deadlines(accounts: Accounts) -> Problems:
    """Only on-demand of an admitted hard deadline is excepted, within what is left of its quote."""
    hard = {
        job.job_id for job in accounts.outcome.scenario.jobs if job.deadline.kind.value == "hard"
    }
    for event in accounts.events(BuyingExcepted):
        if event.job_id not in hard:
            yield f"job {event.job_id} has no hard deadline, and was excepted from {event.against}"
        if event.quote_left_micro_usd <= 0 or event.instances < 1:
            yield f"{event} is no exception"


# --- stops ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stop:
    freeze: Any
    begin_ns: int
    end_ns: float

    def covers(self, instance: CloudInstance, tenant: str, account: str) -> bool:
        freeze, start_ns = self.freeze, instance.start_ns
        # The actuator stops after what it did at that moment, the others before.
        late = freeze.reason.value == "crash_loop" and start_ns == self.begin_ns
        if late or not self.begin_ns <= start_ns < self.end_ns:
            return False
        kind = freeze.capacity_type
        if kind is not None and kind.value != instance.capacity_type:
            return False
        keys = {
            "system": freeze.key,
            "account": account,
            "offering": instance.offering_id,
            "tenant": tenant,
            "job": instance.job_id,
        }
        return bool(keys[freeze.scope.value] == freeze.key)


def stops_are_kept(accounts: Accounts) -> Problems:
    """Nothing is started under a stop of buying, but on-demand that was excepted from it."""
    stops = list(_stops(accounts))
    tenants = {job.job_id: job.tenant for job in accounts.outcome.scenario.jobs}
    places = {
        offering.offering_id: f"{offering.provider}/{offering.account}"
        for opened in accounts.events(MarketOpened)
        for offering in opened.offerings
    }
    excepted: Counter[tuple[str, int]] = Counter()
    for event in accounts.events(BuyingExcepted):
        excepted[event.job_id, event.slot] += event.instances
    for instance in accounts.instances:
        tenant = tenants.get(instance.job_id, "")
        account = places.get(instance.offering_id, "")
        against = [stop for stop in stops if stop.covers(instance, tenant, account)]
        if not against:
            continue
        key = instance.job_id, _slot_at(accounts, instance.start_ns)
        if instance.capacity_type == _ON_DEMAND and excepted[key]:
            excepted[key] -= 1
            continue
        yield f"{instance.instance_id} was started in slot {key[1]} against {against[0].freeze.freeze_id}"


def the_breaker_trips(accounts: Accounts) -> Problems:
    """Where more than 3 and over 45 % failed in a slot, a breaker is open when the next one opens."""
    breakers = [stop for stop in _stops(accounts) if stop.freeze.reason.value == "breaker"]
    slot_ns = slot_s_of(accounts) * NS_PER_S
    for slot, opened in sorted(accounts.slots.items()):
        now_ns = opened.ts_event_ns
        failed = sum(
            instance.failed and now_ns - slot_ns <= (instance.end_ns or 0) < now_ns
            for instance in accounts.instances
        )
        running = sum(
            # What is released as the slot opens was held when it did.
            instance.start_ns < now_ns and not (instance.end_ns or now_ns) < now_ns
            for instance in accounts.instances
        )
        if failed <= 3 or failed * 100 <= 45 * (failed + running):
            continue
        if not any(stop.begin_ns <= now_ns < stop.end_ns for stop in breakers):
            yield f"{failed} instances failed before slot {slot}, {running} ran on, and no breaker tripped"


def stops_and_ends_have_reasons(accounts: Accounts) -> Problems:
    """A job that a limit stopped was told of it before, and what is said is so."""
    told: set[str] = set()
    for event in accounts.events(LimitReached, JobClosed):
        if isinstance(event, JobClosed):
            if event.outcome is JobOutcome.STOPPED_BY_LIMIT and event.job_id not in told:
                yield f"job {event.job_id} was stopped by a limit, and the log does not say by which"
            continue
        if event.action in (LimitAction.STOP, LimitAction.WIND_DOWN):
            told.add(event.job_id)
        ends = event.limit == _FORWARD and event.action is not LimitAction.FINISH
        if ends and event.cost_to_come_micro_usd <= event.value_to_gain_micro_usd:
            yield f"job {event.job_id} was worth it, says {event}"


def too_large_answers_are_parked(accounts: Accounts) -> Problems:
    """An answer that gives a job more than it can use is left out."""
    most = {job.job_id: job.allowed_counts[-1] for job in accounts.outcome.scenario.jobs}
    parked = {event.event_id for event in accounts.events(EntryParked)}
    for logged in accounts.logged:
        if not isinstance(logged.event, AllocationAnswered) or logged.event_id in parked:
            continue
        for answer in logged.event.answers:
            given = sum(lot.spot + lot.on_demand for lot in answer.lots)
            if given > 2 * most.get(answer.job_id, 0):
                yield f"answer {logged.event_id} gives job {answer.job_id} {given} instances"


LIMITS: tuple[Oracle, ...] = (
    jobs_stay_within_their_cap,
    spend_stays_within_every_limit,
    what_is_not_worth_it_is_not_paid,
    launches_stay_within_the_rate,
    quotas_are_kept,
    what_is_cut_is_told,
    exceptions_are_for_hard_deadlines,
    stops_are_kept,
    the_breaker_trips,
    stops_and_ends_have_reasons,
    too_large_answers_are_parked,
)


# --- deadlines --------------------------------------------------------------------------------


def deadlines_are_kept(accounts: Accounts, calm: Accounts) -> list[Violation]:
    """Hard deadlines that the undisturbed run meets are met, where that is worth it.

    It is, where all that the job ran there costs half of its value at the dearest on-demand price
    of this run, and none of its instances failed. Rates stand back for it as far as its quote
    reaches; limits on money do not.
    """
    limits = _limits(accounts)
    if limits.on_money:
        return []
    return [
        Violation(oracle="deadlines_are_kept", detail=problem)
        for problem in list(_missed(accounts, calm, limits))[:_MOST_TOLD]
    ]


def _missed(accounts: Accounts, calm: Accounts, limits: KnownLimits) -> Problems:
    outcomes = {event.job_id: event.outcome for event in accounts.events(JobClosed)}
    before = {event.job_id: event.outcome for event in calm.events(JobClosed)}
    quotes = {
        event.job_id: event.on_demand_quote_micro_usd for event in accounts.events(JobAdmitted)
    }
    dearest = max(
        quoted.quote.on_demand_price_micro_usd
        for opened in accounts.slots.values()
        for quoted in opened.quotes
    )
    failed = {instance.job_id for instance in accounts.instances if instance.failed}
    spent, needed_s = _spent_by_job(accounts), _instance_seconds(calm)
    slot_s = slot_s_of(accounts)
    for job in accounts.outcome.scenario.jobs:
        met = outcomes.get(job.job_id) is JobOutcome.COMPLETED
        if job.deadline.kind.value != "hard" or met or job.job_id in failed:
            continue
        if before.get(job.job_id) is not JobOutcome.COMPLETED:
            continue
        cost = needed_s[job.job_id] * dearest // S_PER_HOUR
        if 2 * cost > job.value_micro_usd:
            continue
        # What is excepted from a rate ends with the quote: two slots of it are still to be had.
        two_slots = 2 * slot_s * dearest * job.allowed_counts[-1] // S_PER_HOUR
        if spent[job.job_id] + two_slots > quotes.get(job.job_id, 0):
            continue
        yield f"job {job.job_id} ended as {outcomes.get(job.job_id)}, under {limits}"


# --- what is read -----------------------------------------------------------------------------


def _limits(accounts: Accounts) -> KnownLimits:
    limits = accounts.outcome.notes["limits"]
    if not isinstance(limits, KnownLimits):
        raise TypeError(f"notes.limits must be KnownLimits, was {limits!r}")
    return limits


def _spent_by_job(accounts: Accounts) -> Counter[str]:
    spent: Counter[str] = Counter()
    for row in accounts.ledger["charges"]:
        spent[row["job_id"]] += row["cost_micro_usd"]
    return spent


def _instance_seconds(accounts: Accounts) -> Counter[str]:
    ran: Counter[str] = Counter()
    for row in accounts.ledger["charges"]:
        ran[row["job_id"]] += row["instances"] * row["held_s"]
    return ran


def _slot_at(accounts: Accounts, at_ns: int) -> int:
    first = next(accounts.events(MarketOpened)).first_slot_start_ns
    return int((at_ns - first) // (slot_s_of(accounts) * NS_PER_S))


def _stops(accounts: Accounts) -> Iterator[_Stop]:
    """Stops of buying with the times in which they were in force; one found again goes on."""
    begun: dict[str, Any] = {}
    for event in accounts.events(BuyingFrozen, BuyingUnfrozen):
        if isinstance(event, BuyingFrozen):
            begun.setdefault(event.freeze.freeze_id, event.freeze)
        elif (freeze := begun.pop(event.freeze_id, None)) is not None:
            yield _Stop(freeze, freeze.ts_event_ns, event.ts_event_ns)
    for freeze in begun.values():
        yield _Stop(freeze, freeze.ts_event_ns, float("inf"))

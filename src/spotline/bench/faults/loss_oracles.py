"""What must hold after log or ledger lost something, told from what is left and what was lost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from spotline.bench.faults.accounts import Accounts, slot_s_of
from spotline.bench.faults.oracles import (
    Oracle,
    former_owners_are_fenced,
    instances_belong_to_jobs,
    jobs_end_with_a_reason,
    ledger_adds_up,
    ledger_and_cloud_know_the_same,
    nothing_runs_on,
    only_poison_is_parked,
    slots_run_once,
    system_lives,
    what_cannot_be_used_is_refused,
)
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported, CostAccrued
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import JobClosed, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.units import NS_PER_S

Problems = Iterator[str]


def slots_go_on(accounts: Accounts) -> Problems:
    """Slots open in order, to the last; those that are skipped were opened in what is lost."""
    slots = list(accounts.slots)
    lost = {event.slot for event in accounts.ever(SlotOpened)}
    if any(later <= earlier for earlier, later in pairwise(slots)):
        yield f"slots opened as {slots}"
    for earlier, later in pairwise([-1, *slots]):
        skipped = set(range(earlier + 1, later)) - lost
        if skipped:
            yield f"slots {sorted(skipped)} never opened"
    last = accounts.outcome.scenario.market.slots - 1
    if slots[-1:] != [last]:
        yield f"the last slot is {slots[-1:]}, not {last}"
    slot_s = slot_s_of(accounts)
    first = next(accounts.ever(MarketOpened), None)
    for slot, event in accounts.slots.items():
        expected = 0 if first is None else first.first_slot_start_ns + slot * slot_s * NS_PER_S
        if event.ts_event_ns != expected:
            yield f"slot {slot} opened at {event.ts_event_ns}, not {expected}"


def accepted_jobs_survive(accounts: Accounts) -> Problems:
    """Every accepted job is closed, in what is left of the log once at most."""
    here = Counter(event.job_id for event in accounts.events(JobClosed))
    ever = Counter(event.job_id for event in accounts.ever(JobClosed))
    for job_id in sorted(accounts.outcome.accepted):
        if not ever[job_id] or here[job_id] > 1:
            yield f"job {job_id} was accepted, and closed {here[job_id]} times, {ever[job_id]} ever"


def a_loss_is_said(accounts: Accounts) -> Problems:
    """A log that lost entries says so, and is left with the incarnation that it says."""
    begun = [event.incarnation for event in accounts.events(IncarnationBegun)]
    if accounts.outcome.lost and not begun:
        yield f"{len(accounts.outcome.lost)} entries were lost, and the log does not say so"
    if sorted(begun) != begun:
        yield f"incarnations began as {begun}"


def spend_survives(accounts: Accounts) -> Problems:
    """Log and ledger have the same sums by job; of a job that ended in what is lost, the ledger's."""
    logged: Counter[str] = Counter()
    for event in accounts.events(CostAccrued):
        logged[event.job_id] += event.cost_micro_usd
    held: Counter[str] = Counter()
    for row in accounts.ledger["charges"]:
        held[row["job_id"]] += row["cost_micro_usd"]
    ended = _ended_in_what_is_lost(accounts)
    for job_id in sorted(logged.keys() | held.keys()):
        same = logged[job_id] == held[job_id]
        if not same and not (job_id in ended and logged[job_id] < held[job_id]):
            yield f"job {job_id}: the log has {logged[job_id]}, the ledger {held[job_id]} micro-USD"


def log_bills_what_ran(accounts: Accounts) -> Problems:
    """Instance-seconds by job, offering and kind are the same in the log and in the cloud."""
    billed: Counter[tuple[str, str, str]] = Counter()
    for event in accounts.events(CostAccrued):
        key = (event.job_id, event.offering_id, event.capacity_type.value)
        billed[key] += event.instances * event.held_s
    ran = _ran(accounts)
    for key in sorted(ran.keys() | billed.keys()):
        if ran[key] != billed[key]:
            yield f"{key}: the cloud ran {ran[key]} instance-seconds, the log has {billed[key]}"


def ledger_bills_what_ran(accounts: Accounts) -> Problems:
    """Instance-seconds by job, offering and kind are the same in the ledger and in the cloud."""
    billed: Counter[tuple[str, str, str]] = Counter()
    for row in accounts.ledger["charges"]:
        key = (row["job_id"], row["offering_id"], row["capacity_type"])
        billed[key] += row["instances"] * row["held_s"]
    ran = _ran(accounts)
    for key in sorted(ran.keys() | billed.keys()):
        if ran[key] != billed[key]:
            yield f"{key}: the cloud ran {ran[key]} instance-seconds, charged are {billed[key]}"


def nothing_is_bought_twice(accounts: Accounts) -> Problems:
    """No job ever holds more than was decided for that slot or the one before, lost or not."""
    slot_s = slot_s_of(accounts)
    first = next(accounts.ever(MarketOpened), None)
    if first is None:
        return
    decided: Mapping[str, dict[int, int]] = defaultdict(dict)
    for event in accounts.ever(AllocationDecided):
        total = sum(lot.spot + lot.on_demand for lot in event.lots)
        most = decided[event.job_id]
        most[event.slot] = max(most.get(event.slot, 0), total)
    steps: Mapping[str, list[tuple[int, int]]] = defaultdict(list)
    for instance in accounts.instances:
        steps[instance.job_id].append((instance.start_ns, 1))
        if instance.end_ns is not None:
            steps[instance.job_id].append((instance.end_ns, -1))
    for job_id, changes in sorted(steps.items()):
        running = 0
        # Ends come before starts of the same moment.
        for at_ns, change in sorted(changes):
            running += change
            slot = (at_ns - first.first_slot_start_ns) // (slot_s * NS_PER_S)
            allowed = max(decided[job_id].get(slot, 0), decided[job_id].get(slot - 1, 0))
            if change > 0 and running > allowed:
                yield f"job {job_id} holds {running} in slot {slot}, decided were {allowed}"


def no_more_is_decided_than_is_of_use(accounts: Accounts) -> Problems:
    """No decision gives a job more instances than it can use, but what it held at some report."""
    most = {job.job_id: job.allowed_counts[-1] for job in accounts.outcome.scenario.jobs}
    held: Counter[str] = Counter()
    for event in accounts.ever(CapacityReported):
        for holding in event.holdings:
            count = sum(lot.spot + lot.on_demand for lot in holding.lots)
            held[holding.job_id] = max(held[holding.job_id], count)
    for event in accounts.events(AllocationDecided):
        decided = sum(lot.spot + lot.on_demand for lot in event.lots)
        if decided > max(most.get(event.job_id, 0), held[event.job_id]):
            yield f"job {event.job_id} is given {decided} instances in slot {event.slot}"


def what_stops_says_how_to_go_on(accounts: Accounts) -> Problems:
    """What is undecided stops no more than a job, and says why and which command goes on."""
    stopped: dict[str, Freeze] = {}
    for event in accounts.events(BuyingFrozen, BuyingUnfrozen):
        if isinstance(event, BuyingUnfrozen):
            stopped.pop(event.freeze_id, None)
        elif event.freeze.reason is FreezeReason.UNDECIDED:
            stopped[event.freeze.freeze_id] = event.freeze
    for freeze_id, freeze in sorted(stopped.items()):
        if not freeze.detail or not freeze.continue_with:
            yield f"{freeze_id} stops buying, and does not say why, or how to go on"
        if freeze.scope is not FreezeScope.JOB:
            yield f"{freeze_id} still stops buying at the end: {freeze.detail}"


def _ran(accounts: Accounts) -> Counter[tuple[str, str, str]]:
    ran: Counter[tuple[str, str, str]] = Counter()
    for instance in accounts.instances:
        if instance.end_ns is not None:
            key = (instance.job_id, instance.offering_id, instance.capacity_type)
            ran[key] += (instance.end_ns - instance.start_ns) // NS_PER_S
    return ran


def _ended_in_what_is_lost(accounts: Accounts) -> set[str]:
    known = {event.job.job_id for event in accounts.events(JobSubmitted)}
    ended = {logged.event.job_id for logged in accounts.lost if isinstance(logged.event, JobClosed)}
    return ended | (set(accounts.outcome.accepted) - known)


_OF_BOTH = (
    system_lives,
    ledger_adds_up,
    instances_belong_to_jobs,
    former_owners_are_fenced,
    nothing_runs_on,
    only_poison_is_parked,
    what_cannot_be_used_is_refused,
    nothing_is_bought_twice,
    no_more_is_decided_than_is_of_use,
    accepted_jobs_survive,
    spend_survives,
    what_stops_says_how_to_go_on,
)
AFTER_LOG_LOSS: tuple[Oracle, ...] = (
    *_OF_BOTH,
    slots_go_on,
    a_loss_is_said,
    ledger_and_cloud_know_the_same,
    ledger_bills_what_ran,
)
AFTER_LEDGER_LOSS: tuple[Oracle, ...] = (
    *_OF_BOTH,
    jobs_end_with_a_reason,
    slots_run_once,
    log_bills_what_ran,
)

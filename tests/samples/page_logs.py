"""Logs that hold what pages can show: every phase, flag, reason, refusal class, and stop of buying.

They are made of events that went through the codec, as a recorded run's do; nobody decided them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.adapters.eventlog.writer import EventLogWriter, LogStatus
from spotline.application.page.applied import Applied, applied
from spotline.application.page.book import PageBook
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.agreement import (
    AgreementChecked,
    Disagreement,
    DisagreementKind,
    OrphanFound,
)
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InterruptionKind,
    InterruptionNoticed,
    LaunchRefused,
    RefusalClass,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobAdvanced,
    JobClosed,
    JobOutcome,
    JobProgressReported,
    JobQuoted,
    JobSubmitted,
)
from spotline.domain.events.limits import LimitAction, LimitReached, QuoteQuarantined
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.parking import EntryParked
from spotline.domain.jobs.job import Deadline, DeadlineKind, Job, Throughput
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.limits.spending import Spending, SpendLimit
from spotline.domain.market.offering import CapacityType, Count, Offering, Provenance, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.modes import Mode
from spotline.domain.policies.answer import DecisionReason, Move
from spotline.domain.units import NS_PER_S
from spotline.replay.host import LocalHost
from tests.samples.events import JOB, START_NS, source_of

SLOT_S = 1800
SLOT_NS = SLOT_S * NS_PER_S
TENANTS = ("vision", "search", "speech")

LIMITS = Spending(total=SpendLimit(micro_usd_per_day=2_500_000_000))
"""Of which `every_member` uses more than four fifths."""

# What a job of the first log is to be at its end, in the words of its name.
RUNNING, WAITING, INTERRUPTED = "it runs", "it waits", "it was interrupted"
MOVING, SAVING, FINISHING = "it moves", "it saves", "it finishes"
AT_RISK, STALLED = "it is at risk", "it is stalled"


def offerings(number: int) -> tuple[Offering, ...]:
    """So many offerings, of two providers."""
    return tuple(
        Offering(
            offering_id=f"{'aws' if place % 2 else 'acme'}:main:zone-{place:03d}:p4d",
            provider="aws" if place % 2 else "acme",
            account="main",
            region=f"region-{place % 7}",
            zone=f"zone-{place:03d}",
            instance_type="p4d",
            gpu_model="A100",
            gpus_per_instance=8,
            quota_pool="main/p",
        )
        for place in range(number)
    )


def quote_of(offering: Offering, slot: int) -> Quote:
    """A quote that differs from slot to slot, by nothing but its place."""
    wave = sum(offering.offering_id.encode()) + slot
    return Quote(
        offering_id=offering.offering_id,
        ts_event_ns=START_NS + slot * SLOT_NS,
        spot_price_micro_usd=9_000_000 + 40_000 * (wave % 50),
        on_demand_price_micro_usd=32_000_000,
        spot_available=Count(instances=wave % 13, provenance=Provenance.OBSERVED),
        on_demand_available=Count(instances=20, provenance=Provenance.OBSERVED),
    )


def job_named(name: str, *, tenant: str = TENANTS[0], hours: float = 60) -> Job:
    """A job with a hard deadline `hours` after the market's first slot."""
    deadline_ns = START_NS + int(hours * 3600) * NS_PER_S
    return replace(
        JOB,
        job_id=f"{sum(name.encode()):05d}-{name.replace(' ', '-')}",
        client_request_id=name,
        name=name,
        tenant=tenant,
        offerings=(),
        budget_micro_usd=0,
        throughputs=(Throughput(offering="*", alpha=16.0, beta=0.0),),
        deadline=Deadline(kind=DeadlineKind.HARD, at_ns=deadline_ns, expires_ns=deadline_ns),
    )


class LogWriter:
    """Puts events in a log one after another; `holdings` is what every job holds."""

    def __init__(self, offered: Sequence[Offering]) -> None:
        self.entries: list[StoredEntry] = []
        self._host = LocalHost((), record=self.entries.append)
        self.offered = tuple(offered)
        self.holdings: dict[str, JobHolding] = {}
        self.slot = -1
        self.add(
            MarketOpened(
                offerings=self.offered,
                slot_s=SLOT_S,
                first_slot_start_ns=START_NS,
                source="made for tests",
            )
        )

    def add(self, *events: Event) -> None:
        """Store events."""
        for event in events:
            self._host.publish(event, source=source_of(event))

    def open(self, *, last: bool = False, ages_s: Sequence[int] = ()) -> None:
        """Open the next slot; `ages_s` are the ages of the first quotes."""
        self.slot += 1
        ages = [*ages_s, *[30] * len(self.offered)]
        quotes = tuple(
            SlotQuote(quote=quote_of(offering, self.slot), age_s=age_s)
            for offering, age_s in zip(self.offered, ages, strict=False)
        )
        opened_ns = START_NS + self.slot * SLOT_NS
        self.add(
            SlotOpened(
                slot=self.slot, ts_event_ns=opened_ns, slot_s=SLOT_S, quotes=quotes, last=last
            )
        )

    def submit(self, job: Job) -> None:
        """Hand over a job, and say what is expected of it."""
        now_ns = START_NS + max(0, self.slot) * SLOT_NS
        outlook = JobOutlook(
            slot=self.slot,
            futures=200,
            on_time_probability_ppm=987_000,
            expected_cost_micro_usd=90_000_000,
            cost_p10_micro_usd=70_000_000,
            cost_p50_micro_usd=88_000_000,
            cost_p90_micro_usd=120_000_000,
            finish_p10_ns=now_ns + 3 * SLOT_NS,
            finish_p50_ns=now_ns + 5 * SLOT_NS,
            finish_p90_ns=now_ns + 9 * SLOT_NS,
            expected_utility_micro_usd=800_000_000,
        )
        self.add(
            JobSubmitted(job=job, ts_event_ns=now_ns),
            JobQuoted(job_id=job.job_id, tenant=job.tenant, slot=self.slot, outlook=outlook),
        )

    def admit(self, job: Job, home: Offering) -> None:
        """Take a job up."""
        self.add(
            JobAdmitted(
                **_whose(job),
                slot=self.slot,
                policy_id="sdp",
                offering_id=home.offering_id,
                deadline_slot=100,
                weight_ppb=250_000_000,
                on_demand_quote_micro_usd=300_000_000,
            )
        )

    def decide(
        self,
        job: Job,
        lots: tuple[Lot, ...],
        reason: DecisionReason = DecisionReason.POLICY,
        *,
        move: Move | None = None,
    ) -> None:
        """Decide for a job."""
        self.add(
            AllocationDecided(
                **_whose(job),
                slot=self.slot,
                revision=0,
                offset_s=0,
                policy_id="sdp",
                lots=lots,
                reason=reason,
                forecast_used=True,
                explanation=f"made for tests: {reason.value}",
                move=move,
            )
        )

    def hold(self, job: Job, lots: tuple[Lot, ...]) -> None:
        """From the next report on a job holds this."""
        count = sum(lot.spot + lot.on_demand for lot in lots)
        ids = tuple(f"i-{job.job_id[:5]}-{place}" for place in range(count))
        self.holdings[job.job_id] = JobHolding(job_id=job.job_id, lots=lots, instance_ids=ids)

    def report(self) -> None:
        """Say what every job holds."""
        held = tuple(self.holdings[job_id] for job_id in sorted(self.holdings))
        self.add(
            CapacityReported(slot=self.slot, revision=0, offset_s=120, settled=True, holdings=held)
        )

    def advance(self, job: Job, lots: tuple[Lot, ...], progress_ppm: int) -> None:
        """A slot of a job is over, and billed."""
        cost = sum(lot.spot * 5_000_000 + lot.on_demand * 16_000_000 for lot in lots)
        for lot in lots:
            kinds = ((lot.spot, CapacityType.SPOT), (lot.on_demand, CapacityType.ON_DEMAND))
            for count, kind in kinds:
                if count:
                    price = 10_000_000 if kind is CapacityType.SPOT else 32_000_000
                    self.add(
                        CostAccrued(
                            **_whose(job),
                            offering_id=lot.offering_id,
                            quota_pool="main/p",
                            capacity_type=kind,
                            slot=self.slot,
                            instances=count,
                            held_s=SLOT_S,
                            price_micro_usd=price,
                            cost_micro_usd=count * price // 2,
                        )
                    )
        self.add(
            JobAdvanced(
                **_whose(job),
                slot=self.slot,
                lots=lots,
                progress_ppm=progress_ppm,
                slot_cost_micro_usd=cost,
                cost_micro_usd=cost * (self.slot + 1),
            )
        )

    def close(self, job: Job, outcome: JobOutcome) -> None:
        """End a job."""
        self.holdings.pop(job.job_id, None)
        done = outcome in (JobOutcome.COMPLETED, JobOutcome.COMPLETED_LATE)
        self.add(
            JobClosed(
                **_whose(job),
                slot=self.slot,
                outcome=outcome,
                policy_id="sdp",
                cost_micro_usd=50_000_000,
                value_micro_usd=900_000_000 if done else 0,
                progress_ppm=1_000_000 if done else 400_000,
            )
        )


def _whose(job: Job) -> dict[str, str]:
    return {"job_id": job.job_id, "tenant": job.tenant}


def every_member() -> list[StoredEntry]:
    """A log at whose end every phase but the market's end, and everything else, is shown at once."""
    log = LogWriter(offerings(4))
    home, other = log.offered[:2]
    lots = (Lot(offering_id=home.offering_id, spot=3, on_demand=1),)
    log.open()
    names = (RUNNING, INTERRUPTED, MOVING, SAVING, FINISHING, AT_RISK, STALLED)
    jobs = {
        name: job_named(name, tenant=TENANTS[place % 3], hours=9 if name == AT_RISK else 200)
        for place, name in enumerate(names)
    }
    jobs[FINISHING] = replace(jobs[FINISHING], awaits_exit=True)
    over = {outcome: job_named(f"ended {outcome.value}") for outcome in JobOutcome}
    for job in (*jobs.values(), *over.values()):
        log.submit(job)
    log.open()
    # What moves on purpose loses no spot on the way.
    own = {jobs[MOVING].job_id: (Lot(offering_id=home.offering_id, on_demand=2),)}
    for job in (*jobs.values(), *over.values()):
        log.admit(job, home)
        log.decide(job, own.get(job.job_id, lots))
        log.hold(job, own.get(job.job_id, lots))
    log.report()
    for place in range(6):
        if place:
            log.open()
            log.report()
        for job in (*jobs.values(), *over.values()):
            log.advance(job, own.get(job.job_id, lots), 100_000 + 20_000 * place)
    stalled = jobs[STALLED]
    log.add(JobProgressReported(**_whose(stalled), done=10.0, ts_event_ns=START_NS + SLOT_NS))
    for outcome, job in over.items():
        log.close(job, outcome)
    for reason in DecisionReason:
        log.open()
        log.report()
        log.decide(jobs[RUNNING], lots, reason)
    log.submit(job_named(WAITING, tenant=TENANTS[1], hours=300))
    _end(log, jobs, home, other)
    return log.entries


def _end(log: LogWriter, jobs: dict[str, Job], home: Offering, other: Offering) -> None:
    """The last slot: all that needs a look."""
    log.open(ages_s=(0, 40_000))
    log.report()
    for job in (jobs[RUNNING], jobs[SAVING]):
        log.advance(job, (Lot(offering_id=home.offering_id, spot=3, on_demand=1),), 300_000)
    log.advance(jobs[FINISHING], (Lot(offering_id=home.offering_id, on_demand=1),), 1_000_000)
    log.open(ages_s=(0, 40_000))
    at = {"slot": log.slot, "offset_s": 600}
    log.add(
        InterruptionNoticed(
            **_whose(jobs[SAVING]),
            offering_id=home.offering_id,
            instance_ids=log.holdings[jobs[SAVING].job_id].instance_ids[:1],
            lead_s=900,
            kind=InterruptionKind.CAPACITY_RECLAIMED,
            **at,
        ),
        CapacityLost(
            **_whose(jobs[INTERRUPTED]),
            offering_id=home.offering_id,
            instance_ids=log.holdings[jobs[INTERRUPTED].job_id].instance_ids,
            **at,
        ),
    )
    moved = (Lot(offering_id=other.offering_id, on_demand=2),)
    move = Move(from_offering_id=home.offering_id, overhead_s=300, cost_micro_usd=2_000_000)
    log.decide(jobs[MOVING], moved, move=move)
    log.holdings.pop(jobs[INTERRUPTED].job_id)
    log.hold(jobs[MOVING], moved)
    log.report()
    log.add(*_refusals(log, jobs[AT_RISK], home), *_stops(log), *_of_the_system(log, jobs, other))


def _refusals(log: LogWriter, job: Job, home: Offering) -> Iterator[Event]:
    for refusal_class in RefusalClass:
        yield LaunchRefused(
            command_id=f"command-{refusal_class.value}",
            **_whose(job),
            offering_id=home.offering_id,
            capacity_type=CapacityType.SPOT,
            slot=log.slot,
            requested=4,
            granted=1,
            detail=f"the provider's words for {refusal_class.value}",
            refusal_class=refusal_class,
        )


def _stops(log: LogWriter) -> Iterator[Event]:
    keys = {
        FreezeScope.SYSTEM: "",
        FreezeScope.ACCOUNT: "acme/main",
        FreezeScope.OFFERING: log.offered[2].offering_id,
        FreezeScope.TENANT: TENANTS[2],
        FreezeScope.JOB: "no-such-job",
    }
    scopes = list(keys)[1:]
    for place, reason in enumerate(FreezeReason):
        scope = scopes[place % len(scopes)]
        yield BuyingFrozen(
            freeze=Freeze(
                freeze_id=f"freeze-{reason.value}",
                scope=scope,
                key=keys[scope],
                reason=reason,
                detail=f"made for tests: {reason.value}",
                continue_with="spotline resume" if place % 2 else "",
                slot=log.slot,
                ts_event_ns=START_NS + log.slot * SLOT_NS,
            )
        )


def _of_the_system(log: LogWriter, jobs: dict[str, Job], other: Offering) -> Iterator[Event]:
    now_ns = START_NS + log.slot * SLOT_NS
    running = jobs[RUNNING]
    for place, action in enumerate(LimitAction):
        job = (*jobs.values(),)[place]
        yield LimitReached(
            **_whose(job),
            slot=log.slot,
            limit="USD per job",
            action=action,
            spent_micro_usd=9_000_000,
            cost_to_come_micro_usd=5_000_000,
            value_to_gain_micro_usd=1_000_000,
            detail=f"made for tests: {action.value}",
        )
    quote = replace(quote_of(other, log.slot), spot_price_micro_usd=900_000_000)
    yield QuoteQuarantined(
        quote=quote,
        field="spot_price_micro_usd",
        lowest_micro_usd=1_000_000,
        highest_micro_usd=40_000_000,
        detail="a hundred times what it was",
    )
    yield EntryParked(
        service="selector",
        seq=7,
        place=0,
        event_id="parked-event",
        kind="job.progress",
        error="expected a job that was submitted, found none",
        error_type="InvariantViolation",
        job_id=running.job_id,
        tenant=running.tenant,
        slot=log.slot,
    )
    yield AgreementChecked(
        slot=log.slot,
        ts_event_ns=now_ns,
        last_seq=100,
        disagreements=tuple(
            Disagreement(
                kind=kind,
                scope=FreezeScope.JOB,
                key=running.job_id,
                detail=f"made for tests: {kind.value}",
            )
            for kind in DisagreementKind
        ),
    )
    yield OrphanFound(
        instance_id="i-orphan",
        offering_id=other.offering_id,
        slot=log.slot,
        ts_event_ns=now_ns,
        reap_after_ns=now_ns + SLOT_NS,
        detail="no job of the log has it",
    )
    yield AccountModeSet(
        account="aws/main",
        mode=Mode.SHADOW,
        by="operator",
        reason="made for tests",
        slot=log.slot,
        ts_event_ns=now_ns,
    )


def ended_market() -> list[StoredEntry]:
    """A log in which a job was still running when the market was over."""
    log = LogWriter(offerings(1))
    lots = (Lot(offering_id=log.offered[0].offering_id, on_demand=1),)
    job = job_named("the market ended")
    log.open()
    log.submit(job)
    log.open()
    log.admit(job, log.offered[0])
    log.decide(job, lots)
    log.hold(job, lots)
    log.report()
    log.open(last=True)
    log.report()
    log.advance(job, lots, 200_000)
    return log.entries


def empty_market() -> list[StoredEntry]:
    """A log that holds a market and nothing else."""
    log = LogWriter(offerings(2))
    log.open()
    return log.entries


def large(*, jobs: int = 500, of: int = 100, slots: int = 12) -> list[StoredEntry]:
    """A log of so many jobs on so many offerings."""
    log = LogWriter(offerings(of))
    log.open()
    known = [
        job_named(f"job {place:04d}", tenant=TENANTS[place % 3], hours=12 + place % 90)
        for place in range(jobs)
    ]
    for job in known:
        log.submit(job)
    log.open()
    lots = {}
    for place, job in enumerate(known):
        home = log.offered[place % of]
        lots[job.job_id] = (Lot(offering_id=home.offering_id, spot=place % 3, on_demand=1),)
        log.admit(job, home)
    for slot in range(slots):
        if slot:
            log.open()
        for job in known:
            log.decide(job, lots[job.job_id])
            log.hold(job, lots[job.job_id])
        log.report()
        for job in known:
            log.advance(job, lots[job.job_id], 10_000 * (slot + 1))
    return log.entries


def write_page_log(directory: Path, entries: Sequence[StoredEntry]) -> Path:
    """Write a log as a recorded run's."""
    writer = EventLogWriter(
        directory,
        Manifest(
            run_id="made for tests",
            stream="SPOTLINE_0",
            started_ns=START_NS,
            environment=environment(),
            settings={"selector": {"spending": LIMITS.to_json()}},
            first_seq=entries[0].seq,
            last_seq=entries[-1].seq,
        ),
    )
    writer.append(entries)
    writer.close(LogStatus.ENDED)
    return directory


def until_slot(entries: Sequence[StoredEntry], last: int) -> Iterator[StoredEntry]:
    """The entries before the slot after `last` opens."""
    for entry in entries:
        event = event_of(entry)
        if isinstance(event, SlotOpened) and event.slot > last:
            return
        yield entry


def applied_of(entries: Sequence[StoredEntry]) -> Iterator[Applied]:
    """Entries as a book folds them."""
    for entry in entries:
        yield applied(event_of(entry), entry.envelope(), entry.seq, wall_ns=entry.stored_ns)


def book_of(entries: Sequence[StoredEntry]) -> PageBook:
    """A book with all of a log in it."""
    book = PageBook()
    for told in applied_of(entries):
        book.apply(told)
    return book

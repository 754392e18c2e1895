"""A selector on a market whose cloud grants everything, one event at a time and no broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateRequest
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.application.spec import Context
from spotline.contracts.mapping import digest
from spotline.domain.events.allocation import AllocationAnswered, CallOutcome
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.jobs.job import (
    Checkpoint,
    Deadline,
    DeadlineKind,
    Job,
    Overheads,
    Throughput,
    Topology,
    Work,
)
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.policies.answer import SpotWorth
from spotline.domain.units import NS_PER_S

SLOT_S = 1800
START_NS = 1_767_571_200 * NS_PER_S


def market_of(slots: int = 40, *, notice_lead_s: int = 120, seed: int = 2) -> Market:
    """One offering of a generated market."""
    market = generate("mixed", seed=seed, slots=slots, slot_s=SLOT_S, start_ns=START_NS)
    return replace(
        market,
        offerings=tuple(replace(o, notice_lead_s=notice_lead_s) for o in market.offerings),
    )


def job_of(number: int = 1, *, slots: int = 20, work_slots: float = 6.0, **changes: object) -> Job:
    """A job that two instances work on for `work_slots` slots, due after `slots`."""
    deadline = Deadline(
        kind=DeadlineKind.HARD,
        at_ns=START_NS + slots * SLOT_S * NS_PER_S,
        expires_ns=START_NS + slots * SLOT_S * NS_PER_S,
    )
    job = Job(
        job_id=f"job-{number}",
        tenant="t",
        client_request_id=f"r-{number}",
        name="",
        work=Work(amount=work_slots * 2 * SLOT_S / 3600, unit="instance_hours"),
        deadline=deadline,
        value_micro_usd=10**9,
        start_ns=START_NS,
        allowed_counts=(1, 2),
        throughputs=(Throughput(offering="*", alpha=1.0),),
        topology=Topology.ANY,
        checkpoint=Checkpoint(interval_s=900, save_s=60),
        overheads=Overheads(launch_s=60, grow_s=60, shrink_s=30, migrate_s=90, interrupted_s=60),
    )
    return replace(job, **changes)  # type: ignore[arg-type]


class SelectorWorld:
    """Feeds a selector, and does what it commands; `log` holds all that it decided, `fed`
    all that it has applied.

    No allocator answers, until `worth` says what spot is worth to all jobs in its answers.
    """

    def __init__(self, *jobs: Job, market: Market | None = None, **options: object) -> None:
        self.market = market or market_of()
        self.handler = SelectHandler(
            SelectorOptions(rehearsals=0, **options),  # type: ignore[arg-type]
            digest=digest,
        )
        self.state: SelectorState = self.handler.initial()
        self.clock = IngestHandler(self.market, IngestOptions())
        self.log: list[Event] = []
        self.fed: list[Event] = []
        self.held: dict[str, Lot] = {}
        self.slot = -1
        self.worth: tuple[SpotWorth, ...] | None = None
        self._seq = 0
        self.feed(
            MarketOpened(
                offerings=self.market.offerings,
                slot_s=SLOT_S,
                first_slot_start_ns=START_NS,
                source="test",
            )
        )
        for job in jobs:
            self.feed(JobSubmitted(job=job, ts_event_ns=0))

    def run_of(self, number: int = 1) -> JobRun:
        return self.state.runs[f"job-{number}"]

    def at(self, offset_s: int, slot: int | None = None) -> int:
        """A moment of a slot, the open one unless it is given."""
        return START_NS + ((self.slot if slot is None else slot) * SLOT_S + offset_s) * NS_PER_S

    def feed(self, event: Event) -> list[Event]:
        """Take one event and all that follows from it, calls included; returns what was decided."""
        self._seq += 1
        self.fed.append(event)
        self.handler.evolve(self.state, event)
        ctx = Context(seq=self._seq, now_ns=0, event_id=f"{self._seq:032x}", correlation_id="c")
        outcome = self.handler.decide(self.state, event, ctx)
        decided = list(outcome.events)
        for output in decided:
            self.handler.evolve(self.state, output)
        self.fed += decided
        self.log += decided
        for call in outcome.calls:
            answered = AllocationAnswered(
                slot=self.slot,
                revision=self.state.revision,
                request_digest=call.digest,
                outcome=CallOutcome.UNAVAILABLE,
                answers=(),
            )
            if self.worth is not None and isinstance(call.request, AllocateRequest):
                answered = replace(
                    answered,
                    outcome=CallOutcome.ANSWERED,
                    answers=allocate(call.request).answers,
                    spot_worth=self.worth,
                )
            decided += self.feed(answered)
        return decided

    def open(self) -> list[Event]:
        """Open the next slot; it waits for its forecast then."""
        self.slot += 1
        return self.feed(self.clock.slot_events(self.slot)[-1])

    def decide(self) -> list[Event]:
        """Decide the open slot without a forecast."""
        return self.feed(ForecastOverdue(slot=self.slot, waited_ms=1))

    def grant(self, decided: Sequence[Event]) -> list[Event]:
        """Do what was commanded, and report until the slot is settled."""
        ended = [event for event in decided if isinstance(event, SlotDecided)]
        if not ended:
            return []
        for event in decided:
            if isinstance(event, ProvisioningCommanded):
                self.held[event.job_id] = event.target
        following = self.report(settled=True)
        return following + self.grant(following)

    def report(self, *, settled: bool, offset_s: int | None = None) -> list[Event]:
        """Tell what is held."""
        return self.feed(
            CapacityReported(
                slot=self.slot,
                revision=self.state.revision,
                offset_s=self.state.offset_s if offset_s is None else offset_s,
                settled=settled,
                holdings=tuple(
                    JobHolding(job_id=job_id, lots=(lot,))
                    for job_id, lot in sorted(self.held.items())
                    if lot.spot or lot.on_demand
                ),
            )
        )

    def lose(self, number: int, offset_s: int) -> list[Event]:
        """Take the spot of a job away inside the slot, and carry out what follows."""
        job_id = f"job-{number}"
        lot = self.held[job_id]
        self.feed(
            CapacityLost(
                job_id=job_id,
                tenant="t",
                offering_id=lot.offering_id,
                instance_ids=tuple(f"i-{self.slot}-{index}" for index in range(lot.spot)),
                slot=self.slot,
                offset_s=offset_s,
            )
        )
        self.held[job_id] = replace(lot, spot=0)
        decided = self.report(settled=False, offset_s=offset_s)
        return decided + self.grant(decided)

    def then(self, event: Event) -> list[Event]:
        """Take an event inside the slot, and carry out what follows."""
        decided = self.feed(event)
        return decided + self.grant(decided)

    def next_slot(self) -> list[Event]:
        """Open, decide and settle the next slot."""
        opened = self.open()
        decided = self.decide()
        return opened + decided + self.grant(decided)

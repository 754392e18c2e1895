"""Entries that somebody forges who reaches the bus: of every kind, in others' names.

Each kind of the contracts is tried with sources that may not publish it; kinds that are decided,
in the name of the one that decides them, without what they were decided on; and commands that know
even that, with nothing in the log that they could follow from. What a service writes in its own
name, with all that it knows, cannot be told from its work: that is for the broker's permissions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from spotline.application.allocator.handler import SPEC as ALLOCATOR
from spotline.application.cloud_actuator.handler import SPEC as CLOUD_ACTUATOR
from spotline.application.forecaster.handler import SPEC as FORECASTER
from spotline.application.market_ingest.handler import SPEC as MARKET_INGEST
from spotline.application.read_model.handler import SPEC as READ_MODEL
from spotline.application.selector.handler import SPEC as SELECTOR
from spotline.application.spec import Spec
from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.forging import Unforgeable, altered, forged, latest
from spotline.contracts.batch import packed_for
from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import OPERATOR, Envelope, derive_id, retry_id
from spotline.contracts.errors import ContractError
from spotline.contracts.publishers import CAUSED, PUBLISHERS, SERVICES
from spotline.contracts.subjects import EVENT_TYPES, KINDS, subjects_with
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import ProvisioningCommanded, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobCancelled,
    JobClosed,
    JobExited,
    JobProgressReported,
    JobSubmitted,
)
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.parking import EntryParked
from spotline.domain.events.placement import PipelineProvisioningCommanded
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import DecisionReason

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld


def _itself(spec: Spec) -> tuple[str, ...]:
    return (spec.service,) if {*spec.consumes} & {*spec.produces} else ()


_SPECS = (ALLOCATOR, CLOUD_ACTUATOR, FORECASTER, MARKET_INGEST, READ_MODEL, SELECTOR)
_FOLLOWED: Mapping[str, tuple[frozenset[str], frozenset[str]]] = MappingProxyType(
    {
        spec.service: (
            frozenset(KINDS[event_type] for event_type in spec.consumes),
            frozenset(subjects_with(spec.consumes, *_itself(spec))),
        )
        for spec in _SPECS
    }
)
"""What each service of the machine consumes, and the subjects that it follows."""

_EVERY_S = 0.8
_NOBODY = "nobody-7"
_STRANGER = "stranger"
_INSTANCES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """A forged event: in whose name, in whose batch, and what it says that it follows from."""

    event: Event
    source: str
    carrier: str = ""
    causation_id: str = ""
    event_id: str = ""
    index: int = 0
    parked_by: tuple[str, ...] | None = None


class Forgeries(Hasty):
    """Writes entries that no service has written, on every subject."""

    name: ClassVar[str] = "forged"

    async def disturb(self, world: FaultWorld) -> None:
        """Forge one kind after the other, and commands in between, until the run is over."""
        self.notes["foreign"] = set()
        self.notes["not_believed"] = {}
        kinds = sorted(EVENT_TYPES)
        self.rng.shuffle(kinds)
        number = 0
        for kind in kinds:
            await asyncio.sleep(self.rng.random() * _EVERY_S)
            seen = _seen(world)
            for tried in (*self._of_kind(kind, seen), *self._without_trace(seen, number)):
                self._write(world, tried, number)
                number += 1

    # --- in the name of those who may not -----------------------------------------------------

    def _of_kind(self, kind: str, seen: _Seen) -> Sequence[_Try]:
        try:
            event = self._like(EVENT_TYPES[kind], seen)
        except Unforgeable:
            return ()
        may = PUBLISHERS[kind]
        others = sorted(SERVICES - may)
        rightful = sorted(may)[0]
        tries = [_Try(event=event, source=self.rng.choice((*others, _STRANGER, "")))]
        if others:
            # In the name of the right one, in a batch that another has written.
            carrier = self.rng.choice(others)
            tries.append(_Try(event=event, source=rightful, carrier=carrier))
        tries.append(self._retried(kind, event, seen))
        if kind in CAUSED:
            cause = self.rng.choice(("", "0" * 32, seen.cause_id))
            tries.append(_Try(event=event, source=rightful, causation_id=cause))
        return tries

    def _like(self, event_type: type[Event], seen: _Seen) -> Event:
        """One of the log with something changed, or one made up."""
        names = {"job_id": self.rng.choice((_NOBODY, *seen.jobs)), "tenant": "forger"}
        known = latest(seen.events, event_type)
        if known is None:
            return forged(event_type, names)
        if self.rng.random() < 0.3:
            # As it was, under another id.
            return known
        return altered(known, names, self.rng)

    def _retried(self, kind: str, event: Event, seen: _Seen) -> _Try:
        """As if a person had it published again, who never saw it."""
        consumers = [service for service in sorted(_FOLLOWED) if kind in _FOLLOWED[service][0]]
        service = self.rng.choice(consumers or ["selector"])
        return _Try(
            event=event,
            source=OPERATOR,
            carrier=OPERATOR,
            causation_id=seen.cause_id,
            event_id=retry_id(seen.cause_id, service),
            parked_by=(service,) if consumers and kind != KINDS[EntryParked] else (),
        )

    # --- in the name of those who may, with nothing that it follows from ----------------------

    def _without_trace(self, seen: _Seen, number: int) -> Sequence[_Try]:
        """What would buy, spend or end, of nobody's job and of somebody's."""
        if seen.slot is None:
            return ()
        makers = (self._command, self._decision, self._of_other_tenant, self._for_pipeline)
        return makers[number % len(makers)](seen, number)

    def _command(self, seen: _Seen, number: int) -> Sequence[_Try]:
        job_id = self.rng.choice((_NOBODY, *seen.jobs))
        lot = Lot(offering_id=seen.offering_id, on_demand=_INSTANCES)
        command = ProvisioningCommanded(
            command_id=f"forged-{number}",
            job_id=job_id,
            tenant=seen.jobs.get(job_id, "forger"),
            quota_pool="forged",
            slot=seen.last_slot,
            revision=self.rng.randint(0, 2),
            offset_s=0,
            target=lot,
        )
        decided = SlotDecided(slot=command.slot, revision=command.revision, offset_s=0, commands=1)
        return (
            self._derived(command, seen, number, ("cloud_actuator",)),
            # The rest of what faults.md tells of: with it the command would be carried out.
            _Try(event=decided, source="selector"),
        )

    def _decision(self, seen: _Seen, number: int) -> Sequence[_Try]:
        decision = AllocationDecided(
            job_id=_NOBODY,
            tenant="forger",
            slot=seen.last_slot,
            revision=self.rng.randint(0, 2),
            offset_s=0,
            policy_id="forged",
            lots=(Lot(offering_id=seen.offering_id, on_demand=_INSTANCES),),
            reason=DecisionReason.POLICY,
            forecast_used=False,
            explanation="forged",
        )
        admitted = JobAdmitted(
            job_id=_NOBODY,
            tenant="forger",
            slot=seen.last_slot,
            policy_id="forged",
            offering_id=seen.offering_id,
            deadline_slot=seen.last_slot + 9,
            weight_ppb=1,
        )
        return (
            self._derived(admitted, seen, number, ("cloud_actuator",)),
            self._derived(decision, seen, number + 1, ("cloud_actuator",)),
        )

    def _of_other_tenant(self, seen: _Seen, number: int) -> Sequence[_Try]:
        if not seen.submitted:
            return ()
        submitted = self.rng.choice(seen.submitted)
        job_id = submitted.job.job_id
        other = "forger"
        event: Event = self.rng.choice(
            (
                JobCancelled(job_id=job_id, tenant=other, ts_event_ns=submitted.ts_event_ns),
                JobSubmitted(
                    job=replace(submitted.job, tenant=other), ts_event_ns=submitted.ts_event_ns
                ),
                JobProgressReported(job_id=job_id, tenant=other, done=1e9),
                JobExited(
                    job_id=job_id, tenant=other, generation=0, exit_code=0, detail="", ts_event_ns=1
                ),
            )
        )
        return (_Try(event=event, source="allocator", parked_by=("allocator", "selector")),)

    def _for_pipeline(self, seen: _Seen, number: int) -> Sequence[_Try]:
        job_id = self.rng.choice((_NOBODY, *seen.jobs))
        command = PipelineProvisioningCommanded(
            command_id=f"forged-{number}",
            job_id=job_id,
            tenant=seen.jobs.get(job_id, "forger"),
            quota_pool="forged",
            target=Lot(offering_id=seen.offering_id, on_demand=_INSTANCES),
            transfer_cost_micro_usd=10**12,
        )
        return (self._derived(command, seen, number, ("cloud_actuator",), source="placer"),)

    def _derived(
        self,
        event: Event,
        seen: _Seen,
        number: int,
        parked_by: tuple[str, ...],
        source: str = "selector",
    ) -> _Try:
        """With the id that it would have, had it followed from an entry of the log."""
        # Beyond all that an entry leads to: none of the ids there are.
        index = 1_000_000 + number
        return _Try(
            event=event,
            source=source,
            causation_id=seen.cause_id,
            index=index,
            event_id=derive_id(seen.cause_id, KINDS[type(event)], index),
            parked_by=parked_by,
        )

    # --- writing ------------------------------------------------------------------------------

    def _write(self, world: FaultWorld, tried: _Try, number: int) -> None:
        event_id = tried.event_id or f"{number:032x}"
        try:
            envelope = envelope_for(
                tried.event,
                event_id=event_id,
                source=tried.source,
                causation_id=tried.causation_id,
                correlation_id=event_id,
                index=tried.index,
            )
        except (ContractError, ValueError):
            return
        foreign: Any = self.notes["foreign"]
        if event_id in foreign:
            return  # the broker would drop it
        stored = packed_for(tried.carrier, envelope) if tried.carrier else envelope
        world.broker.store(stored.subject, stored.headers(), stored.payload)
        foreign.add(event_id)
        expected: Any = self.notes["not_believed"]
        expected[event_id] = (
            _takers(envelope, stored.subject) if tried.parked_by is None else tried.parked_by
        )
        self.hit()


def _takers(envelope: Envelope, subject: str) -> tuple[str, ...]:
    """The services that get an event which is stored on a subject."""
    if envelope.kind == KINDS[EntryParked]:
        return ()
    return tuple(
        service
        for service, (kinds, subjects) in sorted(_FOLLOWED.items())
        if envelope.kind in kinds and (subject == envelope.subject or subject in subjects)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a forger knows who has read the log; `cause_id` is the id of an entry in it."""

    events: Sequence[Event]
    jobs: Mapping[str, str]
    submitted: Sequence[JobSubmitted]
    slot: SlotOpened | None
    cause_id: str

    @property
    def last_slot(self) -> int:
        return -1 if self.slot is None else self.slot.slot

    @property
    def offering_id(self) -> str:
        return "" if self.slot is None else self.slot.quotes[0].quote.offering_id


def _seen(world: FaultWorld) -> _Seen:
    logged = world.logged()
    events = [event for _, event in logged]
    closed = {event.job_id for event in events if isinstance(event, JobClosed)}
    submitted = [
        event
        for event in events
        if isinstance(event, JobSubmitted)
        and event.job.job_id in world.accepted
        and event.job.job_id not in closed
    ]
    slots = [(key, event) for key, event in logged if isinstance(event, SlotOpened)]
    return _Seen(
        events=events,
        jobs={each.job.job_id: each.job.tenant for each in submitted},
        submitted=submitted,
        slot=slots[-1][1] if slots else None,
        cause_id=slots[-1][0] if slots else "0" * 32,
    )

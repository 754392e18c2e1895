"""A small market, a job, and an allocator host without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from spotline.application.admission import job_id_for
from spotline.application.allocator.handler import JobsHandler, JobsState
from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import AdmissionRecorded, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
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
from spotline.domain.market.forecast import CountProbability, ForecastStep, OfferingForecast
from spotline.domain.market.offering import Count, Offering, Provenance, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import NS_PER_S, PPM

SLOT_S = 600
SLOT_NS = SLOT_S * NS_PER_S
START_NS = 1_772_323_200 * NS_PER_S  # 2026-03-01T00:00:00Z
# Wall time at which the log of a fake host stored its entry 0; each later one is 1 ns younger.
STORED_NS = 1_800_000_000 * NS_PER_S
EAST = "aws/us-east-1/use1-az1/p4d.24xlarge"
WEST = "aws/us-west-2/usw2-az1/p3.16xlarge"


def offering(offering_id: str) -> Offering:
    provider, region, zone, instance_type = offering_id.split("/")
    return Offering(
        offering_id=offering_id,
        provider=provider,
        account="",
        region=region,
        zone=zone,
        instance_type=instance_type,
        gpu_model="",
        gpus_per_instance=8,
        quota_pool=region,
    )


def market_opened(*offering_ids: str) -> MarketOpened:
    return MarketOpened(
        offerings=tuple(offering(one) for one in offering_ids or (EAST, WEST)),
        slot_s=SLOT_S,
        first_slot_start_ns=START_NS,
        source="a test",
    )


def slot_opened(
    slot: int,
    *,
    spot: int = 4,
    spot_price: int = 3_000_000,
    on_demand_price: int = 10_000_000,
    offering_ids: tuple[str, ...] = (EAST, WEST),
    last: bool = False,
) -> SlotOpened:
    ts_ns = START_NS + slot * SLOT_NS
    return SlotOpened(
        slot=slot,
        ts_event_ns=ts_ns,
        slot_s=SLOT_S,
        quotes=tuple(
            SlotQuote(
                quote=Quote(
                    offering_id=offering_id,
                    ts_event_ns=ts_ns,
                    spot_price_micro_usd=spot_price,
                    on_demand_price_micro_usd=on_demand_price,
                    spot_available=Count(instances=spot, provenance=Provenance.OBSERVED),
                    on_demand_available=Count(instances=100, provenance=Provenance.INFERRED),
                ),
                age_s=0,
            )
            for offering_id in offering_ids
        ),
        last=last,
    )


def forecast_issued(
    slot: int,
    *,
    sure_ppm: int = 900_000,
    spot: int = 4,
    steps: int = 6,
    offering_ids: tuple[str, ...] = (EAST, WEST),
) -> ForecastIssued:
    step = ForecastStep(
        spot_price_micro_usd=3_000_000,
        counts=(
            CountProbability(instances=0, probability_ppm=PPM - sure_ppm),
            CountProbability(instances=spot, probability_ppm=sure_ppm),
        ),
    )
    return ForecastIssued(
        slot=slot,
        model_id="test",
        forecasts=tuple(
            OfferingForecast(offering_id=one, steps=(step,) * steps) for one in offering_ids
        ),
        scores=(),
    )


def job(
    request_id: str = "r1",
    *,
    tenant: str = "research",
    instance_hours: float = 8.0,
    deadline_slots: int = 30,
    late_slots: int = 0,
    from_slot: int = 0,
    counts: tuple[int, ...] = (1, 2, 3, 4),
    throughput_on: str = "*",
    offerings: tuple[str, ...] = (),
    value_usd: int = 200,
    start_ns: int = 0,
) -> Job:
    """A job whose deadline lies `deadline_slots` after the opening of `from_slot`."""
    at_ns = START_NS + (from_slot + deadline_slots) * SLOT_NS
    return Job(
        job_id=job_id_for(tenant, request_id),
        tenant=tenant,
        client_request_id=request_id,
        name="a test job",
        work=Work(amount=instance_hours, unit="instance_hours"),
        deadline=Deadline(
            kind=DeadlineKind.SOFT if late_slots else DeadlineKind.HARD,
            at_ns=at_ns,
            expires_ns=at_ns + late_slots * SLOT_NS,
        ),
        value_micro_usd=value_usd * 1_000_000,
        start_ns=start_ns,
        allowed_counts=counts,
        throughputs=(Throughput(offering=throughput_on, alpha=1.0),),
        topology=Topology.ONE_ZONE,
        checkpoint=Checkpoint(interval_s=600, save_s=60),
        overheads=Overheads(launch_s=60, grow_s=60, shrink_s=30, migrate_s=90, interrupted_s=60),
        offerings=offerings,
    )


class FakeJobsHost:
    """Stores and applies at once, or on `apply` with `apply_later`; `down` refuses to store.

    With `admits` the ledger's word follows every submission, as an actuator gives it.
    """

    def __init__(self, *events: Event) -> None:
        self._handler = JobsHandler()
        self.state: JobsState = self._handler.initial()
        self.stored: dict[str, tuple[int, Event]] = {}
        self.listeners: list[Callable[[Event, Envelope, int], None]] = []
        self.down = False
        self.admits = False
        self._asked = 0
        self._was_asked = asyncio.Condition()
        self.apply_later = False
        self._waiting: list[tuple[Event, Envelope, int]] = []
        self._seq = 0
        for event in events:
            self.record(event)

    def record(self, event: Event, *, event_id: str = "", correlation_id: str = "c") -> int:
        self._seq += 1
        event_id = event_id or f"event-{self._seq}"
        envelope = envelope_for(
            event,
            event_id=event_id,
            source="test",
            causation_id="",
            correlation_id=correlation_id,
        )
        envelope = replace(envelope, stored_ns=STORED_NS + self._seq)
        self.stored[event_id] = (self._seq, event)
        self._waiting.append((event, envelope, self._seq))
        if not self.apply_later:
            self.apply()
        return self._seq

    def apply(self) -> None:
        waiting, self._waiting = self._waiting, []
        for event, envelope, seq in waiting:
            self._handler.evolve(self.state, event)
            for listener in self.listeners:
                listener(event, envelope, seq)
            if self.admits and isinstance(event, JobSubmitted):
                whose = {"job_id": event.job.job_id, "tenant": event.job.tenant}
                self.record(AdmissionRecorded(**whose), event_id=f"recorded-{event.job.job_id}")

    async def asked(self, times: int) -> None:
        """Wait until that many observations were published, stored or not."""
        async with self._was_asked, asyncio.timeout(10):
            await self._was_asked.wait_for(lambda: self._asked >= times)

    async def publish_observation(self, event: Event, *, event_id: str, correlation_id: str) -> int:
        async with self._was_asked:
            self._asked += 1
            self._was_asked.notify_all()
        if self.down:
            raise ProviderUnavailable("the bus did not take it within 5 s")
        known = self.stored.get(event_id)
        if known is not None:
            return known[0]
        return self.record(event, event_id=event_id, correlation_id=correlation_id)


def opened_host(*events: Event) -> FakeJobsHost:
    """A host whose market is open at slot 0, with a forecast."""
    return FakeJobsHost(market_opened(), slot_opened(0), forecast_issued(0), *events)


def of_tenant(one: Job, tenant: str) -> Job:
    return replace(one, tenant=tenant, job_id=job_id_for(tenant, one.client_request_id))

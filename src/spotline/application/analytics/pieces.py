"""What an observation adds to a tenant's statistics, once all it is made of is known.

An observation that is made of several events (a bill needs its slot's quote, and the policy its job
had drawn) is complete with the last of them. It belongs to its slot: bills and quotes cover it, all
else happened at its opening.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spotline.application.analytics.known import Known, KnownSlot
from spotline.application.analytics.observations import Observation
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.market.offering import CapacityType
from spotline.domain.statistics.panes import Arrival
from spotline.domain.statistics.platform import (
    BillPart,
    JobEnding,
    JobFeedback,
    PlatformPiece,
    SlotLatency,
    bill_pieces,
)
from spotline.domain.units import cost_micro_usd

_HITS = {
    JobOutcome.COMPLETED: True,
    JobOutcome.COMPLETED_LATE: False,
    JobOutcome.MISSED_DEADLINE: False,
    JobOutcome.EXPIRED: False,
    JobOutcome.CANCELLED: None,
    # What its own program ended says nothing of who decided; what its budget ended does.
    JobOutcome.FAILED: None,
    JobOutcome.STOPPED_BY_LIMIT: False,
}


def pieces_of(
    observation: Observation, known: Known, pane_s: int
) -> tuple[KnownSlot, str, Iterable[PlatformPiece]]:
    """The slot and the tenant of an observation, and its pieces, cut at panes of `pane_s`.

    Raises
    ------
    MissingObservation
        Something that it is made of is not known yet.
    """
    event = observation.event
    match event:
        case CostAccrued():
            slot, job = known.slot(event.slot), known.admitted(event.job_id)
            pieces = bill_pieces(
                arrival_of(observation, slot, job.begun),
                job.policy_id,
                _bill(event, slot),
                slot_s=slot.slot_s,
                pane_s=pane_s,
            )
            return slot, event.tenant, pieces
        case JobClosed():
            slot, job = known.slot(event.slot), known.submitted(event.job_id)
            known.close(observation, event, slot)
            ending = JobEnding(hard=job.hard, hit=_HITS[event.outcome])
            arrival = arrival_of(observation, slot, job.submitted)
            return slot, event.tenant, _point(arrival, event.policy_id, ending)
        case PolicyWeightsUpdated():
            slot = known.slot_of(observation.causation_id)
            job, admitted = known.admission(event.job_id)
            utilities = {weight.policy_id: weight.utility_micro_usd for weight in event.weights}
            feedback = JobFeedback(
                utilities=utilities, drawn_micro_usd=utilities.get(admitted.policy_id, 0)
            )
            arrival = arrival_of(observation, slot, job.admitted)
            return slot, admitted.tenant, _point(arrival, admitted.policy_id, feedback)
        case AllocationDecided():
            slot, decided = known.slot(event.slot), known.decision(event.slot)
            latency = _latency(event.slot, slot, decided, known)
            arrival = arrival_of(observation, slot, decided)
            return slot, event.tenant, _point(arrival, event.policy_id, latency)
    raise TypeError(f"{type(event).__name__} is no observation")


def arrival_of(
    observation: Observation, slot: KnownSlot, other: Observation | None = None
) -> Arrival:
    """When an observation was complete: with the last of what it is made of."""
    parts = [observation, slot.observation, *([other] if other is not None else [])]
    return Arrival(
        event_id=observation.event_id,
        seq=max(part.seq for part in parts),
        watermark_s=max(part.watermark_s for part in parts),
        at_s=slot.start_s,
    )


def _bill(event: CostAccrued, slot: KnownSlot) -> BillPart:
    spot = event.capacity_type is CapacityType.SPOT
    instance_s = event.instances * event.held_s
    # Copying a checkpoint has no instances, and a job that stays on demand does not copy.
    price = slot.on_demand_price.get(event.offering_id, event.price_micro_usd)
    return BillPart(
        spend=event.cost_micro_usd,
        on_demand_equivalent=cost_micro_usd(price, event.instances, event.held_s),
        spot_s=instance_s if spot else 0,
        on_demand_s=0 if spot else instance_s,
    )


def _latency(number: int, slot: KnownSlot, decided: Observation, known: Known) -> SlotLatency:
    forecast = known.forecast(number, slot)
    after_forecast_ns = None
    # One that came behind the decision was overdue and is not what it waited for.
    if forecast is not None and forecast.seq < decided.seq:
        after_forecast_ns = max(0, decided.stored_ns - forecast.stored_ns)
    return SlotLatency(
        slot=number,
        after_slot_ns=max(0, decided.stored_ns - slot.observation.stored_ns),
        after_forecast_ns=after_forecast_ns,
    )


def _point(
    arrival: Arrival, policy_id: str, said: JobEnding | JobFeedback | SlotLatency
) -> Iterator[PlatformPiece]:
    yield PlatformPiece(arrival=arrival, start_s=arrival.at_s, policy_id=policy_id, said=said)

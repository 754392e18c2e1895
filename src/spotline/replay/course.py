"""A market as it goes: its slots, what is forecast of it, and what a job alone is offered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotline.application.allocation.tasks import forecast_of
from spotline.application.forecaster.handler import ForecastHandler
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.spec import Context
from spotline.application.turn import Turns
from spotline.contracts.errors import ContractError
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.law import MarketLawLearned
from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.registry import forecaster_factory
from spotline.domain.forecasting.trust import ForecastTrust
from spotline.domain.jobs.job import Job
from spotline.domain.market.learning_rules import ALL_RULES, LearningRules
from spotline.domain.market.market import Market
from spotline.domain.market.prior_laws import NO_PRIORS, PriorLaws
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.replay import SlotRecord
from spotline.domain.units import NS_PER_S, utc_iso
from spotline.replay.clouds import Information, told
from spotline.replay.parts import Issued


def coverage(market: Market, job: Job) -> str:
    """Say why a job's life does not lie within the market, empty where it does."""
    first = first_slot(market, job)
    slot_ns = market.slot_s * NS_PER_S
    first_ns = market.start_ns + first * slot_ns
    if job.deadline.expires_ns - first_ns < slot_ns:
        return (
            f"ends {utc_iso(job.deadline.expires_ns)}, less than a slot after the first it could "
            f"have ({utc_iso(first_ns)})"
        )
    end_ns = market.start_ns + market.slots * slot_ns
    if job.deadline.expires_ns > end_ns:
        return (
            f"ends {utc_iso(job.deadline.expires_ns)}, after the market ({utc_iso(end_ns)}): "
            "give it an earlier deadline, or a longer market"
        )
    if not any(job.throughput_on(o.offering_id, o.instance_type) for o in market.offerings):
        known = ", ".join(sorted({o.instance_type for o in market.offerings}))
        return f"can run on no offering of the market, whose instance types are {known}"
    return ""


def slots_of(market: Market) -> tuple[SlotOpened, ...]:
    """Every slot of a market as its clock opens it."""
    clock = IngestHandler(market, IngestOptions())
    slots = []
    for slot in range(market.slots):
        slots += [event for event in clock.slot_events(slot) if isinstance(event, SlotOpened)]
    return tuple(slots)


def issue_forecasts(
    slots: Sequence[SlotOpened],
    forecaster: str,
    horizon_slots: int,
    *,
    learning: LearningRules = ALL_RULES,
    priors: PriorLaws = NO_PRIORS,
) -> dict[int, Issued]:
    """What the forecaster service says in every slot, knowing that slot and those before it.

    Laws are learned by `learning` and drawn towards `priors`.

    Raises
    ------
    ContractError
        No forecaster has this name.
    """
    try:
        factory = forecaster_factory(forecaster)
    except ValueError as error:
        raise ContractError("forecaster", str(error)) from error
    handler = ForecastHandler(
        factory,
        horizon_slots=horizon_slots,
        learning=learning,
        priors=priors,
    )
    turns = Turns(handler)
    issued = {}
    for opened in slots:
        slot_id = f"slot:{opened.slot}"
        ctx = Context(
            seq=opened.slot + 1,
            now_ns=opened.ts_event_ns,
            event_id=slot_id,
            correlation_id=slot_id,
        )
        events = [output.event for output in turns.take(opened, ctx).outputs]
        laws = tuple(event for event in events if isinstance(event, MarketLawLearned))
        for event in events:
            if isinstance(event, ForecastIssued):
                issued[event.slot] = Issued(forecast=event, laws=laws)
    return issued


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketCourse:
    """The market as it goes: slots, forecasts, and what a job alone is offered, by offering.

    `slots` are as they are told, `real` as they are; offers are real.
    """

    market: Market
    slots: tuple[SlotOpened, ...]
    real: Mapping[int, SlotOpened]
    issued: Mapping[int, Issued]
    offers: Mapping[str, tuple[SlotRecord, ...]]


def course_of(
    market: Market,
    forecaster: str,
    horizon_slots: int,
    information: Information,
    *,
    learning: LearningRules = ALL_RULES,
    priors: PriorLaws = NO_PRIORS,
) -> MarketCourse:
    """Forecast a market slot by slot; note what offerings have.

    Laws are learned by `learning` and drawn towards `priors`.

    Raises
    ------
    ContractError
        No forecaster has this name.
    """
    real = slots_of(market)
    slots = tuple(told(opened, information) for opened in real)
    said = issue_forecasts(slots, forecaster, horizon_slots, learning=learning, priors=priors)
    offers: dict[str, list[SlotRecord]] = {o.offering_id: [] for o in market.offerings}
    trust = ForecastTrust()
    for opened, shown in zip(real, slots, strict=True):
        trust.note_slot(shown)
        issued = said[opened.slot].forecast
        trust.note_forecast(issued)
        believed = trust.moderated(issued) if trust.trusted else None
        residual = ResidualCapacity(opened.quotes)
        for slot_quote in opened.quotes:
            quote = slot_quote.quote
            offers[quote.offering_id].append(
                SlotRecord(
                    spot_price=quote.spot_price_micro_usd,
                    on_demand_price=quote.on_demand_price_micro_usd,
                    spot_available=residual.spot(quote.offering_id),
                    on_demand_available=residual.on_demand(quote.offering_id),
                    forecast=forecast_of(believed, quote),
                )
            )
    return MarketCourse(
        market=market,
        slots=slots,
        real={opened.slot: opened for opened in real},
        issued=said,
        offers={offering_id: tuple(records) for offering_id, records in offers.items()},
    )


def first_slot(market: Market, job: Job) -> int:
    """The first slot that a job could have."""
    return max(0, -(-(job.start_ns - market.start_ns) // (market.slot_s * NS_PER_S)))

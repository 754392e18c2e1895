"""Possible futures of an offering from the next slot on, as one job would be offered them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from spotline.application.scenarios import ScenarioSpec, sample_records
from spotline.domain.drawn import generator
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import SlotOpened
from spotline.domain.kernels import FloatArray, IntArray
from spotline.domain.market.forecast import OfferingForecast
from spotline.domain.market.law import MarketLaw, run_states
from spotline.domain.market.offering import Provenance, Quote
from spotline.domain.policies.interface import PolicyView
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.replay import SlotRecord
from spotline.domain.solvers.value_table import ValueTable
from spotline.domain.units import PPM

Futures = tuple[tuple[SlotRecord, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FutureSpec:
    """What to sample: `paths` futures of `slots` slots after the open one, equal for equal seeds.

    `quote` is the market's own, before other jobs took of it.
    """

    view: PolicyView
    quote: Quote
    forecast: ForecastIssued | None
    history: tuple[SlotOpened, ...]
    slots: int
    paths: int
    seed: str


def law_futures(spec: FutureSpec, table: ValueTable) -> Futures:
    """Futures of the law that a value table is solved on, from where the market is in it."""
    view, law = spec.view, table.terms.law
    rng = generator(spec.seed)
    runs = np.cumsum(law.run_matrix(), axis=1)
    prices = np.cumsum(law.price_matrix(), axis=1)
    counts = np.maximum(law.run_counts() - table.terms.taken, 0)
    run = np.full(spec.paths, _run_state(view), dtype=np.int64)
    price = _price_levels(law, view, rng.random(spec.paths))
    centres = law.space.price_centres_ppm
    columns: list[list[SlotRecord]] = [[] for _ in range(spec.paths)]
    for _ in range(spec.slots):
        run = _drawn(runs, run, rng.random(spec.paths))
        price = _drawn(prices, price, rng.random(spec.paths))
        for path, (state, level) in enumerate(zip(run.tolist(), price.tolist(), strict=True)):
            columns[path].append(
                SlotRecord(
                    spot_price=max(1, centres[level] * view.on_demand_price // PPM),
                    on_demand_price=view.on_demand_price,
                    spot_available=int(counts[state]),
                    on_demand_available=table.terms.on_demand_available,
                    forecast=None,
                    run_state=state,
                    reserve_slots=view.reserve_slots,
                    rescue_instances=view.rescue_instances,
                )
            )
    return tuple(map(tuple, columns))


def forecast_futures(spec: FutureSpec) -> Futures:
    """Futures of the forecast and of the recent market; what others take now stays taken."""
    view, quote = spec.view, spec.quote
    taken = 0
    if quote.spot_available.known:
        taken = max(0, quote.spot_available.instances - view.spot_available)
    sampled = sample_records(
        ScenarioSpec(
            quote=_left_of(quote, view),
            forecast=_steps_of(spec.forecast, quote.offering_id),
            history=spec.history,
            most_spot=view.program.max_instances + taken,
            slots=spec.slots,
            paths=spec.paths,
            seed=spec.seed,
        )
    )
    law = None if view.outlook is None else view.outlook.table.terms.law
    return tuple(_offered(records, spec, law, taken) for records in sampled)


def _offered(
    records: tuple[SlotRecord, ...], spec: FutureSpec, law: MarketLaw | None, taken: int
) -> tuple[SlotRecord, ...]:
    view = spec.view
    states = [-1] * len(records)
    if law is not None:
        known = _known_counts(spec)
        counts = [*known, *(record.spot_available for record in records)]
        states = run_states(law.space, counts)[len(known) :].tolist()
    return tuple(
        replace(
            record,
            spot_available=max(0, record.spot_available - taken),
            run_state=state,
            reserve_slots=view.reserve_slots,
            rescue_instances=view.rescue_instances,
        )
        for record, state in zip(records, states, strict=True)
    )


def _left_of(quote: Quote, view: PolicyView) -> Quote:
    """The quote with the on-demand that is left to the job."""
    if view.on_demand_available >= UNCOUNTED:
        return quote
    left = replace(
        quote.on_demand_available,
        instances=view.on_demand_available,
        provenance=Provenance.INFERRED,
    )
    return replace(quote, on_demand_available=left)


def _known_counts(spec: FutureSpec) -> list[int]:
    return [
        slot_quote.quote.spot_available.instances
        for opened in spec.history
        for slot_quote in opened.quotes
        if slot_quote.quote.offering_id == spec.quote.offering_id
        and slot_quote.quote.spot_available.known
    ]


def _steps_of(issued: ForecastIssued | None, offering_id: str) -> OfferingForecast | None:
    for forecast in issued.forecasts if issued is not None else ():
        if forecast.offering_id == offering_id and forecast.steps:
            return forecast
    return None


def _run_state(view: PolicyView) -> int:
    if view.outlook is None:
        raise ValueError("a view without a value table is in no state of a law")
    return view.outlook.run_state


def _price_levels(law: MarketLaw, view: PolicyView, drawn: FloatArray) -> IntArray:
    """Price levels that have the present price as their mean, where it lies between two."""
    centres = np.array(law.space.price_centres_ppm)
    ppm = view.spot_price * PPM // max(1, view.on_demand_price)
    place = float(np.interp(ppm, centres, np.arange(centres.size)))
    low = int(place)
    return low + (drawn < place - low).astype(np.int64)


def _drawn(cumulative: FloatArray, current: IntArray, drawn: FloatArray) -> IntArray:
    after: IntArray = (drawn[:, None] >= cumulative[current]).sum(axis=1)
    drawn_to: IntArray = np.minimum(after, cumulative.shape[0] - 1)
    return drawn_to

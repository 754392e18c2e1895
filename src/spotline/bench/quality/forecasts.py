"""What the forecaster service would have said in every slot of a family, as policies use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.application.allocation.tasks import forecast_of
from spotline.bench.quality.families import Series
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.trust import ForecastTrust
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.compiled import ForecastSeries
from spotline.domain.policies.interface import WindowForecast
from spotline.domain.policies.prediction import window_forecast
from spotline.replay.course import issue_forecasts

# As far as any policy of the pool looks.
HORIZON_SLOTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Slots and forecasts of the series that are forecast together.

    `forecasts[k]` is what was said in slot k.
    """

    series: tuple[Series, ...]
    slots: tuple[SlotOpened, ...]
    forecasts: tuple[ForecastIssued, ...]


def forecast_family(series: Sequence[Series], forecaster: str) -> tuple[Said, ...]:
    """Issue forecasts for every slot, knowing that slot and those before it.

    Zones of one set and world are one market; those that end early are missing afterwards.
    """
    together: dict[tuple[str, int], list[Series]] = {}
    for one in series:
        together.setdefault((one.together, one.world), []).append(one)
    said = []
    for group in together.values():
        slots = _slots_of(group)
        issued = issue_forecasts(slots, forecaster, HORIZON_SLOTS)
        forecasts = tuple(issued[opened.slot].forecast for opened in slots)
        said.append(Said(series=tuple(group), slots=slots, forecasts=forecasts))
    return tuple(said)


def _slots_of(group: Sequence[Series]) -> tuple[SlotOpened, ...]:
    longest = max(group, key=lambda one: one.slots)
    starts_ns = longest.market.slot_starts_ns()
    return tuple(
        SlotOpened(
            slot=slot,
            ts_event_ns=int(starts_ns[slot]),
            slot_s=longest.market.slot_s,
            quotes=tuple(
                SlotQuote(quote=one.market.quote(slot, 0), age_s=0)
                for one in group
                if slot < one.slots
            ),
        )
        for slot in range(longest.slots)
    )


def with_noise(said: Said, share: float, seed: int) -> Said:
    """Replace a share of all forecasts, each by one that was issued for its offering elsewhen.

    Replacing keeps what forecasts look like; noise that multiplies would leave every 0 a 0.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    by_offering: dict[str, list[int]] = {}
    for slot, issued in enumerate(said.forecasts):
        for one in issued.forecasts:
            by_offering.setdefault(one.offering_id, []).append(slot)
    known = [{f.offering_id: f for f in issued.forecasts} for issued in said.forecasts]
    noisy = []
    for issued in said.forecasts:
        changed = []
        for one in issued.forecasts:
            # Both are drawn always, so that more noise replaces a superset by the same.
            replaced = rng.random() < share
            other = by_offering[one.offering_id][
                int(rng.integers(len(by_offering[one.offering_id])))
            ]
            changed.append(known[other][one.offering_id] if replaced else one)
        noisy.append(replace(issued, forecasts=tuple(changed)))
    return replace(said, forecasts=tuple(noisy))


def window_forecasts(said: Said, *, judged: bool) -> Mapping[str, ForecastSeries]:
    """Reduce forecasts to what planners use, by name of the series.

    With `judged` the selector's own judgement decides in every slot whether they may be used, for
    every offering by itself: a zone whose record ends must not silence the others.
    """
    trust = ForecastTrust()
    seen: dict[str, list[WindowForecast | None]] = {one.name: [] for one in said.series}
    names = {one.market.offerings[0].offering_id: one.name for one in said.series}
    for opened, issued in zip(said.slots, said.forecasts, strict=True):
        if judged:
            trust.note_slot(opened)
            trust.note_forecast(issued)
        for one in opened.quotes:
            offering_id = one.quote.offering_id
            usable = not trust.fault(offering_id)
            forecast = forecast_of(issued if usable else None, one.quote)
            seen[names[offering_id]].append(forecast)
    return {name: _as_arrays(forecasts) for name, forecasts in seen.items()}


def uncounted_forecasts(said: Said) -> Mapping[str, ForecastSeries]:
    """What planners are told where nobody counts: prices alone, and plenty of everything."""
    seen: dict[str, list[WindowForecast | None]] = {one.name: [] for one in said.series}
    names = {one.market.offerings[0].offering_id: one.name for one in said.series}
    for opened, issued in zip(said.slots, said.forecasts, strict=True):
        dear = {one.quote.offering_id: one.quote for one in opened.quotes}
        for one in issued.forecasts:
            price = dear[one.offering_id].on_demand_price_micro_usd
            seen[names[one.offering_id]].append(
                window_forecast(one, on_demand_price_micro_usd=price, counted=False)
            )
    return {name: _as_arrays(forecasts) for name, forecasts in seen.items()}


def _as_arrays(forecasts: Sequence[WindowForecast | None]) -> ForecastSeries:
    slots = len(forecasts)
    steps = np.full(slots, -1, dtype=np.int64)
    price = np.zeros((slots, HORIZON_SLOTS), dtype=np.int64)
    count = np.zeros((slots, HORIZON_SLOTS), dtype=np.int64)
    for slot, forecast in enumerate(forecasts):
        if forecast is None:
            continue
        reach = len(forecast.spot_price)
        steps[slot] = reach
        price[slot, :reach] = forecast.spot_price
        count[slot, :reach] = forecast.spot_available
    return ForecastSeries(steps=steps, spot_price=price, spot_available=count)

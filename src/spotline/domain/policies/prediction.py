"""From a forecast's distribution to the one price and count per step that a planner uses."""

from __future__ import annotations

from spotline.domain.market.forecast import ForecastStep, OfferingForecast
from spotline.domain.policies.interface import WindowForecast
from spotline.domain.units import PPM

# For a source that does not say how much there is: more than any job asks for, the cloud refuses.
UNCOUNTED = 1_000_000


def window_forecast(
    forecast: OfferingForecast,
    *,
    on_demand_price_micro_usd: int,
    taken: int = 0,
    counted: bool = True,
) -> WindowForecast:
    """Reduce a forecast to prices and counts per step.

    `taken` instances are held by jobs that are served before this one, and expected to stay so.
    Where it is not counted what is available (`counted` false), plenty is assumed now and later.

    The count is the median m. Spot planned for a step fails with probability 1 - P(count >= m),
    and what it would have done is then bought on demand, so the step's price is the expectation
    over the two. That makes work now worth more than equally cheap work later.
    """
    if not counted:
        prices = [step.spot_price_micro_usd for step in forecast.steps]
        return WindowForecast(spot_price=tuple(prices), spot_available=(UNCOUNTED,) * len(prices))
    prices = []
    counts = []
    for step in forecast.steps:
        count, certain_ppm = median_count(step)
        risk_ppm = PPM - certain_ppm
        price = step.spot_price_micro_usd * certain_ppm + on_demand_price_micro_usd * risk_ppm
        prices.append(max(1, price // PPM))
        counts.append(max(0, count - taken))
    return WindowForecast(spot_price=tuple(prices), spot_available=tuple(counts))


def median_count(step: ForecastStep) -> tuple[int, int]:
    """The largest m with P(count >= m) >= 1/2, and that probability in parts per million."""
    tail_ppm = 0
    for count in sorted(step.counts, key=lambda c: -c.instances):
        tail_ppm += count.probability_ppm
        if 2 * tail_ppm >= PPM:
            return count.instances, tail_ppm
    return 0, PPM

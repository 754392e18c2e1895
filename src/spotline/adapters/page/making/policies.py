"""Makes the page of policies: how they are weighed, and what learning that has cost."""

from __future__ import annotations

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.charts import ChartSeries, Colour, TimeChart
from spotline.adapters.page.formats import seconds_of_ns
from spotline.application.page.selection import (
    policy_rows,
    regret_rounds,
    thinned,
    weights_over_time,
)
from spotline.application.page.state import PageState
from spotline.domain.units import MICRO_USD_PER_USD

_COLOURS: tuple[Colour, ...] = (
    *("line-1", "line-2", "line-3", "line-4", "line-5", "line-6", "line-7", "line-8"),
)


def policies_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """All policies of the pool."""
    chapter = state.selection
    rounds = thinned(chapter.rounds)
    latest = chapter.rounds[-1] if chapter.rounds else None
    return {
        "rows": policy_rows(chapter),
        "latest": latest,
        "regret": None if latest is None else latest.regret,
        "learned": chapter.learned,
        "rehearsed": chapter.rehearsed,
        "recent": chapter.rounds[:-11:-1],
        "bounds": bool(state.otherwise.settled),
        "weights": TimeChart(
            name="weights",
            title="Weights of the policies, as drawn from after each moment of learning",
            unit="share",
            at_s=[seconds_of_ns(each.market_ns) for each in rounds],
            series=[
                ChartSeries(name=name, colour=_COLOURS[place], values=values, steps=True)
                for place, (name, values) in enumerate(weights_over_time(rounds))
            ],
            stacked=True,
        ),
        "regrets": _regrets(state),
    }


def _regrets(state: PageState) -> TimeChart:
    told = list(regret_rounds(thinned(state.selection.rounds)))
    return TimeChart(
        name="regret",
        title="Regret against the best fixed policy, and its bound",
        unit="usd",
        at_s=[seconds_of_ns(each.market_ns) for each, _ in told],
        series=[
            ChartSeries(
                name="of the policies drawn",
                colour="line-2",
                values=[regret.regret_micro_usd / MICRO_USD_PER_USD for _, regret in told],
                steps=True,
            ),
            ChartSeries(
                name="expected by the weights",
                colour="line-1",
                values=[regret.expected_regret_micro_usd / MICRO_USD_PER_USD for _, regret in told],
                steps=True,
            ),
            ChartSeries(
                name="bound on the expected",
                colour="line-8",
                values=[
                    regret.bound_micro_usd / MICRO_USD_PER_USD if regret.bound_micro_usd else None
                    for _, regret in told
                ],
                steps=True,
                dashed=True,
            ),
        ],
    )

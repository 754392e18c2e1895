"""Makes the page of one decision, and its explanation, which is loaded after it."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked, whole_number
from spotline.adapters.page.charts import ChartBand, ChartMark, ChartSeries, TimeChart
from spotline.adapters.page.making.job import A_PAGE, places_of
from spotline.adapters.page.sources import PageSources
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.page.decision import (
    ForecastThen,
    cause_steps,
    decision_place,
    forecast_then,
    reproduced,
    value_points,
)
from spotline.application.page.job import whole_id
from spotline.application.page.jobs import job_row
from spotline.application.page.state import PageState
from spotline.application.page.words import said
from spotline.application.read_model.ports import InputProblem, refused_input
from spotline.contracts.errors import SpotlineError
from spotline.domain.units import NS_PER_S

_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class DecisionMaker:
    """Makes pages of one decision; who explains it is asked of `sources`."""

    sources: PageSources

    async def explanation_asked(self, asked: PageAsked) -> Model:
        """The explanation, where the address asks for it: for browsers that load no parts."""
        return await self.explanation(asked) if asked.text("why") else {}

    async def explanation(self, asked: PageAsked) -> Model:
        """The explanation; takes seconds."""
        explainer = self.sources.explainer
        if explainer is None:
            return {"refused": "nobody is there who explains decisions"}
        query = DecisionQuery(
            job_id=asked.params["job_id"], slot=_slot(asked), revision=asked.number("revision")
        )
        try:
            return {"explanation": await explainer.explain(query, token=asked.token)}
        except SpotlineError as error:
            return {"refused": str(error)}

    def page(self, state: PageState, asked: PageAsked, found: Model) -> Model:
        """All of a decision's page."""
        job_id = whole_id(state, asked.params["job_id"], asked.tenant)
        place = decision_place(state, job_id, _slot(asked), asked.number("revision"))
        forecast = forecast_then(state, place.made)
        return {
            "row": job_row(state, job_id),
            "place": place,
            "decision": place.made.event,
            "said": said,
            "names": places_of(state),
            "forecast": forecast,
            "charts": () if forecast is None else forecast_charts(state, forecast),
            "explains": self.sources.explainer is not None,
            **self._why(state, job_id, found),
        }

    def why(self, state: PageState, asked: PageAsked, found: Model) -> Model:
        """The explanation alone."""
        job_id = whole_id(state, asked.params["job_id"], asked.tenant)
        place = decision_place(state, job_id, _slot(asked), asked.number("revision"))
        return {
            "row": job_row(state, job_id),
            "decision": place.made.event,
            "said": said,
            "names": places_of(state),
            **self._why(state, job_id, found),
        }

    def _why(self, state: PageState, job_id: str, found: Model) -> Model:
        explanation: DecisionExplanation | None = found.get("explanation")
        refused = str(found.get("refused", ""))
        if explanation is None:
            return {"explanation": None, "refused": refused}
        raw = list(state.raw.of_job.get(job_id, ()))
        return {
            "explanation": explanation,
            "refused": refused,
            "alternatives": explanation.alternatives[:_MOST_SHOWN],
            "alternatives_left_out": max(0, len(explanation.alternatives) - _MOST_SHOWN),
            "steps": cause_steps(
                explanation,
                until_seq=state.seq,
                pages={entry.event_id: at // A_PAGE + 1 for at, entry in enumerate(reversed(raw))},
            ),
            "points": value_points(explanation),
            "reproduced": reproduced(explanation),
        }


def _slot(asked: PageAsked) -> int:
    slot = whole_number("slot", asked.params["slot"])
    if slot is None:
        raise refused_input(InputProblem(field="slot", expected="a slot's number", found="nothing"))
    return slot


def forecast_charts(state: PageState, forecast: ForecastThen) -> tuple[TimeChart, TimeChart]:
    """What was expected of counts and prices then, and what came of it."""
    slots = range(forecast.first_slot, forecast.first_slot + len(forecast.ahead))
    at_s = [state.start_ns(slot) / NS_PER_S for slot in slots]
    came = {quote.slot: quote for quote in forecast.came}
    counts: list[float | None] = [
        float(came[slot].spot) if slot in came and came[slot].spot >= 0 else None for slot in slots
    ]
    prices = [came[slot].spot_price_micro_usd / 1e6 if slot in came else None for slot in slots]
    quoted = [
        came[slot].on_demand_price_micro_usd / 1e6 if slot in came else None for slot in slots
    ]
    ahead = forecast.ahead
    marks = [ChartMark(at_s=state.now_ns / NS_PER_S, name="open slot", colour="strong")]
    inside = [mark for mark in marks if at_s[0] <= mark.at_s <= at_s[-1]]
    return (
        TimeChart(
            name="then-counts",
            title="Spot instances on offer: expected then, and what came",
            unit="instances",
            at_s=at_s,
            series=[
                ChartSeries(
                    name="1 in 10 at most",
                    colour="spot",
                    values=[float(step.low) for step in ahead],
                    dashed=True,
                ),
                ChartSeries(
                    name="expected, middle",
                    colour="spot",
                    values=[float(step.middle) for step in ahead],
                ),
                ChartSeries(
                    name="9 in 10 at most",
                    colour="spot",
                    values=[float(step.high) for step in ahead],
                    dashed=True,
                ),
                ChartSeries(name="really came", colour="line-2", values=counts, steps=True),
            ],
            bands=[ChartBand(name="8 of 10", low=0, high=2, colour="spot")],
            marks=inside,
        ),
        TimeChart(
            name="then-prices",
            title="Spot price: expected then, and what came",
            unit="usd_per_hour",
            at_s=at_s,
            series=[
                ChartSeries(
                    name="expected",
                    colour="spot",
                    values=[step.spot_price_micro_usd / 1e6 for step in ahead],
                    dashed=True,
                ),
                ChartSeries(name="really came", colour="line-2", values=prices, steps=True),
                ChartSeries(name="on-demand", colour="on-demand", values=quoted, steps=True),
            ],
            marks=inside,
        ),
    )

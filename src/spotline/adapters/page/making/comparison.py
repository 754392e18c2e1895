"""Makes what all jobs that are over are compared with: simple rules, and what nobody can exceed.

Both are worked out beside the book's thread, job by job, and loaded after the pages they are on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.charts import ChartSeries, Colour, TimeChart
from spotline.adapters.page.formats import seconds_of_ns
from spotline.adapters.page.sources import PageSources
from spotline.application.page.certified import CertifiedJob, CertifiedSum, certified_bound
from spotline.application.page.comparing import (
    JobsToCompare,
    RulesCompared,
    compared,
    jobs_to_compare,
    rule_costs,
)
from spotline.application.page.job import RULE_NAMES
from spotline.application.page.state import PageState
from spotline.domain.units import MICRO_USD_PER_USD

MOST_BOUNDED = 40
"""Bounding a job takes about a second: of so many at most it is worked out."""

_COLOURS: tuple[Colour, ...] = ("on-demand", "line-3", "line-4")


@dataclass(frozen=True, slots=True)
class ComparisonMaker:
    """Makes the parts of Money and Policies that compare; `sources` say where that is worked out."""

    sources: PageSources

    async def rules(self, asked: PageAsked) -> Model:
        """What simple rules would have cost the jobs that are over."""
        bench = self.sources.bench
        wanted = await self._wanted(asked)
        if bench is None or wanted is None:
            return {}
        costs = [await bench.work(partial(rule_costs, job.lives)) for job in wanted.jobs]
        return {"compared": compared(wanted, costs)}

    async def bound(self, asked: PageAsked) -> Model:
        """What nobody who does not know the future could have earned with the jobs that are over."""
        bench = self.sources.bench
        wanted = await self._wanted(asked, MOST_BOUNDED)
        if bench is None or wanted is None:
            return {}
        found = []
        for job in wanted.jobs:
            if job.law is None:
                continue
            bound = await bench.work(partial(certified_bound, job.lives, job.law, job.holdings))
            if bound is not None:
                earned = job.value_micro_usd - job.spent_micro_usd
                found.append(CertifiedJob(job_id=job.job_id, utility_micro_usd=earned, bound=bound))
        untold = wanted.untold + len(wanted.jobs) - len(found)
        return {"certified": CertifiedSum(jobs=tuple(found), untold=untold, older=wanted.older)}

    async def _wanted(self, asked: PageAsked, most: int | None = None) -> JobsToCompare | None:
        desk, tenant = self.sources.desk, asked.tenant or asked.text("tenant")
        if desk is None:
            return None
        if most is None:
            return await desk.ask(lambda book: jobs_to_compare(book.at(asked.at), tenant))
        return await desk.ask(lambda book: jobs_to_compare(book.at(asked.at), tenant, most))

    def rules_part(self, state: PageState, asked: PageAsked, found: Model) -> Model:
        """The comparison with simple rules, as a line each over time."""
        told: RulesCompared | None = found.get("compared")
        return {
            "compared": told,
            "names": RULE_NAMES,
            "chart": None if told is None else rules_chart(state, told),
        }

    def bound_part(self, state: PageState, asked: PageAsked, found: Model) -> Model:
        """What was earned beside what nobody exceeds."""
        names = {name: each.job.name or name[:8] for name, each in state.jobs.statuses.items()}
        return {"certified": found.get("certified"), "names": names}


def rules_chart(state: PageState, told: RulesCompared) -> TimeChart:
    """Cumulative cost of the same jobs: as decided, and under each simple rule."""
    points = told.points
    series = [
        ChartSeries(
            name="as decided",
            colour="spot",
            values=[point.spent_micro_usd / MICRO_USD_PER_USD for point in points],
            steps=True,
            filled=True,
        )
    ]
    for place, (rule, colour) in enumerate(zip(told.rules, _COLOURS, strict=True)):
        series.append(
            ChartSeries(
                name=RULE_NAMES.get(rule, rule),
                colour=colour,
                values=[point.rules_micro_usd[place] / MICRO_USD_PER_USD for point in points],
                steps=True,
                dashed=True,
            )
        )
    return TimeChart(
        name="rules",
        title="The same jobs: cost so far as decided, and under simple rules, USD",
        unit="usd",
        at_s=[seconds_of_ns(state.start_ns(point.slot + 1)) for point in points],
        series=series,
    )

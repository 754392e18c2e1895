"""What was decided for each job, and what was expected of the market then.

Of forecasts only those are kept that a job was decided on; of quotes what is compared with them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.forecast import ForecastStep
from spotline.domain.units import PPM

MOST_DECISIONS = 2_000
"""Of each job so many of the latest decisions are kept."""

_STEP_WIDTH, _QUOTE_WIDTH = 4, 4
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMade:
    """A decision at its place; `home` is where the job was to run, or last ran."""

    event: AllocationDecided
    seq: int
    event_id: str
    market_ns: int
    home: str


class StepAhead(NamedTuple):
    """What was expected of a slot: the spot price, and the instances on offer by quantiles."""

    spot_price_micro_usd: int
    low: int
    middle: int
    high: int


class QuoteThen(NamedTuple):
    """What a slot opened with; spot instances -1: nobody knew."""

    slot: int
    spot_price_micro_usd: int
    on_demand_price_micro_usd: int
    spot: int


@dataclass(slots=True)
class DecisionsChapter:
    """The decisions of every job, in the order of the log, with what they were made on."""

    of_job: dict[str, dict[tuple[int, int], DecisionMade]] = field(default_factory=dict)
    _ahead: dict[tuple[int, str], array[int]] = field(default_factory=dict)
    _quotes: dict[str, array[int]] = field(default_factory=dict)
    _issued: ForecastIssued | None = None

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event; `jobs` has it already."""
        match told.event:
            case SlotOpened():
                self._open(told.event)
            case ForecastIssued():
                self._issued = told.event
            case AllocationDecided():
                self._decide(told, told.event, jobs)
            case _:
                pass

    def made(self, job_id: str, slot: int, revision: int | None = None) -> DecisionMade | None:
        """The decision of a job in a slot, None where there is none; no revision: the last."""
        decided = self.of_job.get(job_id, {})
        if revision is not None:
            return decided.get((slot, revision))
        found = [key for key in decided if key[0] == slot]
        return decided[max(found)] if found else None

    def ahead(self, slot: int, offering_id: str) -> list[StepAhead]:
        """What was expected when a slot was decided: of the slots after it, in their order."""
        kept = self._ahead.get((slot, offering_id), array("q"))
        return [StepAhead(*kept[at : at + _STEP_WIDTH]) for at in range(0, len(kept), _STEP_WIDTH)]

    def quotes(self, offering_id: str, first: int, last: int) -> Iterator[QuoteThen]:
        """What the slots from `first` to `last` opened with, as far as they have."""
        kept = self._quotes.get(offering_id, array("q"))
        for at in range(0, len(kept), _QUOTE_WIDTH):
            if first <= kept[at] <= last:
                yield QuoteThen(*kept[at : at + _QUOTE_WIDTH])

    def _open(self, event: SlotOpened) -> None:
        for quoted in event.quotes:
            quote = quoted.quote
            count = quote.spot_available
            self._quotes.setdefault(quote.offering_id, array("q")).extend(
                (
                    event.slot,
                    quote.spot_price_micro_usd,
                    quote.on_demand_price_micro_usd,
                    count.instances if count.known else _UNKNOWN,
                )
            )

    def _decide(self, told: Applied, event: AllocationDecided, jobs: JobsState) -> None:
        entry = jobs.board.entries.get(event.job_id)
        home = entry.offering_id if entry is not None else ""
        home = event.lots[0].offering_id if event.lots else home
        decided = self.of_job.setdefault(event.job_id, {})
        decided[event.slot, event.revision] = DecisionMade(
            event=event,
            seq=told.seq,
            event_id=told.event_id,
            market_ns=told.market_ns,
            home=home,
        )
        if len(decided) > MOST_DECISIONS:
            del decided[next(iter(decided))]
        issued = self._issued
        if issued is None or issued.slot != event.slot or (event.slot, home) in self._ahead:
            return
        for forecast in issued.forecasts:
            if forecast.offering_id == home:
                kept = array("q")
                for step in forecast.steps:
                    kept.extend((step.spot_price_micro_usd, *_quantiles(step)))
                self._ahead[event.slot, home] = kept


def _quantiles(step: ForecastStep) -> tuple[int, int, int]:
    """The counts that one future in ten, five and nine in ten stay at or below."""
    wanted = [PPM // 10, PPM // 2, 9 * PPM // 10]
    found: list[int] = []
    below = 0
    counts = sorted(step.counts, key=lambda count: count.instances)
    for count in counts:
        below += count.probability_ppm
        while len(found) < len(wanted) and below >= wanted[len(found)]:
            found.append(count.instances)
    low, middle, high = found
    return low, middle, high

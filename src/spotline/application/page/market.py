"""What is remembered of the market beyond its latest quotes: runs, refusals, losses, lives, forecasts."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    InterruptionNoticed,
    LaunchRefused,
    RefusalClass,
)
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.lot import JobHolding
from spotline.domain.limits.quote_age import AgeRule, QuotePace
from spotline.domain.market.forecast import ForecastStep
from spotline.domain.market.offering import CapacityType, Count
from spotline.domain.units import NS_PER_S, PPM

FANS_KEPT = 48
"""Of so many slots the forecasts are kept, at least as many as steps are forecast."""

_MOST_REFUSALS = 2_000
_MOST_LOSSES = 2_000
_MOST_LIVES = 5_000
_MOST_LEADS = 200
_FAN_INTS = 4
_QUANTILES_PPM = (100_000, 500_000, 900_000)
_AGE_RULE = AgeRule()


class RefusedLaunch(NamedTuple):
    """A launch that was refused, in full or in part; `reason` is its class, or "not said"."""

    market_ns: int
    slot: int
    tenant: str
    job_id: str
    offering_id: str
    kind: CapacityType
    reason: str
    requested: int
    granted: int


class Loss(NamedTuple):
    """Spot that was taken back; of `noticed` instances notice had been given."""

    market_ns: int
    slot: int
    tenant: str
    job_id: str
    offering_id: str
    instances: int
    noticed: int


class SpotLife(NamedTuple):
    """The life of a spot instance of ours: how old it became, and whether it was taken from us."""

    tenant: str
    age_s: int
    lost: bool


class AvailabilityRun(NamedTuple):
    """Since which slot spot has been there, or not, or has not been known: `state` says which."""

    state: str
    since_slot: int


class FanStep(NamedTuple):
    """A step of a forecast: spot instances by quantile, and the expected price, micro-USD an hour."""

    low: int
    middle: int
    high: int
    price_micro_usd: int


@dataclass(slots=True)
class _Alive:
    offering_id: str
    tenant: str
    since_ns: int


@dataclass(slots=True)
class MarketChapter:
    """The market, beyond what the latest slots say of it.

    `cools_until_ns` is by offering and kind, `leads_s` the seconds between a notice and the end that
    it announced, `lives` are those that are over, `untold_lives` counts instances of which the kind
    or the offering is not known. `hits` says by offering, two numbers a step, how many forecasts were
    followed by a known count, and how many of these counts lay inside the 80 % band.
    """

    runs: dict[str, AvailabilityRun] = field(default_factory=dict)
    paces: dict[str, QuotePace] = field(default_factory=dict)
    refusals: deque[RefusedLaunch] = field(default_factory=lambda: deque(maxlen=_MOST_REFUSALS))
    losses: deque[Loss] = field(default_factory=lambda: deque(maxlen=_MOST_LOSSES))
    cools_until_ns: dict[tuple[str, str], int] = field(default_factory=dict)
    leads_s: dict[str, deque[int]] = field(default_factory=dict)
    lives: dict[str, deque[SpotLife]] = field(default_factory=dict)
    untold_lives: int = 0
    fans: dict[int, dict[str, array[int]]] = field(default_factory=dict)
    hits: dict[str, array[int]] = field(default_factory=dict)
    alive: dict[str, _Alive] = field(default_factory=dict)
    _ids_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _noticed: set[str] = field(default_factory=set)

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event."""
        event = told.event
        match event:
            case SlotOpened():
                self._open(event)
            case ForecastIssued():
                self._keep(event)
            case LaunchRefused():
                self._refuse(event, told.market_ns)
            case InterruptionNoticed():
                leads = self.leads_s.setdefault(event.offering_id, deque(maxlen=_MOST_LEADS))
                leads.append(event.lead_s)
                self._noticed.update(event.instance_ids)
            case CapacityLost():
                self._lose(event, told.market_ns)
            case CapacityReported():
                for holding in event.holdings:
                    self._hold(holding, told.market_ns, jobs)
                self._release(event.holdings, told.market_ns)
            case _:
                pass

    def fan(self, slot: int, offering_id: str) -> tuple[FanStep, ...]:
        """The forecast of an offering that was issued in a slot, from its first step on; empty: none."""
        row = self.fans.get(slot, {}).get(offering_id)
        if row is None:
            return ()
        return tuple(FanStep(*row[at : at + _FAN_INTS]) for at in range(0, len(row), _FAN_INTS))

    def limit_s(self, offering_id: str, slot_s: int) -> int:
        """How old a quote may be before nothing is bought by it, by the default rule of ages."""
        pace = self.paces.get(offering_id)
        return (pace or QuotePace()).limit_s(slot_s, _AGE_RULE)

    def _open(self, event: SlotOpened) -> None:
        for quoted in event.quotes:
            quote = quoted.quote
            state = state_of(quote.spot_available)
            run = self.runs.get(quote.offering_id)
            if run is None or run.state != state:
                self.runs[quote.offering_id] = AvailabilityRun(state, event.slot)
            pace = self.paces.setdefault(quote.offering_id, QuotePace())
            pace.note(quote.ts_event_ns, _AGE_RULE)
            if quote.spot_available.known:
                self._score(event.slot, quote.offering_id, quote.spot_available.instances)

    def _score(self, slot: int, offering_id: str, came: int) -> None:
        for issued, fans in self.fans.items():
            row, step = fans.get(offering_id), slot - issued
            if row is None or not 0 < step <= len(row) // _FAN_INTS:
                continue
            hits = self.hits.setdefault(offering_id, array("q"))
            while len(hits) < 2 * step:
                hits.append(0)
            at = (step - 1) * _FAN_INTS
            hits[2 * step - 2] += 1
            hits[2 * step - 1] += row[at] <= came <= row[at + 2]

    def _keep(self, event: ForecastIssued) -> None:
        self.fans[event.slot] = {
            forecast.offering_id: array(
                "q",
                [
                    number
                    for step in forecast.steps
                    for number in (*quantiles(step), step.spot_price_micro_usd)
                ],
            )
            for forecast in event.forecasts
        }
        for old in sorted(self.fans)[:-FANS_KEPT]:
            del self.fans[old]

    def _refuse(self, event: LaunchRefused, market_ns: int) -> None:
        reason = "not said" if event.refusal_class is None else event.refusal_class.value
        self.refusals.append(
            RefusedLaunch(
                market_ns=market_ns,
                slot=event.slot,
                tenant=event.tenant,
                job_id=event.job_id,
                offering_id=event.offering_id,
                kind=event.capacity_type,
                reason=reason,
                requested=event.requested,
                granted=event.granted,
            )
        )
        if event.refusal_class is not RefusalClass.LIMIT and event.retry_after_s:
            key = event.offering_id, event.capacity_type.value
            until_ns = market_ns + event.retry_after_s * NS_PER_S
            self.cools_until_ns[key] = max(until_ns, self.cools_until_ns.get(key, 0))

    def _lose(self, event: CapacityLost, market_ns: int) -> None:
        self.losses.append(
            Loss(
                market_ns=market_ns,
                slot=event.slot,
                tenant=event.tenant,
                job_id=event.job_id,
                offering_id=event.offering_id,
                instances=len(event.instance_ids),
                noticed=sum(name in self._noticed for name in event.instance_ids),
            )
        )
        for name in event.instance_ids:
            self._end(name, market_ns, lost=True)

    def _hold(self, holding: JobHolding, market_ns: int, jobs: JobsState) -> None:
        before = set(self._ids_of.get(holding.job_id, ()))
        new = [name for name in holding.instance_ids if name not in before]
        if not new:
            return
        if len(holding.lots) != 1 or holding.lots[0].on_demand:
            # On-demand beside spot: nothing says which is which.
            self.untold_lives += any(lot.spot for lot in holding.lots) * len(new)
            return
        tenant = jobs.tenant_of(holding.job_id) or ""
        for name in new:
            self.alive[name] = _Alive(holding.lots[0].offering_id, tenant, market_ns)

    def _release(self, holdings: Sequence[JobHolding], market_ns: int) -> None:
        told = {holding.job_id: holding.instance_ids for holding in holdings}
        for job_id, names in self._ids_of.items():
            kept = set(told.get(job_id, ()))
            for name in names:
                if name not in kept:
                    self._end(name, market_ns, lost=False)
        self._ids_of = told

    def _end(self, name: str, market_ns: int, *, lost: bool) -> None:
        self._noticed.discard(name)
        alive = self.alive.pop(name, None)
        if alive is not None:
            age_s = max(0, market_ns - alive.since_ns) // NS_PER_S
            lives = self.lives.setdefault(alive.offering_id, deque(maxlen=_MOST_LIVES))
            lives.append(SpotLife(alive.tenant, age_s, lost))


def state_of(count: Count) -> str:
    """Whether spot is there: "there", "none" or "unknown"."""
    if not count.known:
        return "unknown"
    return "there" if count.instances else "none"


def quantiles(step: ForecastStep) -> Iterable[int]:
    """The counts below which a tenth, half and nine tenths of the futures lie."""
    counts = sorted((each.instances, each.probability_ppm) for each in step.counts)
    for wanted_ppm in _QUANTILES_PPM:
        reached = 0
        for instances, probability_ppm in counts:
            reached += probability_ppm
            if reached >= min(wanted_ppm, PPM):
                yield instances
                break

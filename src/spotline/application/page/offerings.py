"""The page of the market, and that of one offering: what can be had, at which price, and how sure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from spotline.application.page.market import FanStep, Loss, RefusedLaunch, SpotLife
from spotline.application.page.state import PageState
from spotline.domain.market.forecast import ForecastScore
from spotline.domain.market.offering import CapacityType, Offering
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import NS_PER_S, PPM, S_PER_HOUR

FEW = 20
"""Below so many lives a share says little: it is shown with their number, and called few."""

_AGES_H = (0, 1, 2, 4, 8, 24, 72)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingFilter:
    """Which offerings; empty: all."""

    provider: str = ""
    region: str = ""
    gpu: str = ""
    instance_type: str = ""

    def takes(self, offering: Offering) -> bool:
        """Whether an offering is one of them."""
        return (
            self.provider in ("", offering.provider)
            and self.region in ("", offering.region)
            and self.gpu in ("", offering.gpu_model)
            and self.instance_type in ("", offering.instance_type)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingRow:
    """An offering in the open slot; what is not known is None, money micro-USD an instance-hour.

    `refusals` of the last hour are by class, the most frequent first; `cools_until_ns` is 0 where
    nothing is avoided. `run_slots` counts the slots that spot has been there, or not there, the
    open one included.
    """

    offering: Offering
    quoted: SlotQuote | None
    discount_ppm: int | None
    state: str
    run_slots: int
    stale_after_s: int
    refusals: tuple[tuple[str, int], ...]
    cools_until_ns: int
    lead_seen_s: int | None
    shadow_price_micro_usd: int

    @property
    def stale(self) -> bool:
        """Whether its quote is too old to buy spot by."""
        return self.quoted is not None and self.quoted.age_s > self.stale_after_s


def offering_rows(state: PageState, wanted: OfferingFilter, tenant: str = "") -> list[OfferingRow]:
    """The offerings that a filter takes, by id; refusals are those of a tenant (empty: of all)."""
    recent, chapter = state.jobs.recent, state.market
    quotes = {} if recent.opened is None else {q.quote.offering_id: q for q in recent.opened.quotes}
    worth = {price.offering_id: price.micro_usd_per_instance_hour for price in recent.shadow_prices}
    refused: dict[str, Counter[str]] = {}
    for refusal in refusals_since(state, S_PER_HOUR, tenant):
        refused.setdefault(refusal.offering_id, Counter())[refusal.reason] += 1
    rows = []
    for offering in sorted(recent.offerings, key=lambda each: each.offering_id):
        if not wanted.takes(offering):
            continue
        name = offering.offering_id
        quoted, run = quotes.get(name), chapter.runs.get(name)
        until_ns = max(chapter.cools_until_ns.get((name, k.value), 0) for k in CapacityType)
        leads = chapter.leads_s.get(name, ())
        counts = refused.get(name, Counter())
        rows.append(
            OfferingRow(
                offering=offering,
                quoted=quoted,
                discount_ppm=None if quoted is None else discount_ppm(quoted),
                state="unknown" if run is None else run.state,
                run_slots=0 if run is None else state.slot - run.since_slot + 1,
                stale_after_s=chapter.limit_s(name, state.slot_s),
                refusals=tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
                cools_until_ns=until_ns if until_ns > state.now_ns else 0,
                lead_seen_s=min(leads, default=None),
                shadow_price_micro_usd=worth.get(name, 0),
            )
        )
    return rows


def discount_ppm(quoted: SlotQuote) -> int | None:
    """How far spot is below on-demand, parts per million; None for what costs nothing more."""
    on_demand = quoted.quote.on_demand_price_micro_usd
    if not on_demand:
        return None
    return PPM - quoted.quote.spot_price_micro_usd * PPM // on_demand


def refusals_since(state: PageState, seconds: int, tenant: str = "") -> list[RefusedLaunch]:
    """The refusals of the last so many seconds of the market, oldest first."""
    first_ns = state.now_ns - seconds * NS_PER_S
    return [
        refusal
        for refusal in state.market.refusals
        if refusal.market_ns >= first_ns and tenant in ("", refusal.tenant)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSeen:
    """An offering in a slot of the past; `available` is None where nobody knows."""

    slot: int
    opened_ns: int
    spot_price_micro_usd: int
    on_demand_price_micro_usd: int
    available: int | None
    believed: bool


def seen_slots(state: PageState, offering_id: str) -> list[SlotSeen]:
    """The slots that are remembered, oldest first."""
    found = []
    for opened in state.jobs.recent.history:
        for quoted in opened.quotes:
            quote = quoted.quote
            if quote.offering_id == offering_id:
                count = quote.spot_available
                found.append(
                    SlotSeen(
                        slot=opened.slot,
                        opened_ns=opened.ts_event_ns,
                        spot_price_micro_usd=quote.spot_price_micro_usd,
                        on_demand_price_micro_usd=quote.on_demand_price_micro_usd,
                        available=count.instances if count.known else None,
                        believed=count.provenance.value == "inferred",
                    )
                )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FanPoint:
    """A step of a forecast, and what really came; None: that slot is not over, or nobody knows."""

    slot: int
    at_ns: int
    step: FanStep
    came: int | None
    price_came_micro_usd: int | None


def fan_points(state: PageState, offering_id: str, issued: int) -> list[FanPoint]:
    """The forecast that was issued in a slot, step by step."""
    seen = {each.slot: each for each in seen_slots(state, offering_id)}
    points = []
    for ahead, step in enumerate(state.market.fan(issued, offering_id), start=1):
        came = seen.get(issued + ahead)
        points.append(
            FanPoint(
                slot=issued + ahead,
                at_ns=state.start_ns(issued + ahead),
                step=step,
                came=None if came is None else came.available,
                price_came_micro_usd=None if came is None else came.spot_price_micro_usd,
            )
        )
    return points


def issued_slots(state: PageState, offering_id: str) -> list[int]:
    """The slots whose forecasts of an offering are kept, newest first."""
    fans = state.market.fans
    return [slot for slot in sorted(fans, reverse=True) if offering_id in fans[slot]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCalibration:
    """How forecasts so many steps ahead have fared; `score` is None before enough is known.

    Of `scored` forecasts `inside` were followed by a count inside their 80 % band.
    """

    step: int
    scored: int
    inside: int
    score: ForecastScore | None

    @property
    def inside_ppm(self) -> int | None:
        """The share inside the band, parts per million."""
        return self.inside * PPM // self.scored if self.scored else None


def calibration(state: PageState, offering_id: str) -> list[StepCalibration]:
    """By step ahead, from 1 on."""
    forecast = state.jobs.recent.forecast
    scores = (
        {}
        if forecast is None
        else {score.step: score for score in forecast.scores if score.offering_id == offering_id}
    )
    hits = state.market.hits.get(offering_id, ())
    steps = max(len(hits) // 2, max(scores, default=0))
    return [
        StepCalibration(
            step=step,
            scored=hits[2 * step - 2] if 2 * step <= len(hits) else 0,
            inside=hits[2 * step - 1] if 2 * step <= len(hits) else 0,
            score=scores.get(step),
        )
        for step in range(1, steps + 1)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeGroup:
    """Spot instances of ours that reached an age, and those of them that were taken before the next.

    `ended` were given back by us, `alive` are that old now: of neither anybody knows how long they
    would have lived.
    """

    from_h: int
    to_h: int | None
    reached: int
    lost: int
    ended: int
    alive: int

    @property
    def lost_ppm(self) -> int | None:
        """The share of those that reached the age that was taken in it; None without any."""
        return self.lost * PPM // self.reached if self.reached else None

    @property
    def few(self) -> bool:
        """Whether so few reached the age that the share says little."""
        return self.reached < FEW


def lives_by_age(state: PageState, offering_id: str, tenant: str = "") -> list[AgeGroup]:
    """The lives of own spot instances by age; those of a tenant (empty: of all)."""
    chapter = state.market
    lives: list[tuple[SpotLife, bool]] = [
        (life, False) for life in chapter.lives.get(offering_id, ()) if tenant in ("", life.tenant)
    ]
    for alive in chapter.alive.values():
        if alive.offering_id == offering_id and tenant in ("", alive.tenant):
            age_s = max(0, state.now_ns - alive.since_ns) // NS_PER_S
            lives.append((SpotLife(alive.tenant, age_s, lost=False), True))
    return grouped_by_age(lives)


def grouped_by_age(lives: Sequence[tuple[SpotLife, bool]]) -> list[AgeGroup]:
    """Lives, each with whether it goes on, by the age at which they stopped being seen."""
    groups = []
    ends = (*_AGES_H[1:], None)
    for from_h, to_h in zip(_AGES_H, ends, strict=True):
        inside = [
            (life, goes_on)
            for life, goes_on in lives
            if life.age_s >= from_h * S_PER_HOUR
            and (to_h is None or life.age_s < to_h * S_PER_HOUR)
        ]
        groups.append(
            AgeGroup(
                from_h=from_h,
                to_h=to_h,
                reached=sum(life.age_s >= from_h * S_PER_HOUR for life, _ in lives),
                lost=sum(life.lost for life, _ in inside),
                ended=sum(not life.lost and not goes_on for life, goes_on in inside),
                alive=sum(goes_on for _, goes_on in inside),
            )
        )
    return [group for group in groups if group.reached]


def losses_of(state: PageState, offering_id: str, tenant: str = "") -> list[Loss]:
    """The losses on an offering, oldest first."""
    return [
        loss
        for loss in state.market.losses
        if loss.offering_id == offering_id and tenant in ("", loss.tenant)
    ]


def refusals_of(state: PageState, offering_id: str, tenant: str = "") -> list[RefusedLaunch]:
    """The refusals on an offering, oldest first."""
    return [
        refusal
        for refusal in state.market.refusals
        if refusal.offering_id == offering_id and tenant in ("", refusal.tenant)
    ]

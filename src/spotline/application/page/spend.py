"""What was spent, by whom and on what: sums over charges, exact to the micro-dollar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from spotline.application.market_view import MarketFold
from spotline.application.operations.messages import SpendUse
from spotline.application.page.money import BilledCharge, MoneyChapter, SlotProgress
from spotline.application.page.state import PageState
from spotline.domain.limits.spending import SPANS_S
from spotline.domain.units import NS_PER_S, PPM, S_PER_HOUR, cost_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeFilter:
    """Which charges; empty and None: all. `first_slot` and `last_slot` are both inside."""

    tenant: str = ""
    job_id: str = ""
    offering_id: str = ""
    kind: str = ""
    first_slot: int | None = None
    last_slot: int | None = None
    unexplained: bool = False

    def takes(self, charge: BilledCharge) -> bool:
        """Whether a charge is one of them."""
        return (
            self.tenant in ("", charge.tenant)
            and self.job_id in ("", charge.job_id)
            and self.offering_id in ("", charge.offering_id)
            and self.kind in ("", charge.kind)
            and self.in_period(charge.slot)
            and not (self.unexplained and charge.explained)
        )

    def in_period(self, slot: int) -> bool:
        """Whether a slot is in the period that is asked for."""
        after = self.first_slot is None or slot >= self.first_slot
        return after and (self.last_slot is None or slot <= self.last_slot)


def chosen(money: MoneyChapter, wanted: ChargeFilter) -> list[BilledCharge]:
    """The charges that a filter takes, in the order of the log."""
    return [charge for charge in money.charges() if wanted.takes(charge)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendRow:
    """What was spent on one thing: its share of all, and what on-demand would have been there and then."""

    name: str
    cost_micro_usd: int
    share_ppm: int
    charges: int
    instance_hours: float
    on_demand_micro_usd: int


BY: Mapping[str, Callable[[BilledCharge], str]] = MappingProxyType(
    {
        "tenant": lambda charge: charge.tenant,
        "job": lambda charge: charge.job_id,
        "offering": lambda charge: charge.offering_id,
        "kind": lambda charge: charge.kind,
    }
)
"""By what spend can be told apart."""


def spend_by(charges: Iterable[BilledCharge], by: str) -> list[SpendRow]:
    """Sum charges by a name of `BY`: what cost most first, then by name."""
    key = BY[by]
    sums: dict[str, list[int]] = {}
    for charge in charges:
        sum_of = sums.setdefault(key(charge), [0, 0, 0, 0])
        sum_of[0] += charge.cost_micro_usd
        sum_of[1] += 1
        sum_of[2] += charge.instances * charge.held_s
        sum_of[3] += charge.on_demand_micro_usd
    total = sum(sum_of[0] for sum_of in sums.values())
    rows = [
        SpendRow(
            name=name,
            cost_micro_usd=cost,
            share_ppm=cost * PPM // total if total else 0,
            charges=count,
            instance_hours=held_s / S_PER_HOUR,
            on_demand_micro_usd=on_demand,
        )
        for name, (cost, count, held_s, on_demand) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.cost_micro_usd, row.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSpend:
    """What a job was charged in slots in which it made no progress."""

    job_id: str
    tenant: str
    cost_micro_usd: int
    slots: tuple[int, ...]


def failed_spend(
    charges: Iterable[BilledCharge], steps: Iterable[SlotProgress], closed: Mapping[str, int]
) -> list[FailedSpend]:
    """Instances that were paid for while their job made no progress, by job: the most first.

    A charge of a slot of which nobody has said yet how far the job came is none; one of a slot after
    the last of its job (`closed`, by job) is.
    """
    progress: dict[tuple[str, int], int] = {}
    for step in steps:
        key = step.job_id, step.slot
        progress[key] = progress.get(key, 0) + step.progress_ppm
    found: dict[tuple[str, str], dict[int, int]] = {}
    for charge in charges:
        came = progress.get((charge.job_id, charge.slot))
        if came is None and charge.slot > closed.get(charge.job_id, charge.slot):
            came = 0
        if charge.instances and came is not None and came <= 0:
            slots = found.setdefault((charge.job_id, charge.tenant), {})
            slots[charge.slot] = slots.get(charge.slot, 0) + charge.cost_micro_usd
    rows = [
        FailedSpend(
            job_id=job_id,
            tenant=tenant,
            cost_micro_usd=sum(slots.values()),
            slots=tuple(sorted(slots)),
        )
        for (job_id, tenant), slots in found.items()
        if any(slots.values())
    ]
    return sorted(rows, key=lambda row: (-row.cost_micro_usd, row.job_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReservation:
    """A reservation over a period: paid for whether it is used or not, and the part that was not.

    A savings plan is one, by its name, for all of its offerings; its hours are those that were used.
    """

    offering_id: str
    paid_micro_usd: int
    used_micro_usd: int
    paid_instance_hours: float
    used_instance_hours: float

    @property
    def idle_micro_usd(self) -> int:
        """What was paid for nothing."""
        return self.paid_micro_usd - self.used_micro_usd


def idle_reservations(
    charges: Iterable[BilledCharge], market: MarketFold, first_slot: int, last_slot: int
) -> list[IdleReservation]:
    """What reservations cost in slots `first_slot` to `last_slot`, and what of it was used.

    A reservation is paid for in the slots that it covers whole.
    """
    used_s: dict[str, int] = {}
    for charge in charges:
        if charge.kind == "reserved" and first_slot <= charge.slot <= last_slot:
            used = used_s.get(charge.offering_id, 0)
            used_s[charge.offering_id] = used + charge.instances * charge.held_s
    found = []
    plans: dict[str, IdleReservation] = {}
    for offering in market.offerings:
        reservation = offering.reservation
        if reservation is None:
            continue
        starts_ns = market.first_slot_start_ns + first_slot * market.slot_s * NS_PER_S
        covered = reservation.whole_slots(starts_ns, market.slot_s)
        slots = max(0, last_slot - first_slot + 1)
        slots = slots if covered is None else min(slots, covered)
        paid_s = reservation.instances * slots * market.slot_s
        used = min(used_s.get(offering.offering_id, 0), paid_s)
        price = reservation.sunk_price_micro_usd
        if reservation.plan:
            paid = cost_micro_usd(reservation.plan_micro_usd_per_hour, 1, slots * market.slot_s)
            plans[reservation.plan] = _of_plan(
                reservation.plan, plans.get(reservation.plan), paid, used, price
            )
            continue
        found.append(
            IdleReservation(
                offering_id=offering.offering_id,
                paid_micro_usd=cost_micro_usd(price, 1, paid_s),
                used_micro_usd=cost_micro_usd(price, 1, used),
                paid_instance_hours=paid_s / S_PER_HOUR,
                used_instance_hours=used / S_PER_HOUR,
            )
        )
    found += plans.values()
    return sorted(found, key=lambda row: (-row.idle_micro_usd, row.offering_id))


def _of_plan(
    plan: str, before: IdleReservation | None, paid: int, used_s: int, price: int
) -> IdleReservation:
    """A plan with what one more of its offerings used of its money, which it has once."""
    used, hours = cost_micro_usd(price, 1, used_s), used_s / S_PER_HOUR
    if before is not None:
        used, hours = used + before.used_micro_usd, hours + before.used_instance_hours
    return IdleReservation(
        offering_id=plan,
        paid_micro_usd=paid,
        used_micro_usd=min(used, paid),
        paid_instance_hours=hours,
        used_instance_hours=hours,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendForecast:
    """A use of a limit, and what it would be if spending went on as in the last hour.

    `expected_micro_usd` is what will have been spent in a span that ends one hour, day or month from
    now at the rate of the last hour; `full_in_s` is when the limit is used up at that rate, None
    where it is not, 0 where it is.
    """

    use: SpendUse
    used_ppm: int
    expected_micro_usd: int
    full_in_s: int | None


def spend_forecasts(uses: Sequence[SpendUse]) -> list[SpendForecast]:
    """Every use with what it would come to at the rate of the last hour.

    Nothing falls out of the span in this reckoning, so that it is rather too much than too little.
    """
    rates = {(use.what, use.tenant): use.used_micro_usd for use in uses if use.span == "hour"}
    found = []
    for use in uses:
        rate = rates.get((use.what, use.tenant), 0)
        expected = rate * SPANS_S[use.span] // S_PER_HOUR
        limit = use.limit_micro_usd
        full_in_s = None
        if limit is not None:
            left = max(0, limit - use.used_micro_usd)
            if not left:
                full_in_s = 0
            elif expected > limit:
                full_in_s = left * S_PER_HOUR // rate
        found.append(
            SpendForecast(
                use=use,
                used_ppm=use.used_micro_usd * PPM // limit if limit else 0,
                expected_micro_usd=expected,
                full_in_s=full_in_s,
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Cumulated:
    """Spend and what the work done is worth at the on-demand quotes, summed to the end of a slot."""

    slot: int
    spent_micro_usd: int
    on_demand_micro_usd: int


def cumulated(
    charges: Iterable[BilledCharge], steps: Iterable[SlotProgress], *, most: int = 400
) -> list[Cumulated]:
    """Sums by slot, thinned to at most so many points; the last is always there."""
    spent: dict[int, int] = {}
    worth: dict[int, int] = {}
    for charge in charges:
        spent[charge.slot] = spent.get(charge.slot, 0) + charge.cost_micro_usd
    for step in steps:
        worth[step.slot] = worth.get(step.slot, 0) + step.worth_micro_usd
    points = []
    total = done = 0
    for slot in sorted(spent.keys() | worth.keys()):
        total += spent.get(slot, 0)
        done += worth.get(slot, 0)
        points.append(Cumulated(slot=slot, spent_micro_usd=total, on_demand_micro_usd=done))
    every = -(-len(points) // most) or 1
    return [point for at, point in enumerate(points) if (len(points) - 1 - at) % every == 0]


def steps_of(state: PageState, wanted: ChargeFilter) -> list[SlotProgress]:
    """How far the jobs of a filter came in its period; of an offering or a kind alone nothing can be said."""
    tenants = {}
    if wanted.tenant:
        tenants = {job_id: status.job.tenant for job_id, status in state.jobs.statuses.items()}
    return [
        step
        for step in state.money.all_steps()
        if wanted.in_period(step.slot)
        and wanted.job_id in ("", step.job_id)
        and (not wanted.tenant or tenants.get(step.job_id) == wanted.tenant)
    ]

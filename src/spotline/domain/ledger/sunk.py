"""Who used how much of what is paid for anyway: the sunk cost of reservations, beside the bills."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from spotline.domain.events.capacity import CapacityReported, CostAccrued
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.market.offering import Offering
from spotline.domain.units import cost_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class SunkShare:
    """What one job used of a reservation, and the part of its sunk cost that this is."""

    tenant: str
    job_id: str
    instance_s: int
    sunk_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationUse:
    """A reservation over the slots that are settled: paid for, used (`shares`), and the idle rest.

    `paid_instance_s` counts slots that it covers whole. Shares are by tenant and job. Of a savings
    plan, `plan`, each offering has the money that its own instances used; what nobody used is told with
    the first of them.
    """

    offering_id: str
    paid_instance_s: int
    paid_micro_usd: int
    shares: tuple[SunkShare, ...]
    plan: str = ""

    @property
    def used_instance_s(self) -> int:
        """What all jobs used together."""
        return sum(share.instance_s for share in self.shares)

    @property
    def idle_micro_usd(self) -> int:
        """What was paid for nothing."""
        return self.paid_micro_usd - sum(share.sunk_micro_usd for share in self.shares)


@dataclass(slots=True, kw_only=True)
class _Known:
    reserved: dict[str, Offering] = field(default_factory=dict)
    open: dict[int, SlotOpened] = field(default_factory=dict)
    paid_s: dict[str, int] = field(default_factory=dict)
    used_s: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    plan_s: dict[str, int] = field(default_factory=dict)


def reservations_used(events: Iterable[Event]) -> tuple[ReservationUse, ...]:
    """Fold a log, in order, into how its reservations were used; by offering id."""
    known = _Known()
    for event in events:
        match event:
            case MarketOpened():
                known.reserved = {o.offering_id: o for o in event.offerings if o.reservation}
            case SlotOpened():
                known.open[event.slot] = event
            case CapacityReported() if event.settled and event.slot in known.open:
                _pay(known, known.open.pop(event.slot))
            case CostAccrued() if event.offering_id in known.reserved:
                used = known.used_s.setdefault(event.offering_id, {})
                whose = (event.tenant, event.job_id)
                used[whose] = used.get(whose, 0) + event.instances * event.held_s
            case _:
                pass
    uses = [_use(known, known.reserved[name]) for name in sorted(known.reserved)]
    return tuple(_with_what_plans_paid(known, uses))


def _with_what_plans_paid(
    known: _Known, uses: Sequence[ReservationUse]
) -> Iterator[ReservationUse]:
    """The uses, those of a plan's offerings with what it paid: once, however many there are."""
    told: set[str] = set()
    for use in uses:
        if not use.plan:
            yield use
            continue
        own = sum(share.sunk_micro_usd for share in use.shares)
        rest = 0
        if use.plan not in told:
            told.add(use.plan)
            hourly = max(
                each.reservation.plan_micro_usd_per_hour
                for each in known.reserved.values()
                if each.reservation is not None and each.reservation.plan == use.plan
            )
            paid = cost_micro_usd(hourly, 1, known.plan_s.get(use.plan, 0))
            used = sum(
                share.sunk_micro_usd
                for each in uses
                if each.plan == use.plan
                for share in each.shares
            )
            rest = max(0, paid - used)
        yield replace(use, paid_instance_s=use.used_instance_s, paid_micro_usd=own + rest)


def _pay(known: _Known, opened: SlotOpened) -> None:
    plans: set[str] = set()
    for quoted in opened.quotes:
        offering_id = quoted.quote.offering_id
        if offering_id in known.reserved:
            reservation = known.reserved[offering_id].reservation
            if reservation is not None and quoted.quote.on_demand_available.instances:
                plans.add(reservation.plan)
            paid_s = quoted.quote.on_demand_available.instances * opened.slot_s
            known.paid_s[offering_id] = known.paid_s.get(offering_id, 0) + paid_s
    for plan in sorted(plans - {""}):
        known.plan_s[plan] = known.plan_s.get(plan, 0) + opened.slot_s


def _use(known: _Known, offering: Offering) -> ReservationUse:
    price = 0 if offering.reservation is None else offering.reservation.sunk_price_micro_usd
    used = known.used_s.get(offering.offering_id, {})
    paid_s = known.paid_s.get(offering.offering_id, 0)
    return ReservationUse(
        plan="" if offering.reservation is None else offering.reservation.plan,
        offering_id=offering.offering_id,
        paid_instance_s=paid_s,
        paid_micro_usd=cost_micro_usd(price, 1, paid_s),
        shares=tuple(
            SunkShare(
                tenant=tenant,
                job_id=job_id,
                instance_s=instance_s,
                sunk_micro_usd=cost_micro_usd(price, 1, instance_s),
            )
            for (tenant, job_id), instance_s in sorted(used.items())
        ),
    )

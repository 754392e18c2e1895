"""A log's charges as rows of FOCUS 1.2, each with the decision and the command behind it.

A row is a charge of the settled ledger: a lot of instances over part of a slot, or a copy of a
checkpoint. What of a reservation or savings plan nobody used is a row of its own, one for each month.

`BilledCost` adds up to the settled ledger, to the micro-dollar. `EffectiveCost` adds what reservations
and savings plans cost anyway, by use and unused: where there are none, both are the same. `ListCost`
is what on-demand would have cost for the same instances, there and then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.focus.columns import COLUMNS
from spotline.application.page.applied import Applied
from spotline.application.page.money import BilledCharge, MoneyChapter
from spotline.application.tenancy import check_tenant
from spotline.application.unfit import Unfit
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported, ProvisioningCommanded
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import PipelineProvisioningCommanded
from spotline.domain.market.offering import Offering
from spotline.domain.units import NS_PER_S, S_PER_HOUR, cost_micro_usd, utc_iso, utc_month

FocusRow = dict[str, str]
"""Cells by column; an empty one is null."""

_MICRO = Decimal(1_000_000)
_HOURS, _TRANSFERS = "Hours", "Transfers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Charges whose slot opens in it: from `from_ns` on, before `to_ns`; None: without end there."""

    from_ns: int | None = None
    to_ns: int | None = None

    def has(self, at_ns: int) -> bool:
        """Whether a time lies in it."""
        after = self.from_ns is None or at_ns >= self.from_ns
        return after and (self.to_ns is None or at_ns < self.to_ns)


@dataclass(slots=True, kw_only=True)
class FocusTotals:
    """Sums over the rows, micro-USD; `unexplained` counts charges that no decision stands behind.

    `parked` are events that services refused to take, and which are left out here as well.
    """

    rows: int = 0
    billed_micro_usd: int = 0
    effective_micro_usd: int = 0
    listed_micro_usd: int = 0
    unexplained: int = 0
    unexplained_micro_usd: int = 0
    parked: int = 0


@dataclass(slots=True, kw_only=True)
class _Commitment:
    """What a reservation or plan was paid for and used in one month."""

    month: str
    offering: Offering
    first_ns: int
    end_ns: int
    paid_micro_usd: int = 0
    used_micro_usd: int = 0
    paid_s: int = 0
    used_s: int = 0


@dataclass(slots=True, kw_only=True)
class FocusLedger:
    """Folds a log, event by event, and yields the rows of its charges as they come.

    Parameters
    ----------
    period
        Of which charges rows are wanted; the others are folded all the same.
    """

    period: Period = field(default_factory=Period)
    totals: FocusTotals = field(default_factory=FocusTotals)
    _jobs: JobsState = field(default_factory=JobsState)
    _money: MoneyChapter = field(default_factory=MoneyChapter)
    _offerings: dict[str, Offering] = field(default_factory=dict)
    _open: dict[int, SlotOpened] = field(default_factory=dict)
    _policy: dict[str, str] = field(default_factory=dict)
    _decisions: dict[tuple[str, int], dict[int, str]] = field(default_factory=dict)
    _commands: dict[tuple[str, str, int, int], str] = field(default_factory=dict)
    _commitments: dict[tuple[str, str], _Commitment] = field(default_factory=dict)

    def fold(self, told: Applied) -> Iterator[FocusRow]:
        """Apply an event; the rows of what it charges."""
        event = told.event
        try:
            check_tenant(event, self._jobs.tenant_of)
            self._jobs.fold(event)
        except Unfit:
            self.totals.parked += 1
            return
        opened = self._jobs.recent.opened
        self._money.fold(replace(told, slot=-1 if opened is None else opened.slot), self._jobs)
        match event:
            case MarketOpened():
                self._offerings = {offer.offering_id: offer for offer in event.offerings}
            case SlotOpened():
                self._open[event.slot] = event
            case CapacityReported() if event.settled and event.slot in self._open:
                self._pay(self._open.pop(event.slot))
            case AllocationDecided():
                self._policy[event.job_id] = event.policy_id
                revisions = self._decisions.setdefault((event.job_id, event.slot), {})
                revisions[event.revision] = told.event_id
            case ProvisioningCommanded():
                key = event.job_id, event.target.offering_id, event.slot, event.revision
                self._commands[key] = event.command_id
            case PipelineProvisioningCommanded():
                slot = -1 if opened is None else opened.slot
                key = event.job_id, event.target.offering_id, slot, 0
                self._commands[key] = event.command_id
            case _:
                pass
        for charge in self._money.taken():
            if self.period.has(self._start_ns(charge.slot)):
                yield self._row(charge)

    def unused(self) -> Iterator[FocusRow]:
        """Rows of what was paid for and not used, after all events."""
        for key in sorted(self._commitments):
            held = self._commitments[key]
            left = held.paid_micro_usd - held.used_micro_usd
            if left <= 0:
                continue
            cost = _usd(left)
            hours = max(0, held.paid_s - held.used_s)
            row = self._blank(held.offering, held.first_ns, held.end_ns) | {
                "ChargeDescription": f"{key[0]}: paid for and not used in {held.month}",
                "ChargeFrequency": "Recurring",
                "PricingCategory": "Committed",
                "ContractedCost": cost,
                "EffectiveCost": cost,
                "ListCost": cost,
                "BilledCost": _usd(0),
                "PricingQuantity": _hours(hours),
                "PricingUnit": _HOURS,
                "x_OfferingId": "" if held.offering.offering_id != key[0] else key[0],
                **_commitment_cells(held.offering, "Unused", hours),
            }
            self._count(row, effective=left, listed=left)
            yield row

    # --- one charge -----------------------------------------------------------------------------

    def _row(self, charge: BilledCharge) -> FocusRow:
        offering = self._offerings[charge.offering_id]
        start_ns = self._start_ns(charge.slot)
        row = self._blank(offering, start_ns, start_ns + self._slot_ns)
        sunk = self._used(charge, offering)
        effective = charge.cost_micro_usd + sunk
        row |= {
            "BilledCost": _usd(charge.cost_micro_usd),
            "EffectiveCost": _usd(effective),
            "ContractedCost": _usd(effective),
            "ListCost": _usd(charge.on_demand_micro_usd),
            "x_JobId": charge.job_id,
            "x_Tenant": charge.tenant,
            "x_OfferingId": charge.offering_id,
            "x_Slot": str(charge.slot),
            "x_Instances": str(charge.instances),
            "x_HeldSeconds": str(charge.held_s),
            "x_Estimated": "true" if charge.estimated else "false",
            "x_LogEntry": str(charge.seq),
            "Tags": _tags(
                job=charge.job_id, tenant=charge.tenant, policy=self._policy.get(charge.job_id, "")
            ),
        }
        row |= self._copy(charge) if not charge.instances else self._held(charge, offering, sunk)
        row |= self._causes(charge)
        if not charge.explained:
            self.totals.unexplained += 1
            self.totals.unexplained_micro_usd += charge.cost_micro_usd
        self._count(
            row,
            billed=charge.cost_micro_usd,
            effective=effective,
            listed=charge.on_demand_micro_usd,
        )
        return row

    def _held(self, charge: BilledCharge, offering: Offering, sunk: int) -> FocusRow:
        """Cells of instances that were held."""
        instance_s = charge.instances * charge.held_s
        hours = _hours(instance_s)
        bought = {"spot": "spot", "on_demand": "on-demand", "reserved": "reserved"}[charge.kind]
        category = {"spot": "Dynamic", "on_demand": "Standard", "reserved": "Committed"}
        price = charge.price_micro_usd
        if charge.kind == "reserved" and offering.reservation is not None:
            price += offering.reservation.sunk_price_micro_usd
        listed = self._list_price(charge)
        cells = {
            "ChargeDescription": f"{offering.instance_type}, {bought}, {offering.region}, instance-hours",
            "ChargeFrequency": "Usage-Based",
            "PricingCategory": category[charge.kind],
            "PricingQuantity": hours,
            "PricingUnit": _HOURS,
            "ConsumedQuantity": hours,
            "ConsumedUnit": _HOURS,
            "ContractedUnitPrice": _usd(price),
            "ListUnitPrice": _usd(listed),
        }
        if charge.kind == "reserved":
            cells |= _commitment_cells(offering, "Used", instance_s)
        return cells

    def _copy(self, charge: BilledCharge) -> FocusRow:
        """Cells of a checkpoint that was copied to another region."""
        cost = _usd(charge.cost_micro_usd)
        return {
            "ChargeDescription": "copy of a checkpoint to another region, egress",
            "ChargeFrequency": "Usage-Based",
            "PricingCategory": "Standard",
            "PricingQuantity": "1",
            "PricingUnit": _TRANSFERS,
            "ConsumedQuantity": "1",
            "ConsumedUnit": _TRANSFERS,
            "ContractedUnitPrice": cost,
            "ListUnitPrice": cost,
            "ServiceCategory": "Networking",
            "ServiceName": "Data transfer",
            "ServiceSubcategory": "Other (Networking)",
            "ResourceType": "Transfer",
        }

    def _causes(self, charge: BilledCharge) -> FocusRow:
        """The command and the decision that a charge follows from."""
        slot, revision = charge.command_slot, charge.command_revision
        key = charge.job_id, charge.offering_id, slot, revision
        cells = {"x_CommandId": self._commands.get(key, "")}
        if not charge.decided:
            return cells
        decided = self._decisions.get((charge.job_id, slot), {})
        # A command goes by the last decision of its slot that is not later than itself.
        behind = max((each for each in decided if each <= revision), default=None)
        if behind is None:
            return cells
        return cells | {
            "x_DecisionId": decided[behind],
            "x_DecisionSlot": str(slot),
            "x_DecisionRevision": str(behind),
        }

    def _list_price(self, charge: BilledCharge) -> int:
        """What an instance-hour on on-demand was then, micro-USD."""
        instance_s = charge.instances * charge.held_s
        if not instance_s:
            return charge.price_micro_usd
        return charge.on_demand_micro_usd * S_PER_HOUR // instance_s

    # --- what is paid for anyway ----------------------------------------------------------------

    def _pay(self, opened: SlotOpened) -> None:
        """Note what reservations cost in a slot that is over, used or not."""
        start_ns = self._start_ns(opened.slot)
        if not self.period.has(start_ns):
            return
        plans: set[str] = set()
        for quoted in opened.quotes:
            offering = self._offerings.get(quoted.quote.offering_id)
            reservation = None if offering is None else offering.reservation
            instances = quoted.quote.on_demand_available.instances
            if offering is None or reservation is None or not instances:
                continue
            held = self._commitment(offering, opened.slot)
            if not reservation.plan:
                held.paid_s += instances * opened.slot_s
                held.paid_micro_usd = cost_micro_usd(
                    reservation.sunk_price_micro_usd, 1, held.paid_s
                )
            elif reservation.plan not in plans:
                plans.add(reservation.plan)
                held.paid_s += opened.slot_s
                held.paid_micro_usd = cost_micro_usd(
                    reservation.plan_micro_usd_per_hour, 1, held.paid_s
                )

    def _used(self, charge: BilledCharge, offering: Offering) -> int:
        """The part of what is paid anyway that a charge used, micro-USD."""
        if charge.kind != "reserved" or offering.reservation is None:
            return 0
        held = self._commitment(offering, charge.slot)
        price = offering.reservation.sunk_price_micro_usd
        sunk = cost_micro_usd(price, charge.instances, charge.held_s)
        held.used_micro_usd += sunk
        held.used_s += charge.instances * charge.held_s
        return sunk

    def _commitment(self, offering: Offering, slot: int) -> _Commitment:
        reservation = offering.reservation
        name = (reservation.plan if reservation is not None else "") or offering.offering_id
        start_ns = self._start_ns(slot)
        month = utc_iso(start_ns)[:7]
        held = self._commitments.get((name, month))
        if held is None:
            held = _Commitment(
                month=month, offering=offering, first_ns=start_ns, end_ns=start_ns + self._slot_ns
            )
            self._commitments[name, month] = held
        held.first_ns = min(held.first_ns, start_ns)
        held.end_ns = max(held.end_ns, start_ns + self._slot_ns)
        return held

    # --- common cells ---------------------------------------------------------------------------

    @property
    def _slot_ns(self) -> int:
        return self._jobs.recent.slot_s * NS_PER_S

    def _start_ns(self, slot: int) -> int:
        return self._jobs.recent.first_slot_start_ns + slot * self._slot_ns

    def _blank(self, offering: Offering, start_ns: int, end_ns: int) -> FocusRow:
        """A row with what is the same for all charges of an offering in a period."""
        account = offering.account or offering.provider
        month_start, month_end = map(utc_iso, utc_month(start_ns))
        return dict.fromkeys(COLUMNS, "") | {
            "AvailabilityZone": offering.zone,
            "BillingAccountId": account,
            "BillingAccountName": account,
            "BillingCurrency": "USD",
            "BillingPeriodStart": month_start,
            "BillingPeriodEnd": month_end,
            "ChargeCategory": "Usage",
            "ChargePeriodStart": utc_iso(start_ns),
            "ChargePeriodEnd": utc_iso(end_ns),
            "InvoiceIssuerName": offering.provider,
            "ProviderName": offering.provider,
            "PublisherName": offering.provider,
            "RegionId": offering.region,
            "RegionName": offering.region,
            "ResourceName": offering.offering_id,
            "ResourceType": "Instance",
            "ServiceCategory": "Compute",
            "ServiceName": "GPU instances",
            "ServiceSubcategory": "Virtual Machines",
        }

    def _count(self, row: FocusRow, *, effective: int, listed: int, billed: int = 0) -> None:
        self.totals.rows += 1
        self.totals.billed_micro_usd += billed
        self.totals.effective_micro_usd += effective
        self.totals.listed_micro_usd += listed


def _commitment_cells(offering: Offering, status: str, instance_s: int) -> Mapping[str, str]:
    reservation = offering.reservation
    if reservation is not None and reservation.plan:
        return {
            "CommitmentDiscountCategory": "Spend",
            "CommitmentDiscountId": reservation.plan,
            "CommitmentDiscountName": reservation.plan,
            "CommitmentDiscountQuantity": _hours(instance_s),
            "CommitmentDiscountStatus": status,
            "CommitmentDiscountType": "Savings plan",
            "CommitmentDiscountUnit": _HOURS,
        }
    return {
        "CapacityReservationId": offering.offering_id,
        "CapacityReservationStatus": status,
    }


def _usd(micro_usd: int) -> str:
    return f"{Decimal(micro_usd) / _MICRO:.6f}"


def _hours(instance_s: int) -> str:
    return f"{Decimal(instance_s) / S_PER_HOUR:.9f}"


def _tags(**values: str) -> str:
    return json.dumps({name: value for name, value in values.items() if value}, sort_keys=True)

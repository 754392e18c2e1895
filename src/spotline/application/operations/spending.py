"""What is spent against limits, as people are shown it: the numbers that the selector is held to.

They are the ledger's bills, and of slots that are not billed yet what the selector said that its
jobs cost in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from spotline.application.market_view import ClockReading
from spotline.application.operations.messages import LimitsInForce, QuotaUse, SpendUse
from spotline.application.selector.limits_set import options_in_force
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.capacity import CapacityReported, CostAccrued
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed, JobUpdated
from spotline.domain.events.limits import LimitAction, LimitReached, LimitSet
from spotline.domain.events.market import SlotOpened
from spotline.domain.limits.judgement import FORWARD
from spotline.domain.limits.raised import LimitAt
from spotline.domain.limits.spend_book import SpendBook, by_capacity_type
from spotline.domain.limits.spending import NO_LIMIT, SPANS_S, SpendLimit
from spotline.domain.market.offering import CapacityType, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.remembered import BySelf

SPENDING_EVENTS = (
    *(SlotOpened, CostAccrued, JobAdvanced, CapacityReported),
    *(LimitReached, LimitSet, JobUpdated, JobClosed),
)
"""All that the fold takes."""
_TAKEN = frozenset(SPENDING_EVENTS)

# Bills of short slots are kept together: a month of slots of a second would be millions of them.
_BUCKET_S = 300


@dataclass(slots=True)
class SpendingState:
    """What was spent in the last month of market time, and the jobs that are at a limit.

    `spend` is by bucket of slots, `at_limit` the last that was said of a limit that a job has
    reached, by job, `limits_set` what people have set in the place of stated limits, `quotes` those
    of the open slot and of the last one.
    """

    slot: int = -1
    slot_s: int = 0
    spend: SpendBook = field(default_factory=SpendBook)
    quotes: dict[int, tuple[SlotQuote, ...]] = field(default_factory=dict)
    at_limit: dict[str, LimitReached] = field(default_factory=dict)
    limits_set: dict[LimitAt, LimitSet] = field(default_factory=dict)

    def fold(self, event: Event) -> None:
        """Apply an event; nothing else changes it."""
        if type(event) not in _TAKEN:
            return
        match event:
            case SlotOpened():
                last = self.quotes.get(self.slot)
                self.quotes = {} if last is None else {self.slot: last}
                self.quotes[event.slot] = event.quotes
                self.slot, self.slot_s = max(self.slot, event.slot), event.slot_s
                self.spend.forget(self._bucket(self._first_slot(max(SPANS_S.values()))))
            case CostAccrued() if self.slot_s:
                spender = event.tenant, event.capacity_type
                self.spend.bill(self._bucket(event.slot), spender, event.cost_micro_usd)
            case JobAdvanced() if self.slot_s:
                self._reckon(event)
            case CapacityReported() if self.slot_s:
                self.spend.settle(self._bucket(event.slot))
            case LimitReached():
                lifted = event.limit == FORWARD and event.action is LimitAction.FINISH
                if lifted:
                    self.at_limit.pop(event.job_id, None)
                else:
                    self.at_limit[event.job_id] = event
            case LimitSet():
                self.limits_set[event.at] = event
            case JobUpdated() | JobClosed():
                # Its owner has changed it, so that it is judged anew, or it is over.
                self.at_limit.pop(event.job_id, None)
            case _:
                pass

    def spent_in(self, span_s: int) -> Mapping[tuple[str, CapacityType], int]:
        """What was spent in a time that ends with the open slot, by tenant and capacity type.

        A time that begins inside a slot, or among slots that are kept together, begins with them.
        """
        return self.spend.spent_since(self._bucket(self._first_slot(span_s))) if self.slot_s else {}

    def unsettled_in(self, span_s: int) -> Mapping[tuple[str, CapacityType], int]:
        """What of that the selector has reckoned, and is not billed yet."""
        first = self._first_slot(span_s) if self.slot_s else 0
        return self.spend.unsettled_since(self._bucket(first)) if self.slot_s else {}

    def _reckon(self, event: JobAdvanced) -> None:
        quotes = _quotes.of(self.quotes.get(event.slot, ()))
        for kind, cost in by_capacity_type(event.slot_cost_micro_usd, event.lots, quotes):
            self.spend.reckon(self._bucket(event.slot), (event.tenant, kind), cost)

    def _first_slot(self, span_s: int) -> int:
        return self.slot - max(0, -(-span_s // self.slot_s) - 1)

    def _bucket(self, slot: int) -> int:
        return slot // max(1, _BUCKET_S // self.slot_s)


def _by_offering(quotes: tuple[SlotQuote, ...]) -> Mapping[str, Quote]:
    return {quoted.quote.offering_id: quoted.quote for quoted in quotes}


# All jobs of a slot are reckoned at the same quotes.
_quotes = BySelf(_by_offering, 4)


def limits_in_force(
    state: SpendingState,
    options: SelectorOptions,
    clock: ClockReading | None,
    held: Mapping[str, int],
) -> LimitsInForce:
    """The limits that a selector with such options holds to, and what is used of them.

    `held` are the instances of each quota pool.
    """
    options = options_in_force(options, state.limits_set)
    spending = options.limits_on_spending
    return LimitsInForce(
        jobs_judged=options.limits,
        uses=tuple(_uses(state, options)),
        least_spot_discount_ppm=spending.least_spot_discount_ppm,
        launches_per_minute=spending.launches_per_minute,
        jobs=tuple(state.at_limit[job_id] for job_id in sorted(state.at_limit)),
        quotas=tuple(
            QuotaUse(quota_pool=pool, held_instances=held.get(pool, 0), most_instances=most)
            for pool, most in sorted(spending.quotas.items())
        ),
        clock=clock,
        micro_usd_per_job=spending.micro_usd_per_job,
        stated=spending.stated() if options.spending else (),
    )


def room_again_s(state: SpendingState, use: SpendUse) -> int | None:
    """Seconds until less than a limit is used, if nothing more is spent; None: it has no such time.

    What was spent leaves the time that a limit is about slot by slot, or bucket by bucket.
    """
    if use.limit_micro_usd is None or not state.slot_s or use.span not in SPANS_S:
        return None
    kinds = {
        kind for kind in CapacityType if use.what not in _OF_KIND or _OF_KIND[use.what] is kind
    }

    def used(shift: int) -> int:
        return sum(
            cost
            for (tenant, kind), cost in state.spent_in(
                SPANS_S[use.span] - shift * state.slot_s
            ).items()
            if kind in kinds and use.tenant in ("", tenant)
        )

    slots = SPANS_S[use.span] // state.slot_s
    low, high = 0, slots
    while low < high:
        middle = (low + high) // 2
        if used(middle) < use.limit_micro_usd:
            high = middle
        else:
            low = middle + 1
    return low * state.slot_s if used(low) < use.limit_micro_usd else slots * state.slot_s


_OF_KIND = {"spot": CapacityType.SPOT, "on-demand": CapacityType.ON_DEMAND}


def _uses(state: SpendingState, options: SelectorOptions) -> Iterator[SpendUse]:
    spending = options.limits_on_spending
    spent = {span_s: state.spent_in(span_s) for span_s in SPANS_S.values()}
    unsettled = {span_s: state.unsettled_in(span_s) for span_s in SPANS_S.values()}
    seen = {tenant for costs in spent.values() for tenant, _ in costs}

    def uses(
        what: str, limit: SpendLimit, *, tenant: str = "", kind: CapacityType | None = None
    ) -> Iterator[SpendUse]:
        most = {span_s: micro_usd for _, span_s, micro_usd in limit.each()}

        def of(costs: Mapping[tuple[str, CapacityType], int]) -> int:
            return sum(
                cost
                for (whose, of_kind), cost in costs.items()
                if whose == (tenant or whose) and of_kind is (kind or of_kind)
            )

        for span, span_s in SPANS_S.items():
            yield SpendUse(
                what=what,
                tenant=tenant,
                span=span,
                used_micro_usd=of(spent[span_s]),
                unsettled_micro_usd=of(unsettled[span_s]),
                limit_micro_usd=most.get(span_s),
            )

    yield from uses("total", spending.total)
    yield from uses("spot", spending.spot, kind=CapacityType.SPOT)
    yield from uses("on-demand", spending.on_demand, kind=CapacityType.ON_DEMAND)
    for tenant in sorted(seen | spending.tenants.keys()):
        yield from uses(
            "tenant", spending.tenants.get(tenant, spending.every_tenant), tenant=tenant
        )
    if spending.every_tenant != NO_LIMIT:
        for span, _, micro_usd in spending.every_tenant.each():
            yield SpendUse(
                what="every other tenant", span=span, used_micro_usd=0, limit_micro_usd=micro_usd
            )

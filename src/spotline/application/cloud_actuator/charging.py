"""Which slots are charged as another opens; and charges that are recorded once, however often."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.application.cloud_actuator.ports import Ledger
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.market import SlotOpened
from spotline.domain.ledger.billing import Charge, SlotPrices, bill


def resumed_behind(before: SlotOpened | None, resumed_slot: int, begun: IncarnationBegun) -> int:
    """The last slot that was open in a part of the log that is lost; -1 for none.

    Parameters
    ----------
    before
        The slot that opened last in the log as it is.
    resumed_slot
        What was known of that before.
    """
    known = -1 if before is None else before.slot
    return max(resumed_slot, begun.last_slot_before if begun.last_slot_before > known else -1)


def charged_by(before: SlotOpened | None, resumed_slot: int, opened: SlotOpened) -> range:
    """The slots whose instances are charged as another opens; parameters as of `resumed_behind`.

    What the lost part of a log charged is charged. A market that skips slots has all of them
    charged: what is held goes on costing.
    """
    if resumed_slot >= 0:
        return range(resumed_slot, opened.slot)
    if before is None or before.last:
        return range(0)
    return range(before.slot, opened.slot)


async def billed(ledger: Ledger, prices: SlotPrices) -> tuple[Charge, ...]:
    """What was held in a slot, at its prices."""
    return bill(await ledger.intervals(prices.slot, prices.slot_s), prices)


async def unless_charged(
    ledger: Ledger, charges: Sequence[Charge]
) -> tuple[Sequence[Charge], Sequence[Charge]]:
    """Those that the ledger does not hold yet, and all of them as it holds them.

    A log that was cut opens slots again that were billed before: they are told again, and not
    charged.
    """
    if not charges:
        return (), ()
    first = min(charge.cost.slot for charge in charges)
    known = {_charged_for(one): one for one in await ledger.charges_since(first)}
    fresh = [charge for charge in charges if _charged_for(charge) not in known]
    return fresh, [known.get(_charged_for(charge), charge) for charge in charges]


def _charged_for(charge: Charge) -> tuple[int, str, str, str, int]:
    """What there is one charge for."""
    cost = charge.cost
    kind = cost.capacity_type.value
    return cost.slot, cost.job_id, cost.offering_id, kind, charge.start_s

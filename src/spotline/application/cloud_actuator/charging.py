"""Charges that are recorded once, however often their slot is opened."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.application.cloud_actuator.ports import Ledger
from spotline.domain.ledger.billing import Charge


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

"""What ended while nobody was there: slots went by that no actuator opened.

An instance that the cloud saw end is charged until then. Of one that is gone and nobody saw end it
is known that its lease ended at the latest: its agent ends it when the control plane is gone for so
long. That charge is estimated. What still runs is charged for the whole time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.messages import Moment, OpenSlotRequest
from spotline.application.cloud_actuator.ports import Ledger, LedgerEnd, LedgerEntry
from spotline.application.cloud_actuator.reconciling import CloudNews
from spotline.domain.ledger.billing import Charge
from spotline.domain.ledger.intents import HeldInstance
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

UNATTENDED = "ended while nobody was there"

_Lot = tuple[str, str, CapacityType]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattended:
    """What ended in slots that nobody opened; `estimated` are lots of which nobody saw the end."""

    lost: tuple[HeldInstance, ...] = ()
    estimated: frozenset[_Lot] = frozenset()

    def marked(self, charge: Charge) -> Charge:
        """The charge, estimated where one of its instances was not seen to end."""
        cost = charge.cost
        if (cost.job_id, cost.offering_id, cost.capacity_type) not in self.estimated:
            return charge
        return replace(charge, cost=replace(cost, estimated=True))


NOBODY_AWAY = Unattended()


def went_by(request: OpenSlotRequest) -> bool:
    """Whether slots went by between the last one that was opened and this one."""
    return len(request.unbilled) > 1


async def end_unattended(
    ledger: Ledger,
    request: OpenSlotRequest,
    lives: LivesInHand,
    held: Sequence[HeldInstance],
    told: CloudNews,
    gone: Collection[str],
    lease_s: int | None,
) -> Unattended:
    """End in the ledger what ended meanwhile, when it did: before it is billed.

    Parameters
    ----------
    gone
        Held instances that are over, those among them that the cloud tells the end of.
    lease_s
        Seconds of market time that an instance goes on alone; None: without end, so that one that
        nobody saw end is charged until now.
    """
    if not went_by(request):
        return NOBODY_AWAY
    at, first = request.at, request.unbilled[0].slot
    slot_ns = at.slot_s * NS_PER_S
    left_ns = at.ts_ns - (at.slot - first - 1) * slot_ns
    over_ns = at.ts_ns if lease_s is None else min(at.ts_ns, left_ns + lease_s * NS_PER_S)
    ends, lost, estimated = [], [], []
    for instance in held:
        instance_id = instance.instance_id
        seen_ns = told.ended_ns.get(instance_id)
        if seen_ns is None and instance_id not in gone:
            continue
        end_ns = over_ns if seen_ns is None else seen_ns
        if end_ns >= at.ts_ns:
            continue
        ends.append(_end(instance_id, end_ns, at, first))
        lost.append(instance)
        if seen_ns is None:
            estimated.append((instance.job_id, instance.offering_id, instance.capacity_type))
    if ends:
        await ledger.record(LedgerEntry(slot=at.slot, ended=tuple(ends), transitions=lives.drain()))
    return Unattended(lost=tuple(lost), estimated=frozenset(estimated))


def _end(instance_id: str, end_ns: int, at: Moment, first: int) -> LedgerEnd:
    """An end on the grid of slots, not before the first that is not billed."""
    slot_ns = at.slot_s * NS_PER_S
    slots_before = -((end_ns - at.ts_ns) // slot_ns)
    slot = at.slot - slots_before
    offset_s = (end_ns - (at.ts_ns - slots_before * slot_ns)) // NS_PER_S
    if slot < first:
        slot, offset_s = first, 0
    return LedgerEnd(instance_id=instance_id, slot=slot, offset_s=offset_s, reason=UNATTENDED)

"""What one revision's commands come to: the intents, written before any cloud is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from spotline.application.cloud_actuator.messages import ApplyRevisionRequest
from spotline.application.cloud_actuator.ports import Ledger
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.ledger.billing import bill
from spotline.domain.ledger.caps import Caps, Permit
from spotline.domain.ledger.intents import HeldInstance, Intent, RevisionPlan, plan_revision
from spotline.domain.limits.raised import in_force
from spotline.domain.limits.spending import SpentIn
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

_MINUTE_NS = 60 * NS_PER_S


class RevisionPlanning:
    """Plans revisions against the ledger."""

    def __init__(self, ledger: Ledger, caps: Caps) -> None:
        self._ledger, self._caps = ledger, caps

    def _caps_of(self, request: ApplyRevisionRequest) -> Caps:
        """The caps, with the limits that people have set since."""
        if not request.limits:
            return self._caps
        return replace(self._caps, spending=in_force(self._caps.spending, request.limits))

    async def pending_of(self, request: ApplyRevisionRequest) -> list[Intent]:
        """What was to be done for this revision when it was last tried."""
        return [
            intent
            for intent in await self._ledger.pending()
            if (intent.slot, intent.revision) == (request.at.slot, request.revision)
        ]

    async def intents(
        self,
        request: ApplyRevisionRequest,
        held: Sequence[HeldInstance],
        barred: Mapping[tuple[str, CapacityType], Permit],
    ) -> list[Intent]:
        """The intents of this revision, written before anything is done."""
        at, caps = request.at, self._caps_of(request)
        known = await self._ledger.intents([command.command_id for command in request.commands])
        attempts: dict[str, int] = {}
        commands = []
        for command in request.commands:
            earlier = known.get(command.command_id)
            if earlier is not None and earlier.result is not None:
                if not earlier.result.refused:
                    continue  # done in full under another call: once is enough
                attempts[command.command_id] = earlier.intent.attempt + 1
            commands.append(command)
        intents = plan_revision(
            RevisionPlan(
                slot=at.slot,
                revision=request.revision,
                offset_s=at.offset_s,
                slot_s=at.slot_s,
                ts_ns=at.ts_ns,
                prices=request.prices.by_offering(),
                caps=caps,
                spent_micro_usd=await self._spent(request),
                launches_last_minute=await self._ledger.launches_since(at.ts_ns - _MINUTE_NS),
                attempts=attempts,
                barred=barred,
                spent_in=await self._spent_in(request),
            ),
            commands,
            held,
        )
        if intents:
            await self._ledger.write_intents(intents)
        return list(intents)

    async def _spent(self, request: ApplyRevisionRequest) -> dict[str, int]:
        """Each job's bill up to now, the open slot and what it copies now included.

        Empty where no cap needs it.
        """
        if self._caps_of(request).most_micro_usd_per_job is None:
            return {}
        spent = dict(await self._ledger.spend_by_job())
        for command in request.commands:
            copied = spent.get(command.job_id, 0) + command.transfer_cost_micro_usd
            spent[command.job_id] = copied
        intervals = await self._ledger.intervals(request.prices.slot, request.prices.slot_s)
        for charge in bill(intervals, request.prices, until_s=request.at.offset_s):
            job_id = charge.cost.job_id
            spent[job_id] = spent.get(job_id, 0) + charge.cost.cost_micro_usd
        return spent

    async def _spent_in(self, request: ApplyRevisionRequest) -> SpentIn:
        """What was spent in the times that limits are about, the open slot up to now included.

        A time that begins inside a slot is taken to begin with it.
        """
        at = request.at
        found: dict[int, dict[tuple[str, CapacityType], int]] = {}
        for span_s in self._caps_of(request).spending.spans_s:
            # What is decided now is held until the slot ends: so long is the time that counts.
            first = at.slot - max(0, -(-span_s // at.slot_s) - 1)
            charges = await self._ledger.charges_since(first)
            found[span_s] = _by_tenant_and_type(charge.cost for charge in charges)
        if found:
            intervals = await self._ledger.intervals(request.prices.slot, request.prices.slot_s)
            for charge in bill(intervals, request.prices, until_s=at.offset_s):
                key = charge.cost.tenant, charge.cost.capacity_type
                for by in found.values():
                    by[key] = by.get(key, 0) + charge.cost.cost_micro_usd
        for command in request.commands:
            # What is copied now is billed as on-demand.
            key = command.tenant, CapacityType.ON_DEMAND
            for by in found.values():
                by[key] = by.get(key, 0) + command.transfer_cost_micro_usd
        return found


def _by_tenant_and_type(costs: Iterable[CostAccrued]) -> dict[tuple[str, CapacityType], int]:
    found: dict[tuple[str, CapacityType], int] = {}
    for cost in costs:
        key = cost.tenant, cost.capacity_type
        found[key] = found.get(key, 0) + cost.cost_micro_usd
    return found

"""What a revision came to, as rows of the ledger and as events."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TypeVar

from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.messages import ApplyRevisionRequest, Moment
from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    Instance,
    LedgerEnd,
    LedgerLaunch,
)
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InstancesEnded,
    InterruptionKind,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
)
from spotline.domain.events.freeze import BuyingExcepted
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.ledger.billing import Charge
from spotline.domain.ledger.caps import stood_against
from spotline.domain.ledger.instance_life import InstanceLife
from spotline.domain.ledger.intents import HeldInstance, Intent, IntentResult, Launch
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

AnyInstance = TypeVar("AnyInstance", Instance, HeldInstance, InstanceLife)


def launch_outcomes(
    excepted: Iterable[tuple[Intent, Launch, int]],
    refusals: Iterable[LaunchRefused],
    request: ApplyRevisionRequest,
) -> tuple[BuyingExcepted | LaunchRefused, ...]:
    """What was bought for hard deadlines' sake against a stop or a limit, and what was refused."""
    left = {command.command_id: command.quote_left_micro_usd for command in request.commands}
    bought = (
        BuyingExcepted(
            job_id=intent.job_id,
            tenant=intent.tenant,
            offering_id=intent.offering_id,
            slot=intent.slot,
            instances=instances,
            against=stood_against(launch.detail),
            quote_left_micro_usd=left.get(intent.command_id, 0),
        )
        for intent, launch, instances in excepted
    )
    return (*bought, *refusals)


def transfers(request: ApplyRevisionRequest) -> tuple[Charge, ...]:
    """What copying checkpoints costs where jobs move.

    `start_s` tells such charges apart from those of instances, and those of one slot's revisions
    from each other: it is negative.
    """
    return tuple(
        Charge(
            start_s=-1 - request.revision,
            cost=CostAccrued(
                job_id=command.job_id,
                tenant=command.tenant,
                offering_id=command.target.offering_id,
                quota_pool=command.quota_pool,
                capacity_type=CapacityType.ON_DEMAND,
                slot=request.at.slot,
                instances=0,
                held_s=0,
                price_micro_usd=0,
                cost_micro_usd=command.transfer_cost_micro_usd,
            ),
        )
        for command in request.commands
        if command.transfer_cost_micro_usd
    )


def released(instance_id: str, intent: Intent, reason: str) -> LedgerEnd:
    """End a release at the moment its command gave."""
    return LedgerEnd(
        instance_id=instance_id, slot=intent.slot, offset_s=intent.offset_s, reason=reason
    )


def ledger_launch(intent: Intent, instance: Instance) -> LedgerLaunch:
    """Book an instance that an attempt launched."""
    return LedgerLaunch(
        instance=instance,
        command_id=intent.command_id,
        attempt=intent.attempt,
        slot=intent.slot,
        offset_s=intent.offset_s,
    )


def adopted_launch(instance: Instance, lives: LivesInHand, at: Moment) -> LedgerLaunch:
    """Book an instance of a launch whose outcome was unknown, from the moment it is found."""
    life = lives.get(instance.instance_id)
    if life is None:
        raise InvariantViolation(f"{instance.instance_id} was taken over without a life")
    return LedgerLaunch(
        instance=instance,
        command_id=life.command_id,
        attempt=life.attempt,
        slot=at.slot,
        offset_s=at.offset_s,
    )


def result_of(
    intent: Intent, granted: Sequence[Instance], *, refused: int, detail: str
) -> IntentResult:
    """Say what an attempt came to."""
    spot = sum(instance.capacity_type is CapacityType.SPOT for instance in granted)
    return IntentResult(
        intent=intent,
        granted_spot=spot,
        granted_on_demand=len(granted) - spot,
        refused=refused,
        detail=detail,
    )


def held_after(
    held: Sequence[HeldInstance], launched: Sequence[LedgerLaunch], ended: Container[str]
) -> list[HeldInstance]:
    """List what we hold after launches and ends, in launch order; some end as they are launched."""
    order = max((instance.order for instance in held), default=0)
    running = [instance for instance in held if instance.instance_id not in ended]
    for index, launch in enumerate(launched, start=1):
        instance = launch.instance
        if instance.instance_id in ended:
            continue
        running.append(
            HeldInstance(
                instance_id=instance.instance_id,
                job_id=instance.job_id,
                tenant=instance.tenant,
                quota_pool=instance.quota_pool,
                offering_id=instance.offering_id,
                capacity_type=instance.capacity_type,
                order=order + index,
            )
        )
    return running


def holdings(running: Iterable[HeldInstance]) -> tuple[JobHolding, ...]:
    """Count what jobs hold, by job and offering, and name it: `running` is in launch order."""
    counts: dict[str, dict[str, list[int]]] = {}
    ids: dict[str, list[str]] = {}
    for instance in running:
        ids.setdefault(instance.job_id, []).append(instance.instance_id)
        lot = counts.setdefault(instance.job_id, {}).setdefault(instance.offering_id, [0, 0])
        lot[instance.capacity_type is CapacityType.ON_DEMAND] += 1
    return tuple(
        JobHolding(
            job_id=job_id,
            lots=tuple(
                Lot(offering_id=offering_id, spot=spot, on_demand=on_demand)
                for offering_id, (spot, on_demand) in sorted(lots.items())
            ),
            instance_ids=tuple(ids[job_id]),
        )
        for job_id, lots in sorted(counts.items())
    )


def report_of(
    request: ApplyRevisionRequest, offset_s: int, running: Iterable[HeldInstance], *, settled: bool
) -> CapacityReported:
    """What every job holds after a revision was carried out."""
    return CapacityReported(
        slot=request.at.slot,
        revision=request.revision,
        offset_s=offset_s,
        settled=settled,
        holdings=holdings(running),
    )


def _by_lot(held: Iterable[AnyInstance]) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """Instance ids by (job, tenant, offering), ordered by these."""
    groups: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for instance in held:
        lot: tuple[str, str, str] = (instance.job_id, instance.tenant, instance.offering_id)
        groups[lot] = (*groups.get(lot, ()), instance.instance_id)
    return dict(sorted(groups.items()))


def notices(told: Iterable[CloudEvent], at: Moment) -> tuple[InterruptionNoticed, ...]:
    """Announce interruptions, one by lot and moment.

    A notice from before the slot counts from its opening, with the lead that was left then.
    """
    opened_ns = at.ts_ns - at.offset_s * NS_PER_S
    groups: dict[tuple[int, int, InterruptionKind], list[Instance]] = {}
    for event in told:
        offset_s = (event.at_ns - opened_ns) // NS_PER_S
        lead_s = event.lead_s + min(0, offset_s)
        kind = event.interruption or InterruptionKind.CAPACITY_RECLAIMED
        moment = (max(0, offset_s), max(0, lead_s), kind)
        groups.setdefault(moment, []).append(event.instance)
    return tuple(
        InterruptionNoticed(
            job_id=job_id,
            tenant=tenant,
            offering_id=offering_id,
            instance_ids=instance_ids,
            slot=at.slot,
            offset_s=offset_s,
            lead_s=lead_s,
            kind=kind,
        )
        for (offset_s, lead_s, kind), instances in sorted(
            groups.items(), key=lambda group: (*group[0][:2], group[0][2].value)
        )
        for (job_id, tenant, offering_id), instance_ids in _by_lot(instances).items()
    )


def withdrawals(told: Iterable[CloudEvent], at: Moment) -> tuple[InterruptionWithdrawn, ...]:
    """Take notices back, one event by lot and moment."""
    opened_ns = at.ts_ns - at.offset_s * NS_PER_S
    groups: dict[int, list[Instance]] = {}
    for event in told:
        offset_s = max(0, (event.at_ns - opened_ns) // NS_PER_S)
        groups.setdefault(offset_s, []).append(event.instance)
    return tuple(
        InterruptionWithdrawn(
            job_id=job_id,
            tenant=tenant,
            offering_id=offering_id,
            instance_ids=instance_ids,
            slot=at.slot,
            offset_s=offset_s,
        )
        for offset_s, instances in sorted(groups.items())
        for (job_id, tenant, offering_id), instance_ids in _by_lot(instances).items()
    )


def losses(lost: Iterable[AnyInstance], at: Moment, lost_s: int) -> tuple[CapacityLost, ...]:
    """Report instances that are gone since `lost_s` into the slot, one by lot."""
    return tuple(
        CapacityLost(
            job_id=job_id,
            tenant=tenant,
            offering_id=offering_id,
            instance_ids=instance_ids,
            slot=at.slot,
            offset_s=lost_s,
        )
        for (job_id, tenant, offering_id), instance_ids in _by_lot(lost).items()
    )


def ends_seen(left: Iterable[InstanceLife], at: Moment) -> tuple[InstancesEnded, ...]:
    """Report released instances that are seen to have ended, one by lot.

    Nothing is to be decided because of them, and nobody waits for them when a market is over.
    """
    return tuple(
        InstancesEnded(
            job_id=job_id,
            tenant=tenant,
            offering_id=offering_id,
            instance_ids=instance_ids,
            slot=at.slot,
            offset_s=at.offset_s,
        )
        for (job_id, tenant, offering_id), instance_ids in _by_lot(left).items()
    )


def ids_of(instances: Iterable[Instance | HeldInstance]) -> tuple[str, ...]:
    """The ids of instances, in their order."""
    return tuple(instance.instance_id for instance in instances)


def lost_ends(lost: Iterable[HeldInstance], at: Moment, lost_s: int) -> list[LedgerEnd]:
    """How instances end that were lost `lost_s` seconds into the slot."""
    return [
        LedgerEnd(instance_id=instance.instance_id, slot=at.slot, offset_s=lost_s, reason="lost")
        for instance in lost
    ]

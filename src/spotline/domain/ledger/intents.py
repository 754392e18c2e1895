"""From commands to intents: what to release and what to launch, fixed before a cloud is called."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spotline.domain.events.capacity import ProvisioningCommanded, RefusalClass
from spotline.domain.jobs.lot import Lot
from spotline.domain.ledger.billing import OfferingPrice
from spotline.domain.ledger.caps import (
    JOB_CAP,
    Caps,
    Permit,
    Usage,
    excepted_from,
    fewer,
    limited,
    permit,
)
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.limits.spending import PoolRoom, Room, SpentIn, is_of_tenant, quota_limit
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import cost_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldInstance:
    """An instance the ledger counts as ours. `order` is the launch order, from 1.

    `noticed_slot` is the last slot in which the cloud announced that it wants it back, -1 for none.
    It is held from `start_slot`, `start_offset_s` on, -1 where that is not known.
    """

    instance_id: str
    job_id: str
    tenant: str
    quota_pool: str
    offering_id: str
    capacity_type: CapacityType
    order: int
    noticed_slot: int = -1
    start_slot: int = -1
    start_offset_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One request to a cloud: `requested` by the command, `permitted` by us, and why fewer.

    With a `refusal_class` it is refused without being asked for; `retry_after_s` (0: not said) is
    when to try again, `limit_scope` for what the limit holds that refused it.
    """

    capacity_type: CapacityType
    requested: int
    permitted: int
    token: str
    detail: str = ""
    refusal_class: RefusalClass | None = None
    retry_after_s: int = 0
    limit_scope: FreezeScope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What one attempt at one command is going to do.

    `dropped` marks a release that no command asked for: a cap forces it. `ts_ns` is market time.
    """

    command_id: str
    attempt: int
    job_id: str
    tenant: str
    quota_pool: str
    offering_id: str
    slot: int
    revision: int
    offset_s: int
    ts_ns: int
    target: Lot
    release: tuple[str, ...]
    launches: tuple[Launch, ...]
    dropped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentResult:
    """How an attempt ended; a refusal is what lets the attempt number rise."""

    intent: Intent
    granted_spot: int
    granted_on_demand: int
    refused: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionPlan:
    """The moment and the rules that commands are turned into intents under.

    `attempts` gives the attempt number of commands that were refused before. `spent_micro_usd` is
    each job's bill up to `offset_s`, this slot's part included. `barred` forbids launches
    of one capacity type of a command and says why. `spent_in` is what was spent in the times that
    limits are about, the slot up to `offset_s` included.
    """

    slot: int
    revision: int
    offset_s: int
    slot_s: int
    ts_ns: int
    prices: Mapping[str, OfferingPrice]
    caps: Caps
    spent_micro_usd: Mapping[str, int]
    launches_last_minute: int
    attempts: Mapping[str, int]
    barred: Mapping[tuple[str, CapacityType], Permit] = field(default_factory=dict)
    spent_in: SpentIn = field(default_factory=dict)


NOT_QUOTED = Permit(
    instances=0, detail="the offering is not quoted", refusal_class=RefusalClass.NO_CAPACITY
)


def idempotency_token(command_id: str, attempt: int, payload: str) -> str:
    """Hash (command, attempt, payload): a cloud launches once per token."""
    return hashlib.sha256(f"{command_id}\x1f{attempt}\x1f{payload}".encode()).hexdigest()[:32]


def launch_payload(
    job_id: str, offering_id: str, capacity_type: CapacityType, instances: int
) -> str:
    """What of a launch goes into its token."""
    return f"{job_id}\x1f{offering_id}\x1f{capacity_type.value}\x1f{instances}"


def plan_revision(
    plan: RevisionPlan,
    commands: Sequence[ProvisioningCommanded],
    held: Sequence[HeldInstance],
) -> tuple[Intent, ...]:
    """Turn a revision's commands into intents: releases first, then launches within the caps.

    Released are instances the cloud wants back anyway, then the latest launched. A job that would
    pass its cap by merely keeping what it holds is dropped altogether.
    """
    kept = {instance.instance_id: instance for instance in held}
    intents: list[Intent] = []
    for command in commands:
        release = _surplus(command, kept.values(), plan.slot)
        for instance_id in release:
            del kept[instance_id]
        intents.append(_intent(plan, command, release))
    dropped = _over_cap(plan, kept.values())
    for intent in dropped:
        for instance_id in intent.release:
            del kept[instance_id]
    over = {intent.job_id for intent in dropped}
    excepted = {command.command_id: command.excepted_on_demand for command in commands}
    return (*_with_launches(plan, intents, kept.values(), over, excepted), *dropped)


def _intent(plan: RevisionPlan, command: ProvisioningCommanded, release: tuple[str, ...]) -> Intent:
    return Intent(
        command_id=command.command_id,
        attempt=plan.attempts.get(command.command_id, 0),
        job_id=command.job_id,
        tenant=command.tenant,
        quota_pool=command.quota_pool,
        offering_id=command.target.offering_id,
        slot=plan.slot,
        revision=plan.revision,
        offset_s=plan.offset_s,
        ts_ns=plan.ts_ns,
        target=command.target,
        release=release,
        launches=(),
    )


def _wanted(target: Lot, capacity_type: CapacityType) -> int:
    return target.spot if capacity_type is CapacityType.SPOT else target.on_demand


def _matching(
    target: Intent | ProvisioningCommanded,
    offering_id: str,
    capacity_type: CapacityType,
    held: Iterable[HeldInstance],
) -> list[HeldInstance]:
    return [
        instance
        for instance in held
        if instance.job_id == target.job_id
        and instance.offering_id == offering_id
        and instance.capacity_type is capacity_type
    ]


def _surplus(
    command: ProvisioningCommanded, held: Iterable[HeldInstance], slot: int
) -> tuple[str, ...]:
    release: list[str] = []
    held = tuple(held)
    for capacity_type in CapacityType:
        ours = _matching(command, command.target.offering_id, capacity_type, held)
        surplus = len(ours) - _wanted(command.target, capacity_type)
        ours.sort(key=lambda instance: (instance.noticed_slot != slot, -instance.order))
        release += [instance.instance_id for instance in ours[: max(0, surplus)]]
    return tuple(release)


def _rest_cost_micro_usd(plan: RevisionPlan, held: Iterable[HeldInstance]) -> dict[str, int]:
    """What each job's held instances cost until the slot is over."""
    counts: dict[tuple[str, str, CapacityType], int] = {}
    for instance in held:
        key = (instance.job_id, instance.offering_id, instance.capacity_type)
        counts[key] = counts.get(key, 0) + 1
    costs: dict[str, int] = {}
    for (job_id, offering_id, capacity_type), instances in counts.items():
        price = plan.prices[offering_id].of(capacity_type)
        cost = cost_micro_usd(price, instances, plan.slot_s - plan.offset_s)
        costs[job_id] = costs.get(job_id, 0) + cost
    return costs


def _over_cap(plan: RevisionPlan, held: Iterable[HeldInstance]) -> tuple[Intent, ...]:
    cap = plan.caps.most_micro_usd_per_job
    if cap is None:
        return ()
    held = tuple(held)
    intents: list[Intent] = []
    for job_id, cost in sorted(_rest_cost_micro_usd(plan, held).items()):
        if plan.spent_micro_usd.get(job_id, 0) + cost <= cap:
            continue
        ours = [instance for instance in held if instance.job_id == job_id]
        for offering_id in sorted({instance.offering_id for instance in ours}):
            lot = [instance for instance in ours if instance.offering_id == offering_id]
            command = ProvisioningCommanded(
                command_id="cap-"
                + idempotency_token(job_id, plan.slot, f"{plan.revision} {offering_id}"),
                job_id=job_id,
                tenant=lot[0].tenant,
                quota_pool=lot[0].quota_pool,
                slot=plan.slot,
                revision=plan.revision,
                offset_s=plan.offset_s,
                target=Lot(offering_id=offering_id),
            )
            release = tuple(instance.instance_id for instance in lot)
            intents.append(replace(_intent(plan, command, release), dropped=True))
    return tuple(intents)


def _barred(
    plan: RevisionPlan, intent: Intent, capacity_type: CapacityType, dropped: set[str]
) -> Permit | None:
    """Why nothing is asked for, whatever the caps; None if it may be."""
    if intent.offering_id not in plan.prices:
        return NOT_QUOTED
    if intent.job_id in dropped:
        return limited(JOB_CAP, scope=FreezeScope.JOB)
    return plan.barred.get((intent.command_id, capacity_type))


def _with_launches(
    plan: RevisionPlan,
    intents: Sequence[Intent],
    held: Iterable[HeldInstance],
    dropped: set[str],
    excepted: Mapping[str, int],
) -> tuple[Intent, ...]:
    """The intents with their launches; so much on-demand as `excepted` says yields to no rate."""
    held = tuple(held)
    tally = _Tally(plan, held)
    planned: list[Intent] = []
    for intent in intents:
        launches: list[Launch] = []
        for capacity_type in CapacityType:
            ours = _matching(intent, intent.offering_id, capacity_type, held)
            requested = _wanted(intent.target, capacity_type) - len(ours)
            if requested <= 0:
                continue
            permitted = _barred(plan, intent, capacity_type, dropped)
            if permitted is None or permitted.instances:
                on_demand = capacity_type is CapacityType.ON_DEMAND
                exempt = excepted.get(intent.command_id, 0) if on_demand else 0
                allowed = tally.permit(intent, capacity_type, requested, exempt)
                permitted = allowed if permitted is None else fewer(permitted, allowed)
            tally.take(intent, capacity_type, permitted.instances)
            launches.append(_launch(intent, capacity_type, requested, permitted))
        planned.append(replace(intent, launches=tuple(launches)))
    return tuple(planned)


def _launch(
    intent: Intent, capacity_type: CapacityType, requested: int, permitted: Permit
) -> Launch:
    count = permitted.instances
    payload = launch_payload(intent.job_id, intent.offering_id, capacity_type, count)
    return Launch(
        capacity_type=capacity_type,
        requested=requested,
        permitted=count,
        token=idempotency_token(intent.command_id, intent.attempt, payload),
        detail=permitted.detail,
        refusal_class=permitted.refusal_class,
        retry_after_s=permitted.retry_after_s,
        limit_scope=permitted.limit_scope,
    )


class _Tally:
    """What counts against the caps while a revision's launches are permitted one by one."""

    def __init__(self, plan: RevisionPlan, held: Sequence[HeldInstance]) -> None:
        self._plan = plan
        self._rest_s = plan.slot_s - plan.offset_s
        self._per_hour = sum(
            plan.prices[instance.offering_id].of(instance.capacity_type) for instance in held
        )
        self._bills = _rest_cost_micro_usd(plan, held)
        for job_id, spent in plan.spent_micro_usd.items():
            self._bills[job_id] = self._bills.get(job_id, 0) + spent
        self._launches = plan.launches_last_minute
        self._room = Room.after(plan.caps.spending, plan.spent_in)
        for instance in held:
            price = plan.prices[instance.offering_id].of(instance.capacity_type)
            self._room.take(instance.tenant, instance.capacity_type, price, 1, self._rest_s)
        self._pools = PoolRoom.within(plan.caps.spending)
        for instance in held:
            self._pools.take(instance.quota_pool, 1)

    def permit(
        self, intent: Intent, capacity_type: CapacityType, requested: int, excepted: int
    ) -> Permit:
        """How many of `requested` the caps allow; `excepted` of them whatever a rate says."""
        usage = Usage(
            job_micro_usd=self._bills.get(intent.job_id, 0),
            micro_usd_per_hour=self._per_hour,
            launches=self._launches,
        )
        price = self._plan.prices[intent.offering_id]
        by_caps = permit(
            self._plan.caps,
            usage,
            wanted=requested,
            price_micro_usd=price.of(capacity_type),
            rest_s=self._rest_s,
            excepted=excepted,
        )
        spot = capacity_type is CapacityType.SPOT
        discounted = self._plan.caps.spending.discounted(
            price.spot_micro_usd, price.on_demand_micro_usd
        )
        if spot and not discounted:
            return limited("limit least discount of spot", scope=FreezeScope.OFFERING)
        most, name = self._room.instances(
            intent.tenant, capacity_type, price.of(capacity_type), self._rest_s
        )
        scope = FreezeScope.TENANT if is_of_tenant(name) else FreezeScope.SYSTEM
        by_spending = limited(f"limit {name}", most, scope=scope)
        allowed = by_caps if most < 0 else fewer(by_caps, by_spending)
        by_quota = self._by_quota(intent.quota_pool, requested, excepted)
        return allowed if by_quota is None else fewer(allowed, by_quota)

    def _by_quota(self, pool: str, requested: int, excepted: int) -> Permit | None:
        """What a pool's quota allows; None where it has none. It yields to what is `excepted`."""
        in_pool = self._pools.instances(pool)
        if in_pool is None:
            return None
        limit = f"limit {quota_limit(pool)}"
        needed = min(requested, excepted)
        if in_pool < needed:
            return excepted_from(limit, needed)
        return limited(limit, in_pool, scope=FreezeScope.SYSTEM)

    def take(self, intent: Intent, capacity_type: CapacityType, count: int) -> None:
        """Count what is launched."""
        if not count:
            return
        rate = self._plan.prices[intent.offering_id].of(capacity_type)
        self._per_hour += rate * count
        self._launches += count
        self._room.take(intent.tenant, capacity_type, rate, count, self._rest_s)
        self._pools.take(intent.quota_pool, count)
        bill = self._bills.get(intent.job_id, 0)
        self._bills[intent.job_id] = bill + cost_micro_usd(rate, count, self._rest_s)

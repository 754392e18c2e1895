"""What a ledger that was lost, or restored older, is given back: what log and cloud prove.

Proof is the log's word and the cloud's tag together. An instance of an open job that the last
report names, or that a command of the last revision launched, is taken over as ours; a job that was
submitted is held again; what was accrued is charged again, so that limits go on from it. What the
log says is held no more is ended. Nothing else is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from spotline.application.cloud_actuator.lives import SEEN, LivesInHand, stranger_life
from spotline.application.cloud_actuator.log_fold import EndedInstance, LogView, NamedInstance
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    Admission,
    Instance,
    InstanceState,
    LedgerEnd,
    LedgerEntry,
    LedgerLaunch,
)
from spotline.domain.events.capacity import CostAccrued, ProvisioningCommanded
from spotline.domain.ledger.billing import Charge
from spotline.domain.ledger.instance_life import LifeInput, LifeState
from spotline.domain.ledger.intents import HeldInstance, idempotency_token, launch_payload
from spotline.domain.market.offering import CapacityType

# Charges that are carried over from the log begin before every slot's, one epoch's apart.
_CARRIED_S = -(1 << 40)
# A command whose launch was refused is attempted again under the next number.
_MOST_ATTEMPTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The command and the attempt that a token belongs to."""

    command_id: str
    attempt: int


def tokens_of(commands: Iterable[ProvisioningCommanded]) -> dict[str, Origin]:
    """Every token that launches for these commands may have had."""
    tokens: dict[str, Origin] = {}
    for command in commands:
        target = command.target
        counts = {CapacityType.SPOT: target.spot, CapacityType.ON_DEMAND: target.on_demand}
        for kind, wanted in counts.items():
            for attempt in range(_MOST_ATTEMPTS):
                for count in range(1, wanted + 1):
                    payload = launch_payload(command.job_id, target.offering_id, kind, count)
                    token = idempotency_token(command.command_id, attempt, payload)
                    tokens[token] = Origin(command_id=command.command_id, attempt=attempt)
    return tokens


def carried_charges(
    log: LogView, charged: dict[int, dict[str, int]], epoch: int
) -> tuple[Charge, ...]:
    """Charge what the log accrued and the ledger did not.

    Parameters
    ----------
    charged
        Micro-USD by job, by slot; the log's `complete_slot` stands for all up to it.
    epoch
        That of the ledger's owner: what an earlier one carried over stands beside it.
    """
    accrued = {log.says.complete_slot: log.says.accrued, **log.recent}
    return tuple(
        Charge(
            start_s=_CARRIED_S - epoch,
            cost=CostAccrued(
                job_id=job_id,
                tenant=log.tenants.get(job_id, ""),
                offering_id="",
                quota_pool="",
                capacity_type=CapacityType.ON_DEMAND,
                slot=slot,
                instances=0,
                held_s=0,
                price_micro_usd=0,
                cost_micro_usd=missing,
            ),
        )
        for slot, by_job in sorted(accrued.items())
        for job_id, cost in sorted(by_job.items())
        if (missing := cost - charged.get(slot, {}).get(job_id, 0)) > 0
    )


def missing_admissions(log: LogView, admitted: Iterable[str]) -> tuple[Admission, ...]:
    """The open jobs that the ledger does not hold."""
    held = set(admitted)
    return tuple(
        Admission(job_id=job_id, tenant=job.tenant, digest=log.digests[job_id])
        for job_id, job in sorted(log.says.jobs.items())
        if job_id not in held and job_id in log.digests
    )


def adoptable(
    shown: Sequence[Instance], lives: LivesInHand, log: LogView, tokens: dict[str, Origin]
) -> Iterator[tuple[Instance, NamedInstance | None, Origin]]:
    """Strangers that log and tags prove to be ours, in the order in which the cloud shows them."""
    for instance in shown:
        life = lives.get(instance.instance_id)
        if life is None or life.ours or life.state is not LifeState.UNKNOWN:
            continue
        if instance.state is InstanceState.ENDED or not log.says.may_hold(instance.job_id):
            continue
        named = (log.named or {}).get(instance.instance_id)
        if named is not None and named.job_id != instance.job_id:
            continue
        origin = tokens.get(instance.token)
        if named is not None or origin is not None:
            yield instance, named, origin or Origin(command_id="", attempt=0)


def adoption(
    instance: Instance,
    named: NamedInstance | None,
    origin: Origin,
    at: Moment,
    first_unbilled: int,
) -> LedgerLaunch:
    """Book an instance from when the log says it is held, but not where it is billed already."""
    slot, offset_s = (at.slot, at.offset_s) if named is None else (named.slot, named.offset_s)
    if slot < first_unbilled:
        slot, offset_s = first_unbilled, 0
    return LedgerLaunch(
        instance=instance,
        command_id=origin.command_id,
        attempt=origin.attempt,
        slot=slot,
        offset_s=offset_s,
    )


def take_over(lives: LivesInHand, instance: Instance, origin: Origin) -> None:
    """Begin the life of a stranger anew, as ours."""
    stranger = lives.get(instance.instance_id)
    if stranger is None:
        return
    ours = replace(
        stranger, ours=True, command_id=origin.command_id, attempt=origin.attempt, absent_ns=None
    )
    lives.begin(ours, SEEN[instance.state])


def mended(
    log: LogView,
    lives: LivesInHand,
    shown: Sequence[Instance],
    held: Sequence[HeldInstance],
    at: Moment,
    first_unbilled: int,
    *,
    lagging: bool,
    known: Collection[str] = (),
) -> LedgerEntry:
    """Take over what is proved; changes the lives.

    What ended in a slot that is not billed yet is booked until then, unless it is `known`.

    Of a `lagging` ledger what the log says is held no more is ended, too: all that such a ledger
    holds was launched before the last report.
    """
    launched = []
    for instance, named, origin in tuple(adoptable(shown, lives, log, tokens_of(log.commands))):
        take_over(lives, instance, origin)
        launched.append(adoption(instance, named, origin, at, first_unbilled))
    ended = []
    for instance, was in tuple(_past(shown, log, known, first_unbilled)):
        begun = NamedInstance(job_id=was.job_id, slot=was.slot, offset_s=was.offset_s)
        origin = Origin(command_id="", attempt=0)
        launched.append(adoption(instance, begun, origin, at, first_unbilled))
        ended.append(_end(instance.instance_id, log, first_unbilled))
        lives.begin(
            replace(stranger_life(instance, lives.now_ns), ours=True), SEEN[InstanceState.ENDED]
        )
    unnamed = lagging and log.named is not None
    for one in held:
        # A ledger that is older by less than a slot lags behind nothing that a report shows.
        is_over = one.instance_id in log.ended or unnamed
        if one.instance_id in (log.named or {}) or not is_over:
            continue
        ended.append(_end(one.instance_id, log, first_unbilled))
        if one.instance_id in lives:
            lives.learn(one.instance_id, LifeInput.STOP_ASKED)
    return LedgerEntry(slot=at.slot, launched=tuple(launched), ended=tuple(ended))


def _past(
    shown: Sequence[Instance], log: LogView, known: Collection[str], first_unbilled: int
) -> Iterator[tuple[Instance, EndedInstance]]:
    """What log and tags prove to have been ours in a slot that is not billed yet."""
    for instance in shown:
        was = log.ended.get(instance.instance_id)
        if was is None or instance.instance_id in known or was.job_id != instance.job_id:
            continue
        if instance.state is InstanceState.ENDED and was.end_slot >= first_unbilled:
            yield instance, was


def _end(instance_id: str, log: LogView, first_unbilled: int) -> LedgerEnd:
    """The end of what is held no more, as the log says it, but not where it is billed already."""
    was = log.ended.get(instance_id)
    slot, offset_s = (first_unbilled, 0) if was is None else (was.end_slot, was.end_s)
    if slot < first_unbilled:
        slot, offset_s = first_unbilled, 0
    return LedgerEnd(
        instance_id=instance_id, slot=slot, offset_s=offset_s, reason="held no more, says the log"
    )

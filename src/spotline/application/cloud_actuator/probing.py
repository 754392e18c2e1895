"""Probes: launched like all that a job holds, within every limit, and ended before anything is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotline.application.cloud_actuator.launching import Done
from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.messages import ApplyRevisionRequest
from spotline.application.cloud_actuator.ports import CloudProvider, Ledger, LedgerEnd
from spotline.domain.beliefs.probes import BILLED_S
from spotline.domain.events.capacity import (
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    ProvisioningCommanded,
)
from spotline.domain.jobs.lot import Lot
from spotline.domain.ledger.instance_life import LifeInput
from spotline.domain.ledger.intents import HeldInstance, Intent
from spotline.domain.units import cost_micro_usd

PROBED = "probed"
"""Why the ledger says that the instances of a probe ended."""


def command_of(probe: ProbeCommanded) -> ProvisioningCommanded:
    """The launch that a probe is."""
    return ProvisioningCommanded(
        command_id=probe.command_id,
        job_id=probe.job_id,
        tenant=probe.tenant,
        quota_pool=probe.quota_pool,
        slot=probe.slot,
        revision=probe.revision,
        offset_s=probe.offset_s,
        target=Lot(offering_id=probe.offering_id, spot=probe.instances),
    )


def with_probes(
    request: ApplyRevisionRequest, held: Sequence[HeldInstance]
) -> ApplyRevisionRequest:
    """The request with its probes as launches, behind all others: what jobs hold goes first.

    Where its job holds something of the offering by now, nothing is asked: that tells by itself.
    """
    there = {(instance.job_id, instance.offering_id) for instance in held}
    asked = tuple(
        command_of(probe)
        for probe in request.probes
        if (probe.job_id, probe.offering_id) not in there
    )
    return replace(request, commands=(*request.commands, *asked)) if asked else request


async def end_probes(
    cloud: CloudProvider,
    ledger: Ledger,
    request: ApplyRevisionRequest,
    done: Done,
    lives: LivesInHand,
) -> None:
    """End what probes were granted, and turn what came of them in `done` into their answers.

    The ledger counts them as held for the least time that a provider bills, and bills that.

    Raises
    ------
    ProviderUnavailable
        Perform the same intents again later: what was granted is granted again, and ended then.
    """
    if not request.probes:
        return
    asked = {probe.command_id: probe for probe in request.probes}
    refused = {refusal.command_id: refusal for refusal in done.refusals}
    done.refusals = [one for one in done.refusals if one.command_id not in asked]
    granted: dict[str, list[str]] = {command_id: [] for command_id in asked}
    for launch in done.launched:
        instance_id = launch.instance.instance_id
        if launch.command_id in asked and instance_id not in done.ended:
            granted[launch.command_id].append(instance_id)
    ending = [instance_id for ids in granted.values() for instance_id in ids]
    if ending:
        await cloud.terminate(ledger.owner, ending)
    at = request.at
    billed_s = min(BILLED_S, at.slot_s - at.offset_s)
    for instance_id in ending:
        done.ended[instance_id] = LedgerEnd(
            instance_id=instance_id,
            slot=at.slot,
            offset_s=at.offset_s + billed_s,
            reason=PROBED,
        )
        if instance_id in lives:
            lives.learn(instance_id, LifeInput.STOP_ASKED)
    prices = request.prices.by_offering()
    for result in done.results:
        intent = result.intent
        if intent.command_id in asked:
            count = len(granted[intent.command_id])
            cost = 0
            if count:
                spot_micro_usd = prices[intent.offering_id].spot_micro_usd
                cost = cost_micro_usd(spot_micro_usd, count, billed_s)
            done.probed.append(_answer(intent, count, cost, refused.get(intent.command_id)))


def _answer(
    intent: Intent, granted: int, cost: int, refused: LaunchRefused | None
) -> OfferingProbed:
    return OfferingProbed(
        command_id=intent.command_id,
        job_id=intent.job_id,
        tenant=intent.tenant,
        offering_id=intent.offering_id,
        slot=intent.slot,
        requested=intent.target.spot,
        granted=granted,
        cost_micro_usd=cost,
        refusal_class=None if refused is None else refused.refusal_class,
        detail="" if refused is None else refused.detail,
        retry_after_s=0 if refused is None else refused.retry_after_s,
    )

"""Attempts whose revision never came again: what they launched is billed until now, and ended."""

from __future__ import annotations

from spotline.application.cloud_actuator.lives import LivesInHand, launch_life
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudProvider,
    InstanceState,
    Ledger,
    LedgerEnd,
    LedgerEntry,
    LedgerLaunch,
)
from spotline.application.cloud_actuator.reporting import ledger_launch, released, result_of
from spotline.domain.ledger.instance_life import LifeInput
from spotline.domain.ledger.intents import IntentResult


async def give_up_pending(
    cloud: CloudProvider, ledger: Ledger, at: Moment, lives: LivesInHand
) -> None:
    """Close attempts whose revision never came again: its command is lost from the log.

    Calls are performed in order, so at the opening of a slot nothing is under way. What those
    attempts did launch is billed until now and ended; what does not show yet is looked up.
    """
    pending = await ledger.pending()
    if not pending:
        return
    shown = await cloud.list(ledger.owner.name)
    running = [found for found in shown if found.state is not InstanceState.ENDED]
    launched: list[LedgerLaunch] = []
    results: list[IntentResult] = []
    for intent in pending:
        ours = []
        for launch in intent.launches:
            its = [instance for instance in running if instance.token == launch.token]
            for instance in its:
                life = launch_life(intent, launch, instance_id=instance.instance_id)
                lives.begin(life, LifeInput.FOUND)
            if len(its) < launch.permitted:
                # Its grace began when it was sent.
                lost = launch_life(intent, launch)
                lives.begin(lost, LifeInput.OUTCOME_UNKNOWN, intent.ts_ns)
            ours += its
        launched += [ledger_launch(intent, instance) for instance in ours]
        requested = sum(launch.requested for launch in intent.launches)
        results.append(result_of(intent, ours, refused=requested - len(ours), detail="given up"))
    # Releases that were under way are finished, at the moment their command gave.
    ended = [
        released(instance_id, intent, "released")
        for intent in pending
        for instance_id in intent.release
    ]
    ended += [
        LedgerEnd(
            instance_id=launch.instance.instance_id, slot=at.slot, offset_s=0, reason="given up"
        )
        for launch in launched
    ]
    for end in ended:
        if end.instance_id in lives:
            lives.learn(end.instance_id, LifeInput.STOP_ASKED)
    await ledger.record(
        LedgerEntry(
            slot=at.slot,
            results=tuple(results),
            launched=tuple(launched),
            ended=tuple(ended),
            transitions=lives.drain(),
        )
    )
    if ended:
        await cloud.terminate(ledger.owner, [end.instance_id for end in ended])

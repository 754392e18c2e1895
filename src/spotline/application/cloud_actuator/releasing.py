"""Releasing everything while no market is played: what `spotline down --release` does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.ports import (
    CloudProvider,
    InstanceState,
    Ledger,
    LedgerEnd,
    LedgerEntry,
)
from spotline.domain.ledger.instance_life import Graces, LifeInput

RELEASED = "released by hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedInstances:
    """Instances that were asked to end, and those of them that the cloud still shows."""

    instance_ids: tuple[str, ...]
    still_there: tuple[str, ...]


async def release_all(
    cloud: CloudProvider,
    ledger: Ledger,
    wait: Callable[[], Awaitable[bool]],
    graces: Graces | None = None,
) -> ReleasedInstances:
    """End all instances that carry the ledger's tag, and wait until they are seen to have ended.

    The slot in which it was last heard of the market is charged whole, later ones are not. Jobs
    stay as they are: a system that is started again goes on with them.

    Parameters
    ----------
    wait
        Called between two looks at the cloud; False gives up waiting.

    Raises
    ------
    ProviderUnavailable
        The cloud does not answer: call again, nothing is done twice.
    OwnerFenced
        Another process acts for this ledger.
    """
    owner = ledger.owner
    held = await ledger.held()
    lives = LivesInHand(await ledger.lives(), graces or Graces(), await ledger.latest_ns())
    shown = await cloud.list(owner.name)
    # Also what the ledger does not know: an orphan costs as much.
    running = {
        instance.instance_id for instance in shown if instance.state is not InstanceState.ENDED
    }
    ids = tuple(sorted({instance.instance_id for instance in held} | running))
    if not ids:
        return ReleasedInstances(instance_ids=(), still_there=())
    await ledger.check_epoch()
    await cloud.terminate(owner, ids)
    for instance_id in ids:
        if instance_id in lives:
            lives.learn(instance_id, LifeInput.STOP_ASKED)
    slot = await ledger.latest_slot()
    ends = [
        LedgerEnd(instance_id=instance.instance_id, slot=slot + 1, offset_s=0, reason=RELEASED)
        for instance in held
    ]
    await ledger.record(LedgerEntry(slot=slot, ended=tuple(ends), transitions=lives.drain()))
    left = set(ids)
    while left:
        # What is not shown after it was asked to end is over: nothing else is looked up by its id.
        left &= {
            instance.instance_id
            for instance in await cloud.list(owner.name)
            if instance.state is not InstanceState.ENDED
        }
        if left and not await wait():
            break
    for instance_id in ids:
        if instance_id in lives and instance_id not in left:
            lives.learn(instance_id, LifeInput.SEEN_ENDED)
    await ledger.record(LedgerEntry(slot=slot, transitions=lives.drain()))
    return ReleasedInstances(instance_ids=ids, still_there=tuple(sorted(left)))

"""Releasing everything while no market is played: what `spotline down --release` does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from spotline.application.cloud_actuator.listings import silent_in
from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.ports import (
    CloudProvider,
    Instance,
    InstanceState,
    Ledger,
    LedgerEnd,
    LedgerEntry,
)
from spotline.domain.ledger.instance_life import Graces, LifeInput

RELEASED = "released by hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedInstances:
    """Instances that were asked to end, and those of them that the cloud still shows.

    `unheard` are the tokens of launches that were cut off or not answered, and of which nothing is
    shown: they may have launched nothing, or show late.
    """

    instance_ids: tuple[str, ...]
    still_there: tuple[str, ...]
    unheard: tuple[str, ...] = ()


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
    # Also what the ledger does not know: an orphan costs as much. And what was asked to end before.
    look = _Look({instance.instance_id: instance.offering_id for instance in held}, lives)
    look.tokens = {life.token for life in lives.unknown_launches()}
    look.tokens |= {
        launch.token
        for intent in await ledger.pending()
        for launch in intent.launches
        if launch.permitted
    }
    running = look.alive(await cloud.list(owner.name))
    known = {life.instance_id for life in lives.all() if life.ours and not life.is_launch}
    ids = tuple(sorted({instance.instance_id for instance in held} | running | known))
    if not ids and not look.tokens:
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
    left, asked = set(ids), set(ids)
    while True:
        left = look.left(left, await cloud.list(owner.name))
        asked |= left
        if not left and not look.tokens:
            break
        # What was not found the first time may be by now.
        await cloud.terminate(owner, sorted(left))
        if not await wait():
            break
    ids = tuple(sorted(asked))
    for instance_id in ids:
        if instance_id in lives and instance_id not in left:
            lives.learn(instance_id, LifeInput.SEEN_ENDED)
    await ledger.record(LedgerEntry(slot=slot, transitions=lives.drain()))
    return ReleasedInstances(
        instance_ids=ids, still_there=tuple(sorted(left)), unheard=tuple(sorted(look.tokens))
    )


class _Look:
    """What the cloud shows of what is to end, look after look.

    `tokens` are those of launches of which nothing was shown yet.
    """

    def __init__(self, offerings: dict[str, str], lives: LivesInHand) -> None:
        self._offerings, self._lives = offerings, lives
        self._shown: set[str] = set()
        self.tokens: set[str] = set()

    def alive(self, listing: Sequence[Instance]) -> set[str]:
        """What is shown and has not ended."""
        self._offerings |= {one.instance_id: one.offering_id for one in listing}
        self._shown |= {one.instance_id for one in listing}
        self.tokens -= {one.token for one in listing}
        return {one.instance_id for one in listing if one.state is not InstanceState.ENDED}

    def left(self, ids: set[str], listing: Sequence[Instance]) -> set[str]:
        """What of these is not seen to be over, and what else is shown by now."""
        alive, silent = self.alive(listing), silent_in(listing)
        shown = {one.instance_id for one in listing}
        return alive | {
            instance_id
            for instance_id in ids - shown
            if not self._was_shown(instance_id) or self._offerings.get(instance_id) in silent
        }

    def _was_shown(self, instance_id: str) -> bool:
        """Whether it was there to be seen: what is fresh may show late. An ended life is not in hand."""
        life = self._lives.get(instance_id)
        return instance_id in self._shown or life is None or life.shown

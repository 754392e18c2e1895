"""Jobs whose instances end right after their start: counted with each loss, paused, gone on with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spotline.application.cloud_actuator.log_fold import LogView
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import Ledger
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.ledger.cooldowns import Cooldown, CoolingScope
from spotline.domain.ledger.crash_loops import (
    CrashRules,
    EarlyEnd,
    crashed,
    freeze_id_of,
    is_loop,
    loop_freeze,
)
from spotline.domain.ledger.intents import HeldInstance
from spotline.domain.limits.freezes import FreezeReason
from spotline.domain.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """What follows from losses: cool-downs to be recorded, and stops of buying to be told."""

    cooldowns: tuple[Cooldown, ...] = ()
    frozen: tuple[BuyingFrozen, ...] = ()


class Looping:
    """Watches for jobs that crash again and again."""

    def __init__(self, ledger: Ledger, rules: CrashRules) -> None:
        self._ledger, self._rules = ledger, rules

    async def lost(
        self,
        lost: Sequence[HeldInstance],
        log: LogView | None,
        at: Moment,
        lost_s: int,
        noticed: Collection[str],
    ) -> Loops:
        """Count losses at `lost_s` into the slot; those that were `noticed` are the cloud's doing."""
        if log is None or not log.named:
            return Loops()
        opened_ns = at.ts_ns - at.offset_s * NS_PER_S
        ends = [
            EarlyEnd(
                job_id=instance.job_id,
                launched_ns=_moment_ns(at, opened_ns, named.slot, named.offset_s),
                ended_ns=opened_ns + lost_s * NS_PER_S,
            )
            for instance in lost
            if (named := log.named.get(instance.instance_id)) is not None
            and instance.noticed_slot < 0
            and instance.instance_id not in noticed
        ]
        if not ends:
            return Loops()
        cooldowns = crashed(ends, await self._ledger.cooldowns(), self._rules)
        return Loops(
            cooldowns=cooldowns,
            frozen=tuple(
                BuyingFrozen(freeze=loop_freeze(one, slot=at.slot))
                for one in cooldowns
                if is_loop(one, self._rules)
            ),
        )

    async def over(self, log: LogView | None, at: Moment) -> tuple[Event, ...]:
        """End the stops whose pause is over, and those of jobs that ended."""
        frozen = () if log is None else log.freezes.values()
        loops = {one.freeze_id: one for one in frozen if one.reason is FreezeReason.CRASH_LOOP}
        if log is None or not loops:
            return ()
        resting = {
            freeze_id_of(one.key)
            for one in await self._ledger.cooldowns()
            if one.scope is CoolingScope.JOB and one.cools(at.ts_ns, 0)
        }
        return tuple(
            BuyingUnfrozen(
                freeze_id=freeze_id,
                detail="its pause is over" if freeze.key in log.says.jobs else "its job has ended",
                slot=at.slot,
                ts_event_ns=at.ts_ns,
            )
            for freeze_id, freeze in sorted(loops.items())
            if freeze_id not in resting or freeze.key not in log.says.jobs
        )


def _moment_ns(at: Moment, opened_ns: int, slot: int, offset_s: int) -> int:
    return opened_ns - ((at.slot - slot) * at.slot_s - offset_s) * NS_PER_S

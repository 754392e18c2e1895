"""What instances cost in the end: asked of their biller once they are seen to have ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spotline.application.cloud_actuator.ports import BilledInstance, InstanceBiller, Ledger
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.units import NS_PER_S

# A cloud shows what has ended for about an hour (EC2: "remains visible for a short while"). What
# cannot be told by then keeps its estimate, until an export of the provider says more.
_ASK_AGAIN_NS = 60 * NS_PER_S
_GIVE_UP_NS = 3 * 3600 * NS_PER_S
# A process that starts takes up what ended so long before the last that was recorded.
_TAKEN_UP_NS = 7 * 24 * 3600 * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BillsSettled:
    """What became of the bills of instances that have ended.

    Parameters
    ----------
    settled
        Ids of those that are settled now.
    waiting
        How many wait for the word of their biller.
    given_up
        Ids of those that keep their estimate.
    problem
        What the biller said that could not answer, empty for nothing.
    """

    settled: tuple[str, ...] = ()
    waiting: int = 0
    given_up: tuple[str, ...] = ()
    problem: str = ""

    def __bool__(self) -> bool:
        return bool(self.settled or self.given_up or self.problem)


class Settling:
    """Settles what has ended. What waits is taken up again by the next process, from the ledger."""

    def __init__(self, biller: InstanceBiller, ledger: Ledger) -> None:
        self._biller, self._ledger = biller, ledger
        self._waiting: dict[str, tuple[BilledInstance, int]] = {}
        self._over: frozenset[str] = frozenset()
        self._asked_ns, self._now_ns = 0, 0

    @property
    def next_look_ns(self) -> int | None:
        """Market time at which to look again, None where nothing waits."""
        return self._asked_ns + _ASK_AGAIN_NS if self._waiting else None

    async def resume(self, now_ns: int) -> None:
        """Take up what was not settled as the last process ended, shown by the cloud or not.

        It waits as long again: nobody asked while there was no process. Call it before the start
        records anything: the absence may have been long.
        """
        since_ns = await self._ledger.latest_ns() - _TAKEN_UP_NS
        for instance in await self._ledger.unsettled(since_ns):
            self._waiting[instance.instance_id] = (instance, now_ns)
        self._now_ns = max(self._now_ns, now_ns)

    def note(self, ended: Iterable[BilledInstance], now_ns: int) -> None:
        """Note what a look has shown to have ended by now."""
        seen = {instance.instance_id: instance for instance in ended}
        # What is shown no more is asked about no more.
        self._over &= seen.keys()
        for instance_id in sorted(seen.keys() - self._waiting.keys() - self._over):
            self._waiting[instance_id] = (seen[instance_id], now_ns)
        self._now_ns = max(self._now_ns, now_ns)

    async def settle(self) -> BillsSettled:
        """Settle what was noted, as far as the biller knows; what it does not know waits.

        Raises
        ------
        OwnerFenced
            Another process has taken over.
        """
        now_ns = self._now_ns
        known = await self._ledger.settled(sorted(self._waiting)) if self._waiting else frozenset()
        for instance_id in known:
            del self._waiting[instance_id]
        self._over |= known
        if not self._waiting:
            return BillsSettled()
        self._asked_ns = now_ns
        problem = ""
        settlements = []
        try:
            asked = [instance for instance, _ in self._waiting.values()]
            told = await self._biller.final_costs(asked)
            settlements = [word for word in told if word.instance_id in self._waiting]
        except ProviderUnavailable as error:
            problem = str(error)
        if settlements:
            await self._ledger.settle(settlements)
        done = tuple(sorted({settlement.instance_id for settlement in settlements}))
        for instance_id in done:
            del self._waiting[instance_id]
        late = [
            instance_id
            for instance_id, (_, since_ns) in self._waiting.items()
            if now_ns - since_ns >= _GIVE_UP_NS
        ]
        for instance_id in late:
            del self._waiting[instance_id]
        self._over |= {*done, *late}
        return BillsSettled(
            settled=done, waiting=len(self._waiting), given_up=tuple(late), problem=problem
        )

"""What a deadline may need of on-demand in the end, and whether stock has room for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spotline.domain.jobs.program import JobProgram
from spotline.domain.kernels import IntArray

# Slack below which a hard deadline comes before all that may still wait, or may be late.
AT_STAKE_SLOTS = 2


class Rescue(NamedTuple):
    """On-demand instances that a job needs from a slot on, until before another, if spot fails it."""

    first_slot: int
    end_slot: int
    instances: int


def rescue_of(
    program: JobProgram, slot: int, slots_left: int, left_quanta: int, overhead_s: int = 0
) -> Rescue | None:
    """The latest on-demand that still meets a deadline, None where no work or no time is left.

    Parameters
    ----------
    slot
        The slot that is open.
    slots_left
        Slots from the open one until the deadline.
    left_quanta
        Work left.
    overhead_s
        Seconds that pass before it works; at least those of a launch and of an interruption.

    Notes
    -----
    The more work is done, the later it begins: a rescue that has room keeps it.
    """
    if left_quanta <= 0 or slots_left <= 0:
        return None
    first_s = max(overhead_s, program.launch_s, program.interrupted_s)
    # A slot more: the safety net acts a slot before it is too late.
    needed = program.slots_on_demand(left_quanta, first_s) + 1
    return Rescue(slot + max(0, slots_left - needed), slot + slots_left, program.max_instances)


def is_at_stake(program: JobProgram, slack_slots: int) -> bool:
    """Whether a hard deadline may need on-demand soon: an interruption could leave no slack."""
    return program.hard and slack_slots <= AT_STAKE_SLOTS


class RescueClaims:
    """What rescues may need of one stock of on-demand, summed by slot.

    A thousand jobs ask in every slot: of each other they are not asked one by one.

    Parameters
    ----------
    from_slot
        The slot that is open; no rescue begins before it.
    """

    __slots__ = ("_by_job", "_from_slot", "_needed")

    def __init__(self, from_slot: int) -> None:
        self._from_slot = from_slot
        self._needed: IntArray = np.zeros(64, dtype=np.int64)
        self._by_job: dict[str, list[Rescue]] = {}

    def add(self, job_id: str, rescue: Rescue) -> None:
        """Keep what a job may need; it may be said of several places that it could go to."""
        first, end = rescue.first_slot - self._from_slot, rescue.end_slot - self._from_slot
        if end > self._needed.size:
            longer = np.zeros(max(end, 2 * self._needed.size), dtype=np.int64)
            longer[: self._needed.size] = self._needed
            self._needed = longer
        self._needed[first:end] += rescue.instances
        self._by_job.setdefault(job_id, []).append(rescue)

    def has_room(self, job_id: str, rescue: Rescue, stock: int) -> bool:
        """Whether so much stock is enough for a job's rescue and those of all others, whenever they meet."""
        first, end = rescue.first_slot - self._from_slot, rescue.end_slot - self._from_slot
        needed = self._needed[first:end]
        own = self._by_job.get(job_id)
        if own:
            needed = needed.copy()
            for claim in own:
                begins = max(claim.first_slot - self._from_slot, first)
                ends = min(claim.end_slot - self._from_slot, end)
                if begins < ends:
                    needed[begins - first : ends - first] -= claim.instances
        return rescue.instances + int(needed.max(initial=0)) <= stock

"""What a hard deadline may need of on-demand in the end, and whether stock has room for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from spotline.domain.jobs.program import JobProgram

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
    """The latest on-demand that still meets a hard deadline, None where nothing is promised or left.

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
    if not program.hard or left_quanta <= 0 or slots_left <= 0:
        return None
    first_s = max(overhead_s, program.launch_s, program.interrupted_s)
    # A slot more: the safety net acts a slot before it is too late.
    needed = program.slots_on_demand(left_quanta, first_s) + 1
    return Rescue(slot + max(0, slots_left - needed), slot + slots_left, program.max_instances)


def is_at_stake(program: JobProgram, slack_slots: int) -> bool:
    """Whether a hard deadline may need on-demand soon: an interruption could leave no slack."""
    return program.hard and slack_slots <= AT_STAKE_SLOTS


def has_room(rescue: Rescue, others: Iterable[Rescue], stock: int) -> bool:
    """Whether so much stock is enough for a rescue and all others, whenever they meet."""
    meeting = [
        other
        for other in others
        if other.first_slot < rescue.end_slot and rescue.first_slot < other.end_slot
    ]
    # As many as ever are held together are held as one of them begins.
    begins = {rescue.first_slot, *(max(rescue.first_slot, other.first_slot) for other in meeting)}
    return all(
        rescue.instances
        + sum(other.instances for other in meeting if other.first_slot <= at < other.end_slot)
        <= stock
        for at in begins
    )

"""Whether a job can do its work on a reservation before that ends."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.offering import Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedStay:
    """How a job would run on a reservation: `instances` of it, for at most `slots` slots."""

    instances: int
    slots: int


def claim_on(reservation: Reservation, allowed_counts: tuple[int, ...]) -> int:
    """The largest of `allowed_counts` that a reservation has instances for, 0 where none is.

    A job on a reservation may take this many in any slot.
    """
    return max((count for count in allowed_counts if count <= reservation.instances), default=0)


def stay_on(
    reservation: Reservation,
    program: JobProgram,
    from_ns: int,
    *,
    work_quanta: int | None = None,
    overhead_s: int = 0,
    running: bool = False,
) -> ReservedStay | None:
    """How a job would stay on a reservation from a slot that opens at `from_ns` until it is done.

    Parameters
    ----------
    work_quanta
        What is left of its work; None for all of it.
    overhead_s
        Seconds before it works, if these are more than those of a launch.
    running
        It is launched already: only `overhead_s` pass before it works.

    Returns
    -------
    ReservedStay
        Its claim does the work in slots that the reservation covers whole.
    None
        The reservation is too small or ends too early: a job must not begin what it would have to
        leave, for then it would depend on another offering at that very time.
    """
    claim = claim_on(reservation, program.allowed_counts)
    if not claim:
        return None
    left = program.work_quanta if work_quanta is None else work_quanta
    first_s = overhead_s if running else max(program.launch_s, overhead_s)
    slots = program.slots_on_demand(left, first_s, instances=claim)
    covered = reservation.whole_slots(from_ns, program.slot_s)
    if covered is not None and slots > covered:
        return None
    return ReservedStay(instances=claim, slots=slots)

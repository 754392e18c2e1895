"""A job begins on a reservation only what it can finish there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.jobs.program import compile_program
from spotline.domain.jobs.stay import ReservedStay, claim_on, stay_on
from spotline.domain.market.offering import Reservation
from tests.fakes.allocator import SLOT_NS, SLOT_S, START_NS, job


def program_of(**stated):
    made = job(**stated)
    return compile_program(made, made.throughputs[0], slot_s=SLOT_S, first_slot_start_ns=START_NS)


def test_a_claim_is_the_largest_count_that_it_has_instances_for():
    assert claim_on(Reservation(instances=6), (1, 4, 8)) == 4
    assert claim_on(Reservation(instances=8), (1, 4, 8)) == 8
    assert claim_on(Reservation(instances=3), (4, 8)) == 0


def test_what_ends_too_early_or_is_too_small_is_no_place_to_stay():
    program = program_of(instance_hours=8.0, counts=(4,))
    needed = program.slots_on_demand(program.work_quanta, program.launch_s)

    def until(slots: int, instances: int = 4) -> ReservedStay | None:
        ends_ns = START_NS + slots * SLOT_NS
        return stay_on(Reservation(instances=instances, ends_ns=ends_ns), program, START_NS)

    assert until(needed) == ReservedStay(instances=4, slots=needed)
    assert until(needed - 1) is None
    assert until(needed, instances=3) is None
    assert stay_on(Reservation(instances=4), program, START_NS) == until(needed)


@given(st.floats(0.5, 40), st.integers(1, 8), st.integers(1, 60))
def test_a_stay_ends_before_its_reservation(hours, instances, slots):
    program = program_of(instance_hours=hours, counts=(1, 2, 3, 4))
    reservation = Reservation(instances=instances, ends_ns=START_NS + slots * SLOT_NS)

    stay = stay_on(reservation, program, START_NS)

    claim = claim_on(reservation, program.allowed_counts)
    needed = program.slots_on_demand(program.work_quanta, program.launch_s, instances=claim)
    assert (stay is not None) == (needed <= slots)
    if stay is not None:
        assert stay.instances == claim <= instances
        assert START_NS + stay.slots * SLOT_NS <= reservation.ends_ns


def test_what_runs_there_needs_no_launch():
    program = program_of(instance_hours=4.0, counts=(4,))
    whole = Reservation(instances=4, ends_ns=START_NS + SLOT_NS * 3600 // SLOT_S)

    assert stay_on(whole, program, START_NS) is None
    assert stay_on(whole, program, START_NS, running=True) is not None

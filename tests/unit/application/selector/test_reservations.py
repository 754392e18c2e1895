"""Jobs run on a reservation where they can be done on it, and deadlines are kept when it ends."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.adapters.eventlog.manifest import environment
from spotline.contracts.build import event_of
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome
from spotline.domain.jobs.job import Throughput
from spotline.domain.market.offering import Disks, Reservation
from spotline.domain.market.reservations import reserved_offering, with_reservations
from spotline.replay.divergence import SAME
from spotline.replay.handlers import handlers_of
from spotline.replay.parts import answer_in_process
from spotline.replay.verify import verify
from tests.depth import examples
from tests.fakes.allocator import job
from tests.fakes.recorded_run import manifest_of, small_market
from tests.fakes.reserved import SETTINGS, entries_of_run, events_of_run, with_one

SLOTS = 40
MARKET = small_market(slots=SLOTS)


def asked(request_id: str, *, arrives: int, hours: float, slots: int, counts=(1, 2, 3, 4), soft=0):
    """A job of `hours` instance-hours that must be done `slots` after it arrives."""
    made = job(request_id, instance_hours=hours, counts=counts)
    slot_ns = MARKET.slot_s * 10**9
    start_ns = MARKET.start_ns + arrives * slot_ns
    at_ns = start_ns + slots * slot_ns
    deadline = replace(made.deadline, at_ns=at_ns, expires_ns=at_ns)
    return replace(made, start_ns=start_ns, deadline=deadline)


def homes_of(events) -> dict[str, str]:
    return {e.job_id: e.offering_id for e in events if isinstance(e, JobAdmitted)}


def held_of(events, offering_id: str) -> dict[int, int]:
    """On-demand instances of an offering that all jobs together held in every slot."""
    held = {}
    for event in events:
        if isinstance(event, CapacityReported):
            lots = [lot for holding in event.holdings for lot in holding.lots]
            held[event.slot] = sum(
                lot.on_demand + lot.spot for lot in lots if lot.offering_id == offering_id
            )
    return held


@st.composite
def arrivals(draw: st.DrawFn):
    made = []
    for index in range(draw(st.integers(2, 5))):
        counts = draw(st.sampled_from([(1, 2, 3, 4), (4,), (2, 4), (2,)]))
        hours = draw(st.floats(1.0, 3.0 * counts[-1]))
        needed = int(hours * 2 / counts[-1]) + 2
        arrives = draw(st.integers(0, 6))
        slots = min(needed + draw(st.integers(0, 5)), SLOTS - 2 - arrives)
        made.append(asked(f"r{index}", arrives=arrives, hours=hours, slots=slots, counts=counts))
    return made


@settings(deadline=None, max_examples=examples(20))
@given(arrivals(), st.integers(2, 8), st.integers(3, 30))
def test_hard_deadlines_are_kept_wherever_a_reservation_ends(jobs, instances, lasts):
    market = with_one(MARKET, instances=instances, slots=lasts)
    reserved = market.offerings[-1].offering_id

    events = events_of_run(market, jobs)

    closed = {e.job_id: e.outcome for e in events if isinstance(e, JobClosed)}
    assert set(closed.values()) == {JobOutcome.COMPLETED}
    assert len(closed) == len(jobs)
    for slot, held in held_of(events, reserved).items():
        assert held <= (instances if slot < lasts else 0)


def test_a_job_that_can_be_done_there_runs_on_the_reservation_for_nothing():
    market = with_one(MARKET, instances=4, slots=20)

    events = events_of_run(market, [asked("r", arrives=2, hours=8.0, slots=20)])

    assert set(homes_of(events).values()) == {market.offerings[-1].offering_id}
    (closed,) = (event for event in events if isinstance(event, JobClosed))
    assert (closed.outcome, closed.cost_micro_usd) == (JobOutcome.COMPLETED, 0)
    assert set(held_of(events, market.offerings[-1].offering_id).values()) == {0, 4}


def test_a_job_that_cannot_be_done_before_its_end_runs_elsewhere():
    market = with_one(MARKET, instances=4, slots=5)

    events = events_of_run(market, [asked("r", arrives=2, hours=8.0, slots=20)])

    assert homes_of(events)
    assert market.offerings[-1].offering_id not in homes_of(events).values()


def test_a_second_job_finds_no_room_beside_the_claim_of_the_first():
    market = with_one(MARKET, instances=6, slots=30)
    first = asked("r1", arrives=2, hours=16.0, slots=20)
    jobs = [
        first,
        asked("r2", arrives=3, hours=8.0, slots=20),
        asked("r3", arrives=3, hours=3.0, slots=20, counts=(2,)),
    ]

    homes = homes_of(events_of_run(market, jobs))

    reserved = market.offerings[-1].offering_id
    assert [homes[each.job_id] == reserved for each in jobs] == [True, False, True]


def of_plan(market, *prices, money):
    """The market with a plan's offering beside each of its first ones."""
    planned = [
        reserved_offering(
            base,
            "sp",
            Reservation(
                instances=money // price,
                sunk_price_micro_usd=price,
                plan="sp",
                plan_micro_usd_per_hour=money,
            ),
        )
        for base, price in zip(market.offerings, prices, strict=False)
    ]
    return with_reservations(market, planned)


def plan_money(market, events) -> list[int]:
    """What all jobs together used of a plan in every slot, micro-USD an hour."""
    planned = [one for one in market.offerings if one.reservation and one.reservation.plan]
    by_offering = [
        (one.reservation.sunk_price_micro_usd, held_of(events, one.offering_id)) for one in planned
    ]
    slots = by_offering[0][1]
    return [sum(price * held[slot] for price, held in by_offering) for slot in slots]


def test_offerings_of_a_plan_are_filled_first_and_share_its_money():
    market = of_plan(MARKET, 1_000_000, 1_000_000, money=6_000_000)
    jobs = [
        asked("p1", arrives=2, hours=16.0, slots=20),
        asked("p2", arrives=3, hours=8.0, slots=20),
        asked("p3", arrives=3, hours=3.0, slots=20, counts=(2,)),
    ]

    events = events_of_run(market, jobs)

    planned = [homes_of(events)[each.job_id].endswith("/reserved/sp") for each in jobs]
    # Each offering alone has six; the money of all is enough for six.
    assert planned == [True, False, True]
    assert max(plan_money(market, events)) == 6_000_000
    costs = {e.job_id: e.cost_micro_usd for e in events if isinstance(e, JobClosed)}
    assert costs[jobs[0].job_id] == costs[jobs[2].job_id] == 0


@given(
    hours=st.lists(st.sampled_from([2.0, 4.0, 12.0]), min_size=1, max_size=5),
    prices=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    money=st.integers(4, 10),
)
@settings(max_examples=4, deadline=None)
def test_no_slot_uses_more_of_a_plan_than_its_money(hours, prices, money):
    market = of_plan(MARKET.between(0, 16), *prices, money=money)
    jobs = [
        asked(f"m{number}", arrives=2 + number // 2, hours=each, slots=13)
        for number, each in enumerate(hours)
    ]

    assert max(plan_money(market, events_of_run(market, jobs))) <= money


def test_a_log_with_a_plan_verifies():
    market = of_plan(MARKET, 1_000_000, 2_000_000, money=4_000_000)
    entries = entries_of_run(market, [asked("v", arrives=2, hours=6.0, slots=20)])

    manifest = replace(manifest_of(entries), settings=SETTINGS)
    assert verify(entries, handlers_of(SETTINGS), manifest, here=environment()).exit_code == SAME


def test_a_job_moves_to_a_reservation_that_another_has_done_with():
    market = with_one(MARKET, instances=4, slots=36)
    reserved = market.offerings[-1].offering_id
    first, second = (
        asked("r1", arrives=8, hours=8.0, slots=12, counts=(4,)),
        asked("r2", arrives=9, hours=24.0, slots=24, counts=(4,)),
    )

    events = events_of_run(market, [first, second])

    homes = homes_of(events)
    assert (homes[first.job_id], homes[second.job_id] == reserved) == (reserved, False)
    moves = [
        (event.job_id, event.lots[0].offering_id, event.slot)
        for event in events
        if isinstance(event, AllocationDecided) and event.move is not None
    ]
    (done,) = (e for e in events if isinstance(e, JobClosed) and e.job_id == first.job_id)
    assert (second.job_id, reserved, done.slot + 1) in moves
    assert max(held_of(events, reserved).values()) == 4


def slower_of(job):
    """It is found to run at six tenths of what was stated."""
    return ThroughputReestimated(
        job_id=job.job_id,
        tenant=job.tenant,
        throughputs=(Throughput(offering="*", alpha=0.6),),
        reports=5,
        factor_ppm=600_000,
        half_width_ppm=10_000,
    )


def test_a_job_slower_than_it_was_taken_for_leaves_and_keeps_its_deadline():
    market = with_one(MARKET, instances=4, slots=9)
    reserved = market.offerings[-1].offering_id
    slow = asked("r", arrives=1, hours=14.0, slots=22)

    log = entries_of_run(market, [slow], {3: slower_of(slow)})

    events = [event_of(entry) for entry in log]
    moves = [e.move for e in events if isinstance(e, AllocationDecided) and e.move is not None]
    assert homes_of(events) == {slow.job_id: reserved}
    assert [move.from_offering_id for move in moves] == [reserved]
    assert all(not held for slot, held in held_of(events, reserved).items() if slot >= 9)
    (closed,) = (event for event in events if isinstance(event, JobClosed))
    assert closed.outcome is JobOutcome.COMPLETED
    manifest = replace(manifest_of(log), settings=SETTINGS)
    assert verify(log, handlers_of(SETTINGS), manifest, here=environment()).exit_code == SAME


def test_a_job_that_leaves_is_planned_with_the_notice_of_its_next_home():
    market = with_one(MARKET, instances=4, slots=9)
    market = replace(
        market,
        offerings=tuple(
            replace(offering, notice_lead_s=60 * index)
            for index, offering in enumerate(market.offerings)
        ),
    )
    leads = {offering.offering_id: offering.notice_lead_s for offering in market.offerings}
    slow = asked("r", arrives=1, hours=14.0, slots=22)
    tasks = []

    def answer(call):
        tasks.extend(call.request.tasks)
        return answer_in_process(call)

    entries_of_run(market, [slow], {3: slower_of(slow)}, answer)

    assert len({task.offering_id for task in tasks}) == 2
    assert [task.notice_lead_s for task in tasks] == [leads[task.offering_id] for task in tasks]


DISKS = Disks(gb=730, micro_usd_per_gb_month=1_000_000)


def test_a_reservation_is_used_whole_at_the_price_of_its_disks_and_the_log_verifies():
    with_disks = replace(
        MARKET, offerings=tuple(replace(one, disks=DISKS) for one in MARKET.offerings)
    )
    market = with_one(with_disks, instances=4)
    jobs = [asked("a", arrives=1, hours=8, slots=20)]

    entries = entries_of_run(market, jobs)

    events = [event_of(entry) for entry in entries]
    (home,) = homes_of(events).values()
    assert home.endswith("/reserved/block")
    held = held_of(events, home)
    assert max(held.values()) == 4
    # Half-hour slots at a dollar an hour for the disks of each instance.
    (closed,) = [event for event in events if isinstance(event, JobClosed)]
    assert closed.cost_micro_usd == sum(held.values()) * 500_000
    manifest = replace(manifest_of(entries), settings=SETTINGS)
    assert verify(entries, handlers_of(SETTINGS), manifest, here=environment()).exit_code == SAME


def test_disks_change_no_choice_where_all_offerings_have_the_same():
    def held(market):
        events = events_of_run(with_one(market, instances=2), jobs)
        return [
            (event.job_id, event.slot, event.lots)
            for event in events
            if isinstance(event, AllocationDecided)
        ]

    jobs = [asked("a", arrives=1, hours=8, slots=10), asked("b", arrives=2, hours=4, slots=8)]
    small = Disks(gb=1, micro_usd_per_gb_month=730)
    short = MARKET.between(0, 12)
    offerings = tuple(replace(one, disks=small) for one in short.offerings)

    assert held(short)
    assert held(replace(short, offerings=offerings)) == held(short)

"""Hard deadlines where on-demand is short: who counts on its stock, and who gets it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spotline.application.selector.options import SelectorOptions, where_uncounted
from spotline.bench.fleet.jobs import CLASSES, fleet_jobs
from spotline.domain.jobs.job import Deadline, DeadlineKind, Job
from spotline.domain.market.market import OBSERVED, Market
from spotline.domain.units import NS_PER_S
from spotline.replay.closed_loop import course_unforecast, run_rule
from spotline.replay.clouds import Information
from spotline.replay.summary import JobLife
from tests.fakes.recorded_run import small_market

SLOTS = 24
GANG = next(kind for kind in CLASSES if kind.name == "gang")


def short_market(offerings: int) -> Market:
    """No spot; the first offering has eight on demand and is the cheapest, others have plenty."""
    market = small_market(slots=SLOTS)
    taken = market.offerings[:offerings]
    shape = (SLOTS, len(taken))
    stock = np.full(shape, 1_000, dtype=np.int64)
    stock[:, 0] = 8
    price = np.full(shape, 4_000_000, dtype=np.int64)
    price[:, 0] = 3_000_000
    return replace(
        market,
        offerings=taken,
        spot_price_micro_usd=np.full(shape, 1_000_000, dtype=np.int64),
        spot_available=np.zeros(shape, dtype=np.int64),
        spot_provenance=np.full(shape, OBSERVED, dtype=market.spot_provenance.dtype),
        on_demand_price_micro_usd=price,
        on_demand_available=stock,
        on_demand_provenance=np.full(shape, OBSERVED, dtype=market.on_demand_provenance.dtype),
        quoted_ns=market.quoted_ns[:, : len(taken)].copy(),
    )


def gang(market: Market, job: Job, *, hard: bool, deadline_slots: int) -> Job:
    at_ns = job.start_ns + deadline_slots * market.slot_s * NS_PER_S
    late_ns = 0 if hard else 4 * market.slot_s * NS_PER_S
    kind = DeadlineKind.HARD if hard else DeadlineKind.SOFT
    return replace(job, deadline=Deadline(kind=kind, at_ns=at_ns, expires_ns=at_ns + late_ns))


def two_gangs(market: Market) -> list[Job]:
    """Two gangs of eight that arrive together, with the same work."""
    kind = replace(GANG, share=1.0, tightness=(0.5, 0.5), deadline_slots=(12, 12))
    drawn = fleet_jobs(market, 2, 1, classes=[kind], arriving=1)
    return [replace(job, work=drawn[0].work) for job in drawn]


def lived(
    market: Market, jobs: list[Job], *, rescue_room: bool, clearing: bool = True, soft: bool = False
) -> list[JobLife]:
    options = SelectorOptions(
        rehearsals=0, clearing=clearing, rescue_room=rescue_room, rescues_soft_deadlines=soft
    )
    return run_rule(course_unforecast(market), jobs, "msu", options, 0).lives(jobs)


def test_two_hard_deadlines_do_not_count_on_the_same_stock() -> None:
    market = short_market(2)
    jobs = [gang(market, job, hard=True, deadline_slots=12) for job in two_gangs(market)]

    alike = lived(market, jobs, rescue_room=False)
    apart = lived(market, jobs, rescue_room=True)

    assert [life.on_time for life in alike].count(False) == 1
    assert all(life.on_time for life in apart)


def test_a_soft_deadline_counts_on_what_rescues_leave_and_takes_none_from_a_hard_one() -> None:
    market = short_market(2)
    first, second = two_gangs(market)
    for kinds in ((False, False), (True, False), (False, True)):
        jobs = [
            gang(market, job, hard=hard, deadline_slots=12)
            for job, hard in zip((first, second), kinds, strict=True)
        ]

        together = lived(market, jobs, rescue_room=True)
        apart = lived(market, jobs, rescue_room=True, soft=True)

        assert not all(life.on_time for life in together)
        if kinds == (False, True):
            # Who came first has the cheaper place: a hard deadline does not make way for a soft one.
            assert apart[1].on_time
        else:
            assert all(life.on_time for life in apart)


def test_where_all_stock_may_be_needed_a_job_still_has_a_home() -> None:
    market = short_market(1)
    jobs = [gang(market, job, hard=True, deadline_slots=12) for job in two_gangs(market)]

    assert lived(market, jobs, rescue_room=True) == lived(market, jobs, rescue_room=False)


def test_a_hard_deadline_at_stake_comes_before_a_soft_one_with_less_slack() -> None:
    market = short_market(1)
    first, second = two_gangs(market)
    jobs = [
        gang(market, first, hard=False, deadline_slots=7),
        gang(market, second, hard=True, deadline_slots=9),
    ]

    by_slack = lived(market, jobs, rescue_room=False, clearing=False)
    by_stake = lived(market, jobs, rescue_room=True, clearing=False)
    cleared = lived(market, jobs, rescue_room=True)

    assert not by_slack[1].on_time
    assert by_stake[1].on_time
    assert cleared[1].on_time


def uncounted(market: Market, jobs: list[Job], **changes: object) -> list[JobLife]:
    options = replace(where_uncounted(SelectorOptions(rehearsals=0)), **changes)
    hidden = Information.CENSORED
    run = run_rule(course_unforecast(market, hidden), jobs, "on_demand_only", options, 0, hidden)
    return run.lives(jobs)


def test_where_launches_are_refused_a_hard_deadline_has_what_soft_ones_hold() -> None:
    # It is not told that there are eight: the first to ask has them, and would keep them to its end.
    market = short_market(1)
    first, second = two_gangs(market)
    soft = gang(market, first, hard=False, deadline_slots=8)
    hard = gang(market, replace(second, start_ns=first.start_ns), hard=True, deadline_slots=9)
    late = gang(market, first, hard=True, deadline_slots=8)

    held_on = uncounted(market, [soft, hard], beliefs="")
    let_go = uncounted(market, [soft, hard])
    both_hard = uncounted(market, [late, hard])

    assert not held_on[1].on_time
    assert let_go[1].on_time
    assert not let_go[0].on_time
    # Of two hard ones the first keeps what it has.
    assert both_hard[0].on_time
    assert not both_hard[1].on_time

"""The value table of a job among zones, and the choices made on it."""

from dataclasses import replace

import numpy as np
import pytest

from spotline.domain.beliefs.zone_beliefs import ZoneBeliefs, ZoneLaws
from spotline.domain.market.run_law import RunLaw
from spotline.domain.solvers.zone_choice import (
    IDLE,
    ON_DEMAND,
    SPOT,
    ZoneView,
    best_without_launch,
    held_cost,
    is_worth_launching,
    launch_costs,
    probe_gain,
)
from spotline.domain.solvers.zone_table import ZoneJob, build_zone_table


def job_of(*, spot=(1.0, 1.0), work_s=12_000, deadline_ticks=40, wait_usd=0.0):
    return ZoneJob(
        work_s=work_s,
        deadline_ticks=deadline_ticks,
        tick_s=600,
        restart_s=720,
        region_of=np.array([0, 1]),
        spot_usd=np.array(spot),
        on_demand_usd=np.array([5.0, 4.0]),
        egress_usd=np.array([[0.0, 2.0], [2.0, 0.0], [0.0, 0.0]]),
        overhead_s=np.full((3, 2), 720),
        wait_usd=wait_usd,
    )


def laws_of(down, up):
    law = RunLaw(age_starts=(1, 4), ends=np.array([[down, down], [up, up]]))
    return ZoneLaws(laws=(law,), weights=np.ones((2, 1)))


def view_of(job, **changes):
    values = {
        "tick": 0,
        "slack_s": job.slack_s,
        "kind": IDLE,
        "zone": -1,
        "source": -1,
        "overhead_left_s": 0,
        "spot_usd": job.spot_usd,
    }
    return ZoneView(**{**values, **changes})


def test_spot_that_is_hardly_ever_lost_costs_its_ticks():
    job = job_of()
    table = build_zone_table(job, laws_of(0.5, 1e-6))
    beliefs = ZoneBeliefs.before(table.laws)
    beliefs.observe(0, up=True)
    view = view_of(job, kind=SPOT, zone=0, source=0)
    # 12,000 s are 20 ticks, the last of which is free; a table is exact to a tick, not below.
    assert 19.0 <= held_cost(table, view, beliefs) <= 20.0
    # A move adds egress and a restart of 1.2 ticks.
    assert 22.2 <= launch_costs(table, view, beliefs.when_up())[1] <= 23.2


def test_spot_that_hardly_ever_comes_costs_on_demand_in_the_cheapest_region():
    job = job_of()
    table = build_zone_table(job, laws_of(1e-6, 0.5))
    choice = best_without_launch(table, view_of(job), ZoneBeliefs.before(table.laws))
    ticks = -(-(12_000 + 720) // 600)
    assert (ticks - 2) * 4.0 <= choice.cost_usd <= ticks * 4.0


def test_more_slack_never_costs_more():
    table = build_zone_table(job_of(), laws_of(0.1, 0.2))
    for values in (table.held, table.idle, table.bought):
        assert (np.diff(values, axis=-1) <= 1e-3).all()


def test_waiting_may_be_given_a_price():
    laws = laws_of(0.1, 0.2)
    free, dear = (build_zone_table(job_of(wait_usd=usd), laws) for usd in (0.0, 0.5))
    assert (dear.idle - free.idle).min() >= -1e-4
    assert dear.idle[0, 2, 0, -1] > free.idle[0, 2, 0, -1]


def test_too_little_slack_for_a_launch_makes_it_huge():
    job = job_of()
    table = build_zone_table(job, laws_of(0.1, 0.2))
    view = view_of(job, slack_s=job.floor_s + 719)
    assert (launch_costs(table, view, ZoneBeliefs.before(table.laws).when_up()) >= 1e9).all()


def test_on_demand_goes_on_where_spot_is_hopeless_and_ends_where_it_is_not():
    job = job_of()
    for down, kind in ((1e-6, ON_DEMAND), (0.9, IDLE)):
        table = build_zone_table(job, laws_of(down, 0.01))
        beliefs = ZoneBeliefs.before(table.laws)
        for zone in (0, 1):
            beliefs.observe(zone, up=False)
        view = view_of(job, kind=ON_DEMAND, source=1, slack_s=3000 if kind == ON_DEMAND else 9000)
        assert best_without_launch(table, view, beliefs).kind == kind


def test_a_dear_zone_is_not_worth_a_launch_nor_a_probe():
    job = job_of(spot=(1.0, 30.0))
    table = build_zone_table(job, laws_of(0.3, 0.05))
    beliefs = ZoneBeliefs.before(table.laws)
    view = view_of(job)
    costs = launch_costs(table, view, beliefs.when_up())
    assert is_worth_launching(table, view, beliefs, 0, float(costs[0]))
    assert not is_worth_launching(table, view, beliefs, 1, float(costs[1]))
    assert probe_gain(table, view, beliefs, 1) <= 1e-6


def test_a_dearer_tick_than_the_tables_makes_a_launch_dearer_by_it():
    job = job_of()
    table = build_zone_table(job, laws_of(0.3, 0.05))
    dists = ZoneBeliefs.before(table.laws).when_up()
    view = view_of(job)
    later = replace(view, spot_usd=job.spot_usd + np.array([0.25, 0.0]))
    risen = launch_costs(table, later, dists) - launch_costs(table, view, dists)
    np.testing.assert_allclose(risen, [0.25, 0.0])


def test_laws_of_other_zones_than_the_jobs_are_refused():
    laws = laws_of(0.1, 0.2)
    with pytest.raises(ValueError, match="2 zones, are of 1"):
        build_zone_table(job_of(), ZoneLaws(laws=laws.laws, weights=np.ones((1, 1))))

"""A method that is not told how often spot is taken back."""

import os
from pathlib import Path

import pytest

from spotline.bench.placement.interrupted import NO_RISK, interrupted
from spotline.bench.placement.settings_real import read_tables
from spotline.bench.placement.sweeps import METHOD_IDS, OURS, RunTally
from spotline.bench.placement.unaware import Unaware, without_risk
from spotline.domain.placement.interface import CostBasis
from spotline.domain.placement.methods.registry import METHODS
from tests.unit.domain.placement.worlds import graph_of, job_of, moment_of

DATA = Path(os.environ.get("SPOTLINE_DATA", "../shared/data"))
HAS_DATA = (DATA / "network-skyplane").is_dir() and (DATA / "spot-traces-skypilot").is_dir()


def test_who_is_not_told_the_risk_takes_the_cheaper_region():
    job = job_of(restart_s=600.0, checkpoint_interval_iterations=100)
    moment = moment_of(graph_of([30, 30], price=[1.0, 1.1], interruptions=[1.0, 0.0]))
    method = METHODS["spotline"]

    (told,) = method.place([job], moment)
    (untold,) = Unaware(method).place([job], moment)

    assert [share.region_id for share in told.path] == ["b"]
    assert [share.region_id for share in untold.path] == ["a"]


def test_nothing_but_the_rates_is_hidden():
    moment = moment_of(graph_of([3, 4], egress=0.1, interruptions=[1.0, 0.5]))

    seen = without_risk(moment)

    assert all(region.interruptions_per_hour == 0 for region in seen.residual.graph.regions)
    assert seen.residual.gpus.tolist() == [3, 4]
    graph = moment.residual.graph
    assert (seen.residual.graph.egress_usd_per_gb == graph.egress_usd_per_gb).all()
    assert (seen.residual.bytes_per_s == moment.residual.bytes_per_s).all()
    seen.residual.gpus[0] = 0
    assert moment.residual.gpus[0] == 3


@pytest.mark.skipif(not HAS_DATA, reason="no recorded data here")
def test_interruptions_are_the_same_for_all_and_cost_money():
    figures = interrupted(RunTally(), read_tables(DATA, CostBasis.RENT), 1)

    rows = figures["methods"]
    assert {*METHOD_IDS, NO_RISK} <= set(rows)
    assert rows[OURS]["strikes"] > 0
    assert rows[OURS]["lost_iterations"] > 0
    assert rows[OURS]["cost_change_percent_against_calm"] > 0
    assert set(figures["knowing"][f"{OURS}_mean"]) == {"jct_change_percent", "cost_change_percent"}

"""The "Can't Be Late" benchmark: rules of a tick, policies, traces, scores, JSON."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from spotline.bench.cant_be_late import (
    policies,
    report,
    rule_policies,
    rules,
    single,
    table_runs,
    ticks,
    traces,
    zones,
)
from spotline.bench.cant_be_late.clairvoyant import clairvoyant_requests
from spotline.bench.cant_be_late.instance_table import InstanceTask, solve
from spotline.bench.cant_be_late.rules import Variant
from spotline.bench.cant_be_late.ticks import (
    NONE,
    ON_DEMAND,
    SPOT,
    TickPrices,
    TickTerms,
    Windows,
)
from spotline.cli.main import app
from spotline.contracts.errors import ContractError
from spotline.domain.market.run_law import learn_mix
from tests.depth import examples
from tests.reference.run_tracker import RunTracker

TICK_S = 600
START = np.zeros(1, dtype=np.int64)
DATA = Path(os.environ.get("SPOTLINE_DATA", "../shared/data"))
REAL = DATA / "spot-traces-skypilot" / "availability" / "1-node" / "aws-02-15-2023"


def flags(text):
    return np.array([int(flag) for flag in text], dtype=np.uint8)[:, np.newaxis]


def job(*, work=6, deadline=12, overhead_s=180):
    return task_of(work * TICK_S, deadline, overhead_s)


def task_of(work_s, deadline_ticks, overhead_s=180):
    return InstanceTask(
        terms=TickTerms(work_s, deadline_ticks, overhead_s, TICK_S),
        spot_usd_per_tick=1.0,
        on_demand_usd_per_tick=3.0,
    )


def window(up):
    return Windows(up=up, starts=START)


def requested(requests, up, task):
    """Spot, on-demand, idle ticks and the finishing tick of given requests."""
    return ticks.run_requests(task.terms, window(flags(up)), np.array([requests]))[0].tolist()


def rule(code, up, task):
    return rule_policies.run_rule(code, task.terms, window(flags(up)), np.array([0.5]), 3.0)[
        0
    ].tolist()


def optimum(up, task):
    """Requests of the clairvoyant optimum and their cost in micro-USD."""
    return clairvoyant_requests(up, task.terms, TickPrices(spot=1_000_000, on_demand=3_000_000))


def cost(runs):
    return 1_000_000 * (runs[0] + 3 * runs[1])


MIX = learn_mix([flags("0011101110010111110001110")[:, 0], flags("1111101111")[:, 0]])


def solved(task):
    return solve(task, MIX.chain)


def learned_run(up, task, table):
    ticks = min(task.terms.deadline_ticks, len(up))
    beliefs = table_runs.filter_beliefs(window(up), 0, ticks, MIX.chain, MIX.first)
    return table_runs.run_table(
        table.values, table.grid_s, task.terms, task.prices, beliefs, window(up)
    )[0].tolist()


def learned_decisions(up, task, table):
    """What the learned policy holds in each tick, one observation at a time."""
    tracker = RunTracker(MIX)
    standing, taken = ticks.BEFORE, []
    for now in up:
        if standing.done_s >= task.terms.work_s:
            break
        belief = tracker.observe(bool(now[0])).astype(np.float32)
        request = table_runs.best_request(
            table.values,
            table.grid_s,
            task.terms,
            task.prices,
            belief,
            ticks.noticed(standing, now),
            bool(now[0]),
        )
        held = ticks.enforced(task.terms, standing, request, now)
        standing = ticks.after_tick(task.terms, standing, held)
        taken.append(held)
    return taken


# The rules of a tick.


def test_a_launch_credits_the_tick_less_the_overhead_and_whole_ticks_are_charged():
    # 180 s are lost once, so six ticks of work take seven, the last one for 180 s of work.
    runs = requested([SPOT] * 12, "1" * 12, job())

    assert runs == [7, 0, 0, 7]


def test_an_overhead_longer_than_a_tick_carries_over_and_never_stacks():
    # 720 s: nothing in the first tick, 480 s in the second; 6 ticks of work end in the eighth.
    runs = requested([SPOT] * 14, "1" * 14, job(overhead_s=720, deadline=14))

    assert runs == [8, 0, 0, 8]


def test_every_change_of_type_sets_the_overhead_anew():
    runs = requested([SPOT, ON_DEMAND, SPOT, *[ON_DEMAND] * 9], "1" * 12, job())

    # Four launches of 180 s: 4 x 420 s and then whole ticks: 3600 = 1680 + 1920 s in 4 more.
    assert runs == [2, 6, 0, 8]


def test_spot_that_is_not_there_is_an_idle_tick():
    runs = requested([SPOT, SPOT, *[ON_DEMAND] * 9], "0" * 12, job())

    assert runs == [0, 7, 2, 9]


def test_on_demand_is_forced_when_slack_falls_below_overhead_and_a_tick():
    # Slack is 6 ticks; after 5 idle ones it is 600 s < 780 s: on-demand from tick 6 on.
    runs = requested([NONE] * 12, "1" * 12, job())

    assert runs == [0, 7, 5, 12]


def test_spot_is_not_launched_in_the_forced_zone():
    # Slack is 600 s < 780 s from the start.
    runs = requested([SPOT] * 6, "1" * 6, job(deadline=6, work=5))

    assert runs == [0, 6, 0, 6]


def test_a_productive_spot_stays_in_the_forced_zone_and_if_interrupted_is_late():
    # Slack 900 s on launching (allowed by the rules, not by the safe ones) leaves 720 s < 780 s.
    task = task_of(5 * TICK_S - 300, 6)

    kept = requested([SPOT, *[ON_DEMAND] * 5], "111111", task)
    late = requested([SPOT, *[ON_DEMAND] * 5], "110111", task)

    assert kept == [5, 0, 0, 5]
    # Two ticks of spot (1020 s), one idle, then on-demand: 1680 s with a new overhead.
    assert late == [2, 4, 1, 7]


# Policies.


@pytest.mark.slow  # kernels of every policy are compiled
@pytest.mark.parametrize("overhead_s", [72, 180, 360, 720])
@settings(max_examples=examples(40), deadline=None)
@given(text=st.text(alphabet="01", min_size=24, max_size=24))
def test_no_trace_makes_a_policy_late_or_cheaper_than_the_clairvoyant(overhead_s, text):
    task = job(work=12, deadline=20, overhead_s=overhead_s)
    up = flags(text)
    best = optimum(up[:20], task)[1]

    for code in (
        rule_policies.GREEDY,
        rule_policies.UNIFORM_PROGRESS,
        rule_policies.UNIFORM_PROGRESS_EAGER,
        rule_policies.ROSS,
    ):
        runs = rule(code, text, task)
        assert runs[3] <= 20
        assert cost(runs) >= best
    runs = learned_run(up, task, TABLES[overhead_s])
    assert runs[3] <= 20
    assert cost(runs) >= best


TABLES = {
    overhead_s: solved(job(work=12, deadline=20, overhead_s=overhead_s))
    for overhead_s in (72, 180, 360, 720)
}


@pytest.mark.parametrize("overhead_s", [180, 720])
def test_no_short_trace_at_all_makes_the_learned_policy_late(overhead_s):
    task = job(work=5, deadline=11, overhead_s=overhead_s)
    table = solved(task)

    for code in range(2**11):
        up = flags(f"{code:011b}")
        assert learned_run(up, task, table)[3] <= 11


def test_clairvoyant_requests_cost_what_the_program_says():
    task = job(work=12, deadline=20)
    up = flags("11000111110000111111")
    requests, value = optimum(up, task)

    runs = requested(requests, "11000111110000111111", task)

    assert cost(runs) == value
    assert runs[3] <= 20


def test_clairvoyant_rides_spot_into_the_forced_zone_when_it_will_last():
    # 600 + 180 s of slack: launching leaves 600 s, forced, and spot stays to the end.
    task = task_of(5 * TICK_S - 180, 6)

    assert optimum(flags("111111"), task)[1] == 5_000_000


def test_clairvoyant_of_two_zones_is_at_most_the_better_one():
    task = job(work=12, deadline=20)
    one, other = flags("11100001111100001111"), flags("00011110000011110000")

    both = optimum(np.hstack([one, other]), task)[1]

    assert both <= min(optimum(one, task)[1], optimum(other, task)[1])


def test_uniform_progress_keeps_on_demand_until_two_overheads_ahead_of_the_line():
    # Half pace. Behind in tick 1: on-demand; after it 420 s are done, 780 s would be far enough
    # ahead, then 1020 s against 1080 s; in tick 4 1620 s exceed 1380 s, and spot does the rest.
    faithful = rule(rule_policies.UNIFORM_PROGRESS, "001111111111", job())
    # Without hysteresis towards spot, it is taken in tick 2.
    eager = rule(rule_policies.UNIFORM_PROGRESS_EAGER, "001111111111", job())

    assert faithful == [4, 3, 1, 8]
    assert eager == [6, 1, 1, 8]


def test_greedy_waits_until_the_net_and_then_buys_to_the_end():
    # Slack 3600 s: four idle ticks leave 1200 s, the fifth 600 s below 960 s.
    runs = rule(rule_policies.GREEDY, "000000000000", job())

    assert runs == [0, 7, 5, 12]


@pytest.mark.slow  # half a minute of compiling
def test_learned_policy_looks_no_further_than_now_and_runs_as_compiled():
    task = job(work=12, deadline=20)
    up = flags("11011100111011111101")
    table = solved(task)

    taken = learned_decisions(up, task, table)
    runs = learned_run(up, task, table)

    assert runs == [taken.count(SPOT), taken.count(ON_DEMAND), taken.count(NONE), len(taken)]
    for tick in range(1, 12):
        altered = up.copy()
        altered[tick:] = 1 - altered[tick:]
        assert learned_decisions(altered, task, table)[:tick] == taken[:tick]


def test_learned_policy_rides_spot_that_lasts_and_pays_nothing_for_on_demand():
    runs = learned_run(flags("1" * 20), job(work=12, deadline=20), TABLES[180])

    assert runs == [13, 0, 0, 13]


def test_an_overhead_of_more_than_two_ticks_is_refused():
    with pytest.raises(ValueError, match="two ticks"):
        job(overhead_s=1201)


# Traces, windows, scores.


def test_a_tick_is_as_its_first_probe():
    # Probes every 195 s; those at 0, 780 (the fifth), 1365 (the eighth) come first in their ticks.
    up = np.array([1, 0, 0, 0, 0, 1, 1, 1, 0, 0], dtype=bool)

    assert traces.resample(up, 195).tolist() == [1, 0, 1]


def test_probes_rarer_than_ticks_hold_until_the_next():
    assert traces.resample(np.array([1, 0], dtype=bool), 1200).tolist() == [1, 1, 0, 0]


def test_windows_are_spread_over_where_the_longest_deadline_fits():
    starts = traces.window_starts(0, 1000, 420)

    assert len(starts) == 30
    assert (starts[0], starts[-1]) == (0, 580)


def test_regions_and_zones_are_read_from_names():
    assert traces.region_of("us-east-1a_v100_1") == "us-east-1"
    assert traces.zone_of("us-east-1a_v100_1") == "us-east-1a"
    assert traces.region_of("aws/ap-southeast-2b_k80_8/0") == "ap-southeast-2"
    assert traces.region_of("somewhere") == "somewhere"


def test_score_is_0_for_all_on_demand_and_100_for_all_spot():
    assert rules.score(146.88) == pytest.approx(0.0)
    assert rules.score(46.7088) == pytest.approx(100.0)
    all_spot = np.array([[288, 0, 0, 288]])
    assert rules.cost_usd(all_spot)[0] == pytest.approx(46.7088)


def test_grids_hold_every_overhead_with_every_deadline():
    assert [(v.overhead_h, v.deadline_h) for v in rules.variants_of("frontier")] == [
        (0.05, 52),
        (0.05, 70),
        (0.2, 52),
        (0.2, 70),
    ]
    assert len(rules.variants_of("adrs")) == 6
    with pytest.raises(ValueError, match="frontier, adrs"):
        rules.variants_of("other")


def test_a_run_that_ends_after_the_deadline_is_a_miss():
    variant = Variant(overhead_s=180, deadline_ticks=312)

    assert rules.missed(np.array([[0, 0, 0, 312], [0, 0, 0, 313]]), variant).tolist() == [
        False,
        True,
    ]


def trace(name, text="10"):
    return traces.Trace(
        name=name,
        region=traces.region_of(name),
        zone=traces.zone_of(name),
        up=flags(text)[:, 0],
    )


def test_what_is_left_out_is_not_learned_from_nor_is_the_tested_series_itself():
    tested = trace("us-east-1a_v100_1", "1100")
    known = [
        tested,
        trace("us-east-1a_k80_1", "1010"),
        trace("us-east-1b_v100_1", "1001"),
        trace("us-west-2a_v100_1", "0001"),
    ]

    def learned(leave_out):
        ((_, kept),) = single.training_groups([tested], known, leave_out)
        return [one.name for one in kept]

    assert learned("region") == ["us-west-2a_v100_1"]
    assert learned("zone") == ["us-east-1b_v100_1", "us-west-2a_v100_1"]
    assert learned("none") == ["us-east-1a_k80_1", "us-east-1b_v100_1", "us-west-2a_v100_1"]
    with pytest.raises(ContractError, match="another region"):
        single.training_groups([tested], known[:3], "region")


def test_interval_by_pool_brackets_the_mean():
    low, mean, high = report.interval_by_pool([1.0, 2.0, 3.0, 6.0])

    assert low < mean < high
    assert mean == pytest.approx(3.0)


def test_gap_share_is_unknown_without_a_gap():
    assert report.gap_share_percent(1.0, 2.0, 2.0) is None
    assert report.gap_share_percent(3.0, 2.0, 4.0) == pytest.approx(50.0)


def test_market_of_zones_is_a_markov_chain_whose_last_states_are_all_down():
    left = np.array([[5.0, 2.0], [4.0, -1.0], [-1.0, -1.0], [6.0, 1.0], [7.0, 3.0]])

    market = zones.learn_market(left, classes=2)

    chain = market.chain
    rows = np.add.reduceat(chain.probability, chain.row_start[:-1])
    assert np.allclose(rows, 1.0)
    assert not chain.up[-4:].any()
    assert chain.up[:-4].all()
    assert chain.lost.sum() == (len(chain.up) - 4) // 2


# The command.


def written(directory, name, up, gap_s=600):
    directory.mkdir(exist_ok=True)
    document = {"metadata": {"gap_seconds": gap_s}, "data": [int(flag) for flag in up]}
    (directory / name).write_text(json.dumps(document))


def invoked(*arguments):
    return CliRunner().invoke(app, ["bench", "cant-be-late", *map(str, arguments)])


def test_command_writes_the_result_of_a_rule_policy(tmp_path):
    generator = np.random.default_rng(1)
    for zone in ("us-east-1a", "us-east-1b"):
        up = np.repeat(generator.integers(0, 2, 60), 8)
        written(tmp_path / "t", f"{zone}_v100_1.json", up)
    out = tmp_path / "out.json"

    result = invoked("--traces", tmp_path / "t", "--policy", "greedy", "--json", out)

    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text())
    assert {
        "policy",
        "grid",
        "runs",
        "misses",
        "mean_cost_usd",
        "score",
        "ticks_per_s",
        "pools",
        "variants",
    } <= set(document)
    assert document["runs"] == 2 * 4 * 30
    assert document["misses"] == 0
    assert set(document["pools"]) == {"us-east-1a_v100_1", "us-east-1b_v100_1"}
    assert document["pools"]["us-east-1a_v100_1"].keys() == {"score", "misses"}
    assert document["comparison"]["clairvoyant"]["score"] >= document["score"]


@pytest.mark.slow
def test_jobs_that_move_between_zones_report_the_gap_to_the_best_single_zone(tmp_path):
    generator = np.random.default_rng(2)
    for zone in ("us-east-1a", "us-east-1b", "us-east-1c"):
        lengths = generator.integers(1, 25, 200)
        up = np.repeat(np.arange(200) % 2, lengths)[:1300]
        written(tmp_path / "t", f"{zone}_v100_1.json", up)
    out = tmp_path / "out.json"
    options = single.CantBeLateOptions(
        traces=tmp_path / "t", grid="frontier", policy="spotline", train=tmp_path / "t"
    )

    document = zones.bench_zones(options, lambda _: None)
    out.write_text(json.dumps(document))

    assert document["misses"] == 0
    assert document["runs"] == 4 * 30
    assert document["best_single_zone"]["name"].startswith("us-east-1")
    clairvoyant = document["multi_zone_clairvoyant"]["score"]
    assert document["best_single_zone"]["score"] < document["score"] <= clairvoyant
    assert document["gap_share_percent"]["single_zone"] > 50.0


@pytest.mark.slow  # half a minute of compiling
def test_interrupted_jobs_among_zones_are_never_late():
    task = job(work=12, deadline=20, overhead_s=720)
    generator = np.random.default_rng(3)
    up = generator.integers(0, 2, (2000, 2)).astype(np.uint8)
    left = np.where(up == 1, generator.random((2000, 2)) * 9, -1.0)
    market = zones.learn_market(left)
    table = solve(task, market.chain)
    starts = np.arange(0, 1900, 7)
    seen = np.stack([left[start : start + 20] for start in starts])
    best = np.where(seen.max(axis=2) < 0.0, -1, seen.argmax(axis=2)).astype(np.int64)

    runs = table_runs.run_zones(
        table.values,
        table.grid_s,
        task.terms,
        task.prices,
        table_runs.Zones(
            quality=np.searchsorted(market.edges, seen, side="right").astype(np.int64),
            best=best,
            free=zones.free_states(market.edges, seen),
        ),
        Windows(up=up, starts=starts),
    )

    assert (runs[:, ticks.FINISH_TICK] <= 20).all()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"metadata": {}, "data": [1]}, "gap_seconds"),
        ({"metadata": {"gap_seconds": 600}, "data": []}, "field data"),
        ({"metadata": {"gap_seconds": 600}, "data": [1, -1]}, "tick 1"),
        ({"metadata": {"gap_seconds": 600}, "data": [1, 0]}, "420 ticks"),
    ],
)
def test_a_broken_trace_ends_with_2_and_names_file_and_field(tmp_path, content, says):
    (tmp_path / "us-east-1a_v100_1.json").write_text(json.dumps(content))

    result = invoked("--traces", tmp_path, "--policy", "greedy", "--json", "-")

    assert result.exit_code == 2
    assert "us-east-1a_v100_1" in result.output
    assert says in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy", "unknown"], "expected one of greedy"),
        (["--policy", "spotline"], "--train"),
        (["--policy", "greedy", "--grid", "none"], "frontier, adrs"),
        (["--policy", "spotline", "--train", "DIR", "--leave-out", "all"], "region, zone, none"),
        (["--policy", "spotline", "--train", "DIR"], "another trace"),
        (["--policy", "spotline", "--train", "DIR", "--leave-out", "region"], "another region"),
    ],
)
def test_bad_options_end_with_2_and_say_what_was_expected(tmp_path, arguments, says):
    written(tmp_path, "us-east-1a_v100_1.json", [1, 0] * 300)
    arguments = [str(tmp_path) if word == "DIR" else word for word in arguments]

    result = invoked("--traces", tmp_path, "--json", "-", *arguments)

    assert result.exit_code == 2
    assert says in result.output


@pytest.mark.skipif(not REAL.is_dir(), reason=f"real traces are not at {REAL}")
def test_on_a_real_zone_the_learned_policy_beats_uniform_progress_without_a_miss():
    read = {one.name: one for one in traces.read_traces(REAL)}
    tested = read["us-west-2a_v100_1"]
    known = [one.up for one in read.values() if one.region != tested.region]
    mix = learn_mix(known)
    variant = rules.variants_of("frontier")[2]
    windows = single.windows_of(tested)

    ours = policies.run_spotline(mix, policies.solve_mix(mix, variant), windows)
    baseline = policies.run_rule("uniform_progress", windows, variant)

    assert len(tested.up) == 6551
    assert not rules.missed(ours, variant).any()
    assert rules.cost_usd(ours).mean() < rules.cost_usd(baseline).mean()

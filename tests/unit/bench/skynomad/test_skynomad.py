"""SkyNomad's benchmark: rules of a tick, the exact optimum, policies, files, the command."""

import functools
import gzip
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from spotline.bench.skynomad import data, learning, rules, sets, world
from spotline.bench.skynomad.measure import OPTIMAL, figures_of, run_set
from spotline.bench.skynomad.optimum import optimum_micro_usd
from spotline.bench.skynomad.rule_policies import EagerFailover, Probing
from spotline.bench.skynomad.spotline_policy import TablePolicy, zone_job
from spotline.cli.main import app
from spotline.contracts.errors import ContractError, InvariantViolation
from spotline.domain.solvers.zone_table import build_zone_table
from tests.depth import examples

TICK_S, RESTART_S = 600, 720


def market_of(up, *, spot=(100, 200), regions=(0, 1), on_demand=(1000, 900)):
    """Zones z0, z1, ... with constant prices; `up` has a string of 0 and 1 for each."""
    flags = np.array([[int(flag) for flag in zone] for zone in up], dtype=np.uint8).T
    return world.AlignedZones(
        zones=tuple(f"z{z}" for z in range(len(up))),
        regions=tuple(f"r{r}" for r in range(len(on_demand))),
        region_of=np.array(regions[: len(up)], dtype=np.int64),
        up=np.ascontiguousarray(flags),
        spot_micro_usd=np.tile(np.array(spot[: len(up)], dtype=np.int64), (len(flags), 1)),
        on_demand_micro_usd=np.array(on_demand, dtype=np.int64),
        tick_s=TICK_S,
    )


def moves_of(regions=2, *, egress=0, extra_s=0):
    """Every move between regions costs and takes the same; the first launch is free."""
    apart = 1 - np.eye(regions + 1, regions, dtype=np.int64)
    apart[-1] = 0
    return world.Moves(egress_micro_usd=apart * egress, extra_s=apart * extra_s)


def terms_of(work_s, deadline_ticks):
    return world.ZoneTerms(
        work_s=work_s, deadline_ticks=deadline_ticks, tick_s=TICK_S, restart_s=RESTART_S
    )


@dataclass
class Scripted:
    """Does what a script says for each tick, and keeps what it saw."""

    script: dict
    seen: list = field(default_factory=list)

    def act(self, desk):
        self.seen.append(desk.standing)
        for verb, *args in self.script.get(desk.standing.tick, ()):
            getattr(desk, verb)(*args)


def run(script, market, terms, moves=None):
    policy = Scripted(script)
    return rules.run(policy, market, moves or moves_of(), terms, 0), policy.seen


class TestRules:
    def test_progress_is_credited_before_the_interruption_and_after_the_overhead(self):
        terms = terms_of(3000, 30)
        outcome, seen = run({0: [("launch_spot", 0)]}, market_of(["1110" + "0" * 30]), terms)
        # Three ticks of which 720 s are overhead; the interruption clears nothing of that.
        assert seen[3].work_left_s == 3000 - (3 * TICK_S - RESTART_S)
        assert (seen[3].kind, seen[3].lost_zone) == ("idle", 0)
        assert not outcome.missed

    def test_an_interruption_clears_the_overhead_that_is_left(self):
        terms = terms_of(3000, 30)
        _, seen = run(
            {0: [("launch_spot", 0)], 2: [("launch_spot", 0)]},
            market_of(["1011" + "0" * 30]),
            terms,
        )
        assert (seen[1].overhead_left_s, seen[1].work_left_s) == (0, 3000)
        assert seen[3].overhead_left_s == RESTART_S - TICK_S

    def test_whole_ticks_are_billed_but_the_one_that_ends_the_work(self):
        outcome, _ = run({0: [("launch_spot", 0)]}, market_of(["1" * 30]), terms_of(1200, 30))
        # 720 + 1200 s of running take four ticks.
        assert outcome.finish_tick == 4
        assert outcome.cost_micro_usd == 3 * 100

    def test_a_replacement_bills_the_new_one_alone_and_pays_egress_and_transfer(self):
        terms = terms_of(1200, 40)
        outcome, seen = run(
            {0: [("launch_spot", 0)], 1: [("launch_spot", 1)]},
            market_of(["1" * 40, "1" * 40]),
            terms,
            moves_of(egress=7, extra_s=240),
        )
        assert seen[2].overhead_left_s == RESTART_S + 240 - TICK_S
        ticks = -(-(RESTART_S + 240 + 1200) // TICK_S)
        assert outcome.cost_micro_usd == 100 + 7 + (ticks - 1) * 200
        assert outcome.launches == 2

    def test_egress_and_on_demand_are_told_apart_from_spot(self):
        outcome, _ = run(
            {0: [("launch_spot", 0)], 2: [("launch_on_demand", 1)]},
            market_of(["1" * 40]),
            terms_of(3000, 40),
            moves_of(egress=7),
        )
        # Two ticks of spot do 480 s; on-demand has its overhead and 2,520 s, its last tick free.
        assert outcome.on_demand_micro_usd == (-(-(RESTART_S + 2520) // TICK_S) - 1) * 900
        assert outcome.egress_micro_usd == 7
        assert outcome.cost_micro_usd == 2 * 100 + 7 + outcome.on_demand_micro_usd

    def test_a_launch_that_finds_nothing_is_free_and_leaves_what_runs(self):
        outcome, seen = run(
            {0: [("launch_spot", 0)], 1: [("launch_spot", 1)]},
            market_of(["1" * 30, "0" * 30]),
            terms_of(1200, 30),
            moves_of(egress=7),
        )
        assert seen[2].zone == 0
        assert outcome.cost_micro_usd == 3 * 100

    def test_what_was_launched_in_a_tick_must_not_be_ended_in_it(self):
        for second in (("launch_spot", 1), ("release",), ("launch_on_demand", 0)):
            with pytest.raises(InvariantViolation, match="must not be ended"):
                run(
                    {0: [("launch_spot", 0), second]},
                    market_of(["1" * 30, "1" * 30]),
                    terms_of(1200, 30),
                )

    def test_a_probe_costs_60_s_where_it_finds_spot_and_nothing_elsewhere(self):
        script = {0: [("launch_spot", 0), ("probe", 1)], 1: [("probe", 1)]}
        outcome, _ = run(script, market_of(["1" * 30, "10" * 15]), terms_of(1200, 30))
        assert outcome.probe_micro_usd == 200 * 60 // TICK_S
        assert outcome.probes == 1
        assert outcome.cost_micro_usd == 3 * 100 + outcome.probe_micro_usd

    def test_a_policy_must_not_probe_where_it_runs(self):
        with pytest.raises(InvariantViolation, match="must not probe"):
            run({0: [("launch_spot", 0), ("probe", 0)]}, market_of(["1" * 30]), terms_of(600, 30))

    def test_the_safety_net_buys_in_the_cheapest_region_when_idle(self):
        terms = terms_of(1200, 10)
        outcome, seen = run({}, market_of(["0" * 10]), terms)
        # ceil((1200 + 720) / 600) = 4 ticks: from tick 6 on the policy is not asked.
        assert len(seen) == 6
        assert not outcome.missed
        assert outcome.finish_tick == 10
        assert outcome.cost_micro_usd == 3 * 900

    def test_the_safety_net_ends_productive_spot_too_in_its_region(self):
        terms = terms_of(4800, 11)
        outcome, seen = run({0: [("launch_spot", 0)]}, market_of(["1" * 11]), terms)
        # Slack is 1800 s at first; the overhead takes 600 s of it, and 1320 s are the least.
        assert len(seen) == 1
        assert outcome.on_demand_ticks > 0
        assert outcome.cost_micro_usd == 100 + (outcome.on_demand_ticks - 1) * 1000
        assert not outcome.missed

    def test_a_window_must_end_with_the_market(self):
        with pytest.raises(ValueError, match="must end by 5"):
            run({}, market_of(["0" * 5]), terms_of(600, 6))


def brute_force(market, moves, terms):
    """Least cost over all actions in every tick, by recursion over exact states."""
    regions = len(market.regions)

    @functools.cache
    def least(tick, kind, place, overhead_s, left_s, source):
        if left_s <= 0:
            return 0
        if tick == terms.deadline_ticks:
            return 1 << 50
        if kind == "spot" and not market.up[tick, place]:
            kind, overhead_s = "idle", 0
        best = 1 << 50
        options = [("idle", -1, 0, 0, source)]
        if kind != "idle":
            options.append((kind, place, overhead_s, 0, source))
        for zone, region in enumerate(market.region_of):
            if market.up[tick, zone]:
                options.append(launch("spot", zone, source, int(region)))
        options += [launch("on_demand", r, source, r) for r in range(regions)]
        for to, at, ahead_s, paid, region in options:
            credit_s = 0 if to == "idle" else max(0, TICK_S - ahead_s)
            if to != "idle" and credit_s < left_s:
                paid += int(
                    market.spot_micro_usd[tick, at]
                    if to == "spot"
                    else market.on_demand_micro_usd[at]
                )
            rest = least(tick + 1, to, at, max(0, ahead_s - TICK_S), left_s - credit_s, region)
            best = min(best, paid + rest)
        return best

    def launch(kind, place, source, region):
        overhead_s = terms.restart_s + int(moves.extra_s[source, region])
        return kind, place, overhead_s, int(moves.egress_micro_usd[source, region]), region

    return least(0, "idle", -1, 0, terms.work_s, -1)


class TestOptimum:
    @settings(max_examples=examples(15), deadline=None)
    @given(
        up=st.lists(st.text("01", min_size=7, max_size=7), min_size=2, max_size=2),
        work_s=st.integers(1, 2280),
        spot=st.tuples(st.integers(1, 300), st.integers(1, 300)),
        egress=st.integers(0, 400),
        extra_s=st.sampled_from([0, 120, 600]),
    )
    def test_it_is_that_of_trying_everything(self, up, work_s, spot, egress, extra_s):
        market, moves = market_of(up, spot=spot), moves_of(egress=egress, extra_s=extra_s)
        terms = terms_of(work_s, 6)
        assert optimum_micro_usd(market, moves, terms, 0) == brute_force(market, moves, terms)

    def test_the_window_must_lie_in_the_market(self):
        with pytest.raises(ValueError, match="must end by tick 5"):
            optimum_micro_usd(market_of(["0" * 5]), moves_of(), terms_of(600, 6), 0)


@pytest.fixture(scope="module")
def laws():
    generator = np.random.default_rng(3)
    series = [np.repeat(generator.integers(0, 2, 60), 9).astype(np.uint8) for _ in range(2)]
    return learning.learn_zone_laws(series, zones=2)


def policies_of(market, moves, terms, laws):
    table = build_zone_table(zone_job(market, moves, terms, market.spot_micro_usd[0]), laws)
    return [
        TablePolicy(table=table, probes=True),
        TablePolicy(table=table, probes=False),
        EagerFailover(market=market, terms=terms),
        EagerFailover(market=market, terms=terms, zones=(1,)),
        Probing(market=market, terms=terms),
    ]


@dataclass
class Watched:
    """Writes down what a policy does, and ends with what it may see."""

    inner: object
    until: int
    done: list = field(default_factory=list)

    def act(self, desk):
        if desk.standing.tick < self.until:
            self.inner.act(_Noting(desk, self.done))


class _Noting:
    def __init__(self, desk, done):
        self._desk, self._done = desk, done

    def __getattr__(self, name):
        value = getattr(self._desk, name)
        if not callable(value):
            return value

        def noted(*args):
            answer = value(*args)
            self._done.append((self._desk.standing.tick, name, args, answer))
            return answer

        return noted


class TestPolicies:
    @pytest.mark.slow  # kernels of zone tables are compiled
    @settings(max_examples=examples(6), deadline=None)
    @given(runs=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=8, max_size=8))
    def test_none_is_below_the_optimum_or_late(self, laws, runs):
        up = [
            "".join("1" * a + "0" * b for a, b in runs).ljust(40, "0")[:40],
            "".join("0" * b + "1" * a for a, b in runs).ljust(40, "1")[:40],
        ]
        market, moves, terms = market_of(up), moves_of(egress=50), terms_of(14400, 40)
        best = optimum_micro_usd(market, moves, terms, 0)
        for policy in policies_of(market, moves, terms, laws):
            outcome = rules.run(policy, market, moves, terms, 0)
            assert outcome.cost_micro_usd >= best
            assert not outcome.missed

    def test_each_does_the_same_whatever_is_to_come(self, laws):
        past = ["110111111111", "011101101111"]
        moves, terms = moves_of(egress=50), terms_of(14400, 40)
        done = []
        for bit in "01":
            market = market_of([zone + bit * 28 for zone in past])
            of_policies = []
            for policy in policies_of(market, moves, terms, laws):
                watched = Watched(policy, until=12)
                rules.run(watched, market, moves, terms, 0)
                of_policies.append([each for each in watched.done if each[0] < 12])
            done.append(of_policies)
        assert done[0] == done[1]
        assert all(done[0])

    def test_none_knows_of_a_zone_that_it_did_not_ask(self, laws):
        # Zone 1 differs in every tick in which a policy that holds zone 0 does not look.
        moves, terms = moves_of(egress=50), terms_of(14400, 40)
        base = market_of(["1" * 40, "0" * 40])
        for index, policy in enumerate(policies_of(base, moves, terms, laws)):
            watched = Watched(policy, until=40)
            first = rules.run(watched, base, moves, terms, 0)
            asked = {tick for tick, name, args, _ in watched.done if args == (1,)}
            other = market_of(["1" * 40, "".join("0" if t in asked else "1" for t in range(40))])
            again = rules.run(policies_of(other, moves, terms, laws)[index], other, moves, terms, 0)
            assert again == first

    def test_a_move_to_a_much_cheaper_zone_is_made_when_it_comes_up(self, laws):
        market = market_of(["1" * 40, "0" * 5 + "1" * 35], spot=(500, 20))
        moves, terms = moves_of(egress=50), terms_of(14400, 40)
        outcome = rules.run(policies_of(market, moves, terms, laws)[1], market, moves, terms, 0)
        assert outcome.cost_micro_usd < 3000


class TestLearning:
    def test_a_zone_that_was_always_up_is_taken_to_stay_so(self):
        always, seldom = np.ones(400, dtype=np.uint8), np.tile([1, 0], 200).astype(np.uint8)
        laws = learning.learn_zone_laws([always, seldom], zones=2, own=[0, None])
        ends = [law.ends[1, -1] for law in laws.laws]
        assert np.argmin(ends) == len(laws.laws) - 2
        assert laws.weights[0, -2] > laws.weights[1, -2]
        np.testing.assert_allclose(laws.weights.sum(axis=1), 1.0)


class TestFigures:
    def test_error_and_excess_are_of_windows_apart(self):
        market = market_of(["1" * 12 + "0" * 8 + "1" * 20, "1" * 40])
        shape = sets.JobShape(deadline_ticks=10, ratio=3.0)
        given_market = market
        windows = sets.from_first_half("half", given_market, ("z0",), shape, {}, starts=4)
        assert windows.starts == (20, 23, 26, 30)
        assert windows.independent == 2
        figures = figures_of(run_set(windows), windows.independent)
        assert figures[OPTIMAL]["over_optimal_percent"] == 0.0
        assert all(of["over_optimal_percent"] >= 0.0 for of in figures.values())
        assert figures["spotline"]["windows"] == 4
        assert "mean_egress_usd" not in figures[OPTIMAL]
        assert figures["spotline"]["mean_launches"] >= 1.0
        parts = [figures["spotline"][f"mean_{part}_usd"] for part in ("egress", "on_demand")]
        assert 0.0 <= sum(parts) <= figures["spotline"]["mean_cost_usd"]

    def test_sets_say_what_is_missing(self):
        market = market_of(["1" * 40, "1" * 40])
        shape = sets.JobShape(deadline_ticks=30, ratio=2.0)
        with pytest.raises(sets.CannotForm, match="z9 are not in the data"):
            sets.from_other_zones("h100", market, ("z9",), shape, {})
        with pytest.raises(sets.CannotForm, match="no zones beside"):
            sets.from_other_zones("h100", market, ("z0", "z1"), shape, {})
        with pytest.raises(sets.CannotForm, match="lasts 30 ticks, there are 20"):
            sets.from_first_half("h100", market, ("z0",), shape, {})
        whole = sets.from_other_zones("v100", market, ("z0",), shape, {})
        with pytest.raises(sets.CannotForm, match="found 1 windows"):
            sets.some_windows("v100-published", whole, (3, 5))


class TestMoves:
    def test_only_the_transfer_beyond_that_within_a_region_counts(self):
        # 1,000 GB: 8,000 Gbit at 8.20 against 9.72 Gbit/s, at 3.59 across continents.
        assert world.extra_transfer_s("us-east-1", "us-west-2", 1000) == 153
        assert world.extra_transfer_s("us-east-1", "eu-west-1", 1000) == 1406
        moves = world.moves_between(
            ["us-east-1", "us-west-2"], {("us-east-1", "us-west-2"): 0.02}, 50, 15, transfers=True
        )
        assert moves.egress_micro_usd.tolist() == [[0, 1_000_000], [1_000_000, 0], [0, 0]]
        assert moves.extra_s.tolist() == [[0, 15], [15, 0], [0, 0]]


COUNTS = "time_utc,zone,created,requested,capacity_exhausted\n"
PRICES = (
    "region,machine_type,gpus,spot_usd_per_machine_hour,on_demand_usd_per_machine_hour\n"
    "us-west1,a3,8,18,90\nus-east1,a3,8,12,80\n"
)


def write_data(folder: Path, **changes: str) -> Path:
    rows = [
        f"2025-10-04T0{hour}:{minute}0:00Z,{zone},{int((hour + minute) % 5 > 0)},16,0\n"
        for hour, minute, zone in itertools.product(
            range(1, 9), range(6), ("us-west1-a", "us-east1-b")
        )
    ]
    files = {
        "h100_counts.csv": COUNTS + "".join(rows),
        "h100_prices.csv": PRICES,
        "aws_egress_usd_per_gb.csv": "from_region,to_region,price_usd_per_gb\na-b-1,a-c-1,0.02\n",
        "v100_spot_prices_2023.csv": "time,zone,instance_type,spot_usd_per_instance_hour\n"
        "2023-02-15T22:00:00Z,us-east-1a,p3,1.0\n2023-02-15T22:10:00Z,us-east-1a,p3,2.0\n",
        **{name.replace("__", "."): text for name, text in changes.items()},
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


class TestFiles:
    def test_missing_rounds_are_as_the_last_one(self, tmp_path):
        rows = "".join(
            f"2025-10-04T00:{minute}:00Z,us-west1-a,{created},16,0\n"
            for minute, created in (("10", 16), ("40", 0))
        )
        market = data.read_h100(write_data(tmp_path, h100_counts__csv=COUNTS + rows))
        assert market.up[:, 0].tolist() == [1, 1, 1, 0]
        assert market.spot_micro_usd[0, 0] == 3_000_000
        assert market.on_demand_micro_usd.tolist() == [15_000_000]

    def test_v100_prices_follow_their_changes(self, tmp_path):
        (tmp_path / "us-east-1a_v100_1.json").write_text(
            json.dumps({"metadata": {"gap_seconds": 300}, "data": [1, 0, 1]})
        )
        market = data.read_v100(write_data(tmp_path), tmp_path)
        assert market.up[:, 0].tolist() == [1, 0, 1]
        assert market.spot_micro_usd[:, 0].tolist() == [83_333, 83_333, 166_667]

    @pytest.mark.parametrize(
        ("name", "text", "expected"),
        [
            ("h100_counts__csv", COUNTS, "expected rows of counts"),
            (
                "h100_counts__csv",
                COUNTS + "2025-10-04T00:05:00Z,us-west1-a,1,16,0\n",
                "field time_utc: expected a whole 10 minutes",
            ),
            (
                "h100_counts__csv",
                COUNTS + "2025-10-04T00:10:00Z,us-west1-a,-1,16,0\n",
                "field created: expected a whole number",
            ),
            (
                "h100_counts__csv",
                COUNTS + "2025-10-04T00:10:00Z,us-west1-a,1,16,0\n" * 2,
                "expected each zone once at a time",
            ),
            (
                "h100_counts__csv",
                COUNTS + "2025-10-04T00:10:00Z,us-south1-a,1,16,0\n",
                "expected the price of us-south1",
            ),
            (
                "h100_counts__csv",
                COUNTS + "2025-10-04T00:10:00Z,somewhere,1,16,0\n",
                "expected a zone such as",
            ),
            (
                "h100_prices__csv",
                PRICES.replace("18", "cheap"),
                "field spot_usd_per_machine_hour: expected a price",
            ),
        ],
    )
    def test_bad_files_are_refused_by_field(self, tmp_path, name, text, expected):
        with pytest.raises(ContractError, match=expected):
            data.read_h100(write_data(tmp_path, **{name: text}))

    def test_traces_without_prices_or_of_other_ticks_are_refused(self, tmp_path):
        folder = write_data(tmp_path)
        with pytest.raises(ContractError, match=r"expected skypilot traces"):
            data.read_v100(folder, folder)
        trace = {"metadata": {"gap_seconds": 300}, "data": [1, 0, 1]}
        (folder / "us-west-2c_v100_1.json").write_text(json.dumps(trace))
        with pytest.raises(ContractError, match="expected prices of us-west-2c"):
            data.read_v100(folder, folder)
        trace["metadata"]["gap_seconds"] = 0
        (folder / "us-west-2c_v100_1.json").rename(folder / "us-east-1a_v100_1.json")
        (folder / "us-east-1a_v100_1.json").write_text(json.dumps(trace))
        with pytest.raises(ContractError, match="gap_seconds: expected seconds >= 1"):
            data.read_v100(folder, folder)


class TestCommand:
    def test_sets_that_cannot_be_formed_are_named_and_files_may_be_packed(self, tmp_path):
        folder = write_data(tmp_path)
        counts = folder / "h100_counts.csv"
        (folder / "h100_counts.csv.gz").write_bytes(gzip.compress(counts.read_bytes()))
        counts.unlink()
        out = tmp_path / "out.json"
        command = ["bench", "skynomad", "--data", str(folder), "--json", str(out)]
        done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out.md")])
        assert done.exit_code == 0, done.output
        document = json.loads(out.read_text())
        assert document["sets"] == {}
        assert any("us-central1-a" in line for line in document["left_out"])
        assert "v100: no --traces given" in document["left_out"]
        assert "Left out" in (tmp_path / "out.md").read_text()

    def test_a_missing_file_is_named(self, tmp_path):
        done = CliRunner().invoke(app, ["bench", "skynomad", "--data", str(tmp_path)])
        assert done.exit_code != 0
        assert "aws_egress_usd_per_gb.csv" in done.output + str(done.exception)

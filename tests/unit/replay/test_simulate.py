"""Simulation, the selector's accounting and counterfactual replay are one and the same."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.market.parquet import write_market
from spotline.application.allocation.value_tables import terms_of
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.cli import simulate as simulate_command
from spotline.contracts.build import event_of
from spotline.contracts.errors import ContractError
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.jobs.run import Run
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import replay_policy
from spotline.domain.solvers.table_store import table_of
from spotline.domain.units import NS_PER_S
from spotline.replay.course import coverage
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud, WatchedSelector
from spotline.replay.recorded import observations_of
from spotline.replay.report import report_run
from spotline.replay.selector_run import padded
from spotline.replay.simulate import SimulationOptions, expand_names, simulate
from spotline.replay.summary import SPOTLINE
from tests.depth import examples
from tests.fakes.recorded_run import play, recorded_run, small_market, write_log

ONE_OF_EACH = ("on_demand_only", "msu", "uniform_progress", "ahanp(0.6)", "ahap(3,2,0.6)")
QUICK = SelectorOptions(rehearsals=2, moves=False)


@pytest.fixture(scope="module")
def market():
    return small_market(slots=96)


@pytest.fixture(scope="module")
def jobs(market):
    return generated_jobs(market, 6, 2)


@pytest.fixture(scope="module")
def competing_log():
    market = small_market(slots=96)
    return market, recorded_run(market, generated_jobs(market, 12, 4))


def test_a_job_with_a_program_is_simulated_as_if_its_program_ran(market, jobs):
    ours = [replace(job, run=Run(command=("train",))) for job in jobs[:2]]

    run, plain = (
        simulate(market, some, ["msu", SPOTLINE], forecaster="persistence")
        for some in (ours, jobs[:2])
    )

    assert run.lives == plain.lives
    assert all(life.value_micro_usd for life in run.lives["msu"])


@pytest.mark.parametrize("contention", [False, True])
def test_a_program_whose_end_is_awaited_ends_when_its_work_is_done(market, jobs, contention):
    awaited = [replace(job, awaits_exit=True) for job in jobs]
    options = SimulationOptions(contention=contention, selector=QUICK)

    ended, plain = (
        simulate(market, some, ["msu", SPOTLINE], forecaster="persistence", options=options)
        for some in (awaited, jobs)
    )

    assert ended.lives == plain.lives


# --- one accounting ---------------------------------------------------------------------------


def test_a_job_alone_costs_the_same_in_the_loop_and_replayed(market, jobs):
    for job in jobs:
        replayed = simulate(market, [job], ONE_OF_EACH, forecaster="persistence")
        in_the_loop = simulate(
            market,
            [job],
            ONE_OF_EACH,
            forecaster="persistence",
            options=SimulationOptions(contention=True, selector=QUICK),
        )

        assert in_the_loop.lives == replayed.lives
        assert in_the_loop.clairvoyant == replayed.clairvoyant


def test_spotline_is_what_its_drawn_policy_would_have_been(market, jobs):
    report = simulate(
        market,
        jobs[:3],
        ["all"],
        forecaster="persistence",
        options=SimulationOptions(selector=QUICK),
    )

    for index, life in enumerate(report.lives[SPOTLINE]):
        assert life == report.lives[life.policy_id][index]


def test_competing_jobs_never_hold_more_than_there_is(competing_log):
    _, log = competing_log
    left = ResidualCapacity(())
    decided = 0
    for entry in log:
        match event_of(entry):
            case SlotOpened() as opened:
                left = ResidualCapacity(opened.quotes)
            case AllocationDecided() as decision:
                left.take(decision.lots)  # raises where it is more than is left
                decided += 1
            case _:
                pass

    assert decided > 50


def test_a_competing_job_fares_as_its_policy_does_on_what_it_was_left():
    market = small_market(slots=96)
    jobs = generated_jobs(market, 12, 4)
    watched = WatchedSelector(SelectHandler(QUICK, digest=str))
    forecaster, *_ = handlers_of({"forecaster": {"forecaster": "river"}})
    host = play([forecaster, watched, ExactCloud()], market, jobs)
    state = host.state_of("selector")
    fallback = policy_named(FALLBACK_POLICY_ID)

    for job in jobs:
        run, closed = state.runs[job.job_id], watched.closed[job.job_id]
        offered = padded(run.compiled, watched.offered_to(state, job.job_id))
        policy, known = (
            policy_named(run.policy_id),
            watched.tables[job.job_id].get(run.first_offering_id),
        )
        table = known and table_of(terms_of(known.spec, run.compiled, known.named.law))
        result = replay_policy(run.compiled, offered, policy, fallback, table)
        assert result.cost_micro_usd == closed.cost_micro_usd
        assert result.value_micro_usd == closed.value_micro_usd


def test_competition_costs_utility(market):
    many = generated_jobs(market, 12, 4)
    shared, alone = (
        simulate(
            market,
            many,
            ["msu"],
            forecaster="persistence",
            options=SimulationOptions(contention=contention),
        ).policies["msu"]
        for contention in (True, False)
    )

    assert shared.mean_utility_usd < alone.mean_utility_usd
    assert shared.percent_of_clairvoyant <= 100.0


def test_the_report_of_a_log_agrees_with_what_it_closed(competing_log):
    _, log = competing_log
    closed = {event.job_id: event for event in map(event_of, log) if isinstance(event, JobClosed)}

    report = report_run(log, QUICK)

    assert report.completed == len(closed) == len(report.jobs)
    assert report.missed_deadlines == 0
    for one in report.jobs:
        assert one.life.cost_micro_usd == closed[one.job.job_id].cost_micro_usd
        assert one.life.utility_micro_usd <= one.clairvoyant.upper_utility_micro_usd
        if one.policy_id in one.otherwise:
            assert one.life == one.otherwise[one.policy_id]
    numbers = report.as_json()
    assert numbers["mean_cost_usd"] < numbers["on_demand_cost_usd"]
    assert 0.0 < numbers["saving_percent"] < 100.0
    assert set(numbers["policies"]) == {SPOTLINE, "on_demand_only", "msu", "uniform_progress"}


def test_the_picture_of_a_job_is_drawn(competing_log, tmp_path):
    from spotline.replay.plots import plot_job

    _, log = competing_log
    write_log(tmp_path / "log", log)

    plot_job(EventLogReader(tmp_path / "log"), tmp_path / "job.png")

    assert (tmp_path / "job.png").read_bytes().startswith(b"\x89PNG")


# --- numbers ----------------------------------------------------------------------------------


def test_percent_is_a_ratio_of_sums_and_nobody_beats_the_clairvoyant(market, jobs):
    report = simulate(market, jobs, ONE_OF_EACH, forecaster="persistence")

    for name, summary in report.policies.items():
        utility = sum(life.utility_micro_usd for life in report.lives[name]) / len(jobs) / 1e6
        assert summary.mean_utility_usd == pytest.approx(utility)
        share = 100.0 * utility / report.clairvoyant.mean_utility_usd
        assert summary.percent_of_clairvoyant == pytest.approx(share)
        assert share <= 100.0 + 1e-9
        assert summary.on_time_fraction == 1.0
        assert summary.late_value_loss_usd == 0.0


def test_equal_arguments_give_equal_lives_and_a_seed_draws_anew(market, jobs):
    def drawn(seed):
        options = SimulationOptions(seed=seed, selector=replace(QUICK, rehearsals=0))
        report = simulate(market, jobs, [SPOTLINE], forecaster="persistence", options=options)
        return [life.policy_id for life in report.lives[SPOTLINE]]

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


def test_the_future_changes_nothing_before_it(market, jobs):
    first = min(jobs, key=lambda job: job.deadline.expires_ns)
    end = (first.deadline.expires_ns - market.start_ns) // (market.slot_s * NS_PER_S)
    other = market.spot_available.copy()
    other[end:] = 16 - other[end:]
    changed = replace(market, spot_available=other)

    assert (
        simulate(market, [first], ONE_OF_EACH, forecaster="river").lives
        == simulate(changed, [first], ONE_OF_EACH, forecaster="river").lives
    )


# --- generated jobs ---------------------------------------------------------------------------


@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    slots=st.integers(16, 200),
    slot_s=st.sampled_from([300, 600, 1800, 3600]),
)
def test_generated_jobs_can_always_be_met_on_demand(seed, slots, slot_s):
    plain = small_market(slots=2)
    market = replace(
        plain,
        slot_s=slot_s,
        **{
            name: np.repeat(getattr(plain, name)[:1], slots, axis=0)
            for name in (
                "spot_price_micro_usd",
                "on_demand_price_micro_usd",
                "spot_provenance",
                "on_demand_available",
                "on_demand_provenance",
            )
        },
        spot_available=np.zeros((slots, len(plain.offerings)), dtype=np.int64),
        quoted_ns=np.full((slots, len(plain.offerings)), plain.start_ns, dtype=np.int64),
    )

    jobs = generated_jobs(market, 4, seed)
    report = simulate(market, jobs, ["msu", "on_demand_only"], forecaster="persistence")

    assert jobs == generated_jobs(market, 4, seed)
    assert [coverage(market, job) for job in jobs] == [""] * 4
    for summary in report.policies.values():
        assert summary.on_time_fraction == 1.0


def test_generated_jobs_are_mixed():
    market = small_market(slots=480)

    jobs = generated_jobs(market, 60, 1)

    kinds = [job.deadline.kind for job in jobs]
    assert 15 < kinds.count(DeadlineKind.HARD) < 45
    assert {job.max_instances for job in jobs} == set(range(4, 13))
    assert any(len(job.allowed_counts) == 1 for job in jobs)
    lengths = {(job.deadline.at_ns - job.start_ns) // (1800 * NS_PER_S) for job in jobs}
    assert min(lengths) >= 8
    assert max(lengths) <= 24
    assert min(job.start_ns for job in jobs) >= market.start_ns + 48 * 1800 * NS_PER_S
    assert len({job.job_id for job in jobs}) == 60


def test_a_market_too_short_for_jobs_is_refused():
    with pytest.raises(ValueError, match="16 slots"):
        generated_jobs(small_market(slots=15), 3, 0)


# --- what a log was told ----------------------------------------------------------------------


def test_market_and_jobs_come_back_from_a_log(competing_log):
    market, log = competing_log

    observed = observations_of(log)

    assert set(observed.jobs) == set(generated_jobs(market, 12, 4))
    assert observed.market.offerings == market.offerings
    for name in ("spot_price_micro_usd", "spot_available", "on_demand_provenance", "quoted_ns"):
        assert np.array_equal(getattr(observed.market, name), getattr(market, name))


def test_slots_nobody_opened_are_held_and_late_offerings_have_no_capacity_before(competing_log):
    market, log = competing_log
    entries = []
    late = market.offerings[0].offering_id
    for entry in log:
        event = event_of(entry)
        if isinstance(event, MarketOpened):
            entries.append(entry)
        elif isinstance(event, SlotOpened) and event.slot in (0, 3, 4):
            if event.slot == 0:
                kept = tuple(q for q in event.quotes if q.quote.offering_id != late)
                entry = _with_event(entry, replace(event, quotes=kept))
            entries.append(entry)

    seen = observations_of(entries).market

    assert seen.slots == 5
    assert np.array_equal(seen.spot_available[1:3, 1:], market.spot_available[[0, 0], 1:])
    assert not seen.spot_available[:3, 0].any()
    assert seen.spot_price_micro_usd[0, 0] == market.spot_price_micro_usd[3, 0]


def _with_event(entry, event):
    from spotline.contracts.codec import encode

    return replace(entry, payload=encode(event))


# --- bad input, and the command ---------------------------------------------------------------


def test_unknown_policies_are_named():
    with pytest.raises(ContractError, match="msuu"):
        expand_names(["msuu"])


def test_all_is_the_pool_the_baselines_and_spotline():
    names = expand_names(["all", "msu"])

    assert len(names) == len(set(names)) == 112 + 3 + 4 + 1
    assert SPOTLINE in names


def test_a_job_that_outlives_the_market_is_refused(market, jobs):
    short = market.between(0, 40)
    late = max(jobs, key=lambda job: job.deadline.expires_ns)

    with pytest.raises(ContractError, match="after the market"):
        simulate(short, [late], ["msu"], forecaster="persistence")


def test_a_job_that_no_offering_can_run_is_refused(market, jobs):
    elsewhere = replace(jobs[0], offerings=("tpu-v9",))

    with pytest.raises(ContractError, match="no offering"):
        simulate(market, [elsewhere], ["msu"], forecaster="persistence")


def run_command(*arguments):
    app = typer.Typer()
    simulate_command.register(app)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_writes_the_documented_json(market, tmp_path):
    write_market(market, tmp_path / "market.parquet")
    out = tmp_path / "out.json"

    result = run_command(
        *("--market", tmp_path / "market.parquet", "--jobs", 3, "--seed", 2),
        *("--policy", "msu,ahap(3,2,0.6)", "--json", out, "--forecaster", "persistence"),
    )

    assert result.exit_code == 0, result.output
    numbers = json.loads(out.read_text())
    fields = {
        "mean_utility_usd",
        "mean_cost_usd",
        "on_time_fraction",
        "late_value_loss_usd",
        "percent_of_clairvoyant",
    }
    assert set(numbers) == {"jobs", "policies", "clairvoyant"}
    assert numbers["jobs"] == 3
    assert set(numbers["policies"]) == {"msu", "ahap(3,2,0.6)"}
    assert set(numbers["policies"]["msu"]) == {*fields, "decisions_per_s"}
    assert set(numbers["clairvoyant"]) == fields


def test_the_command_takes_market_and_jobs_from_a_log(competing_log, tmp_path):
    _, log = competing_log
    write_log(tmp_path / "log", log)

    result = run_command(
        *("--log", tmp_path / "log", "--policy", "msu", "--json", "-"),
        *("--forecaster", "persistence"),
    )

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["jobs"] == 12


_JOB = """\
- tenant: research
  request_id: {request_id}
  work: {{amount: 20, unit: instance_hours}}
  deadline: {{hard: 2026-01-01T12:00:00Z}}
  value_usd: 300
  instances: {{min: 1, max: 8}}
  throughput: {{"*": {{alpha_per_hour: 1}}}}
"""


def test_the_command_reads_a_list_of_jobs(market, tmp_path):
    write_market(market, tmp_path / "market.parquet")
    listed = tmp_path / "jobs.yaml"
    listed.write_text(_JOB.format(request_id="a") + _JOB.format(request_id="b"))
    common = ("--market", tmp_path / "market.parquet", "--jobs", listed, "--policy", "msu")

    result = run_command(*common, "--json", "-", "--forecaster", "persistence")

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["jobs"] == 2


@pytest.mark.parametrize(
    ("jobs", "complaint"),
    [
        (_JOB.format(request_id="a") * 2, "request_id"),
        (_JOB.format(request_id="a").replace("hard", "hrad"), "deadline.hrad"),
        ("[]", "empty list"),
        ("- 3", "mapping"),
    ],
)
def test_bad_job_lists_name_the_mistake(market, tmp_path, jobs, complaint):
    write_market(market, tmp_path / "market.parquet")
    listed = tmp_path / "jobs.yaml"
    listed.write_text(jobs)

    result = run_command("--market", tmp_path / "market.parquet", "--jobs", listed)

    assert result.exit_code == 2
    assert complaint in result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--jobs", "3"), "--market, --log"),
        (("--market", "nowhere.parquet", "--jobs", "3"), "preset"),
        (("--market", "mixed"), "--jobs"),
        (("--market", "mixed", "--jobs", "0"), "n: expected a number >= 1"),
        (("--market", "mixed", "--jobs", "3", "--policy", "best"), "found 'best'"),
        (("--market", "mixed", "--jobs", "3", "--forecaster", "oracle"), "forecaster"),
        (("--log", "nowhere"), "manifest.json"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, complaint):
    result = run_command(*arguments)

    assert result.exit_code == 2
    assert complaint in result.output

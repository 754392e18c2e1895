"""What the proof says of itself, and what it does not let pass."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spotline.demo.train.accounts import GenerationAccount, TrainingAccount
from spotline.demo.train.diary import Page
from spotline.demo.train.evidence import JobEvidence
from spotline.demo.train.report import JobFared, TrainReport, measured_job, seconds_per_update
from spotline.demo.train.scenario import Compression, JobContext, TrainingProgram, TrainingTask
from spotline.demo.train.scenario import job_of as made_job
from spotline.demo.train.undisturbed import UndisturbedRun
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.events.training import NoticeAction, TrainingRestarted
from spotline.domain.jobs.run import RunPackage
from spotline.domain.market.generate import generate

TASK = TrainingTask(name="one", task=1, steps=20, first_slot=1, deadline_slots=12)
COMPRESSION = Compression(market_s_per_s=90.0)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    return made_job(
        TASK,
        generate("mixed", seed=1, slots=20, slot_s=900, start_ns=0),
        JobContext(
            program=TrainingProgram(script="numpy_trainer.py"),
            compression=COMPRESSION,
            package=RunPackage(sha256="0" * 64, uri=f"{folder}/p", size_bytes=1),
            location=folder,
            diaries=folder / "diaries",
            steps_per_s=2.0,
            seed=0,
        ),
    )


def account(loss=2.2, lost=3):
    first = GenerationAccount(generation=1, world=1, resumed=0, kept=10, reached=10 + lost)
    rest = [
        GenerationAccount(generation=2 + n, world=2 - n % 2, resumed=10, kept=10, reached=10)
        for n in range(5)
    ]
    last = GenerationAccount(generation=9, world=1, resumed=10, kept=20, reached=20)
    return TrainingAccount(
        steps=20,
        batch=8,
        generations=(first, *rest, last),
        problems=(),
        held_out_loss=loss,
        losses={},
    )


def fared(job, **changes):
    calm = tuple(
        UndisturbedRun(
            task=TASK, seed=seed, held_out_loss=loss, losses={}, steps_per_s=2.0, start_s=5.0
        )
        for seed, loss in enumerate((2.19, 2.20, 2.21))
    )
    evidence = JobEvidence(
        outcome=JobOutcome.COMPLETED,
        lost={f"i-{n}" for n in range(6)},
        noticed={f"i-{n}" for n in range(4, 12)},
        answers={
            ("i-4", "a"): NoticeAction.SAVED,
            ("i-5", "b"): NoticeAction.NOT_SAVED,
            ("i-6", "c"): NoticeAction.SKIPPED,
        },
        accrued_micro_usd=2_000_000,
    )
    stated = {
        "task": TASK,
        "job": job,
        "evidence": evidence,
        "account": account(),
        "undisturbed": calm,
        "cost_micro_usd": 2_000_000,
        "on_demand_micro_usd": 8_000_000,
        "msu_micro_usd": 3_000_000,
    }
    return JobFared(**{**stated, **changes})


def report(*jobs):
    return TrainReport(
        jobs=jobs, ledger_micro_usd=sum(job.cost_micro_usd for job in jobs), wall_s=321.04
    )


def test_the_numbers_of_a_proof_that_holds(job) -> None:
    found = report(fared(job))

    assert found.failures() == []
    assert json.loads(json.dumps(found.as_json())) == {
        "jobs": 1,
        "completed": 1,
        "missed_deadlines": 0,
        "interruptions": 12,
        "without_notice": 4,
        "resizes": 6,
        "steps_lost": 3,
        "steps_total": 20,
        "notice_saves": {"tried": 2, "completed": 1},
        "loss_gap": 0.0,
        "cost_usd": 2.0,
        "on_demand_cost_usd": 8.0,
        "saving_percent": 75.0,
        "wall_s": 321.0,
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"account": account(loss=2.25)},
            "one: held-out loss is +2.2727% off, more than 2 spreads",
        ),
        ({"account": account(loss=None)}, "one: there is no held-out loss, as it did not end"),
        ({"account": replace(account(), problems=("a hole",))}, "one: a hole"),
        ({"account": replace(account(), generations=())}, "0 resizes, fewer than 5"),
        ({"cost_micro_usd": 1}, "one: the log says that it cost 2000000 micro-USD, its bills 1"),
        (
            {"evidence": JobEvidence(outcome=None, accrued_micro_usd=2_000_000)},
            "one: not over, not on time",
        ),
    ],
)
def test_what_does_not_hold_is_said(job, changes, said) -> None:
    failures = report(fared(job, **changes)).failures()

    assert any(failure.startswith(said) for failure in failures), failures


@pytest.mark.parametrize(
    ("took", "said"),
    [
        (frozenset(), ["the rehearsal took nothing back"]),
        (frozenset({"i-0"}), []),
        (frozenset({"i-0", "i-x"}), ["i-x was taken back, and no job heard of it"]),
    ],
)
def test_of_a_rehearsal_each_instance_that_it_took_is_demanded_and_no_number(
    job, took, said
) -> None:
    fared_job = fared(job)
    fared_job.evidence.lost.clear()
    fared_job.evidence.noticed.clear()
    fared_job.evidence.noticed.add("i-0")
    found = replace(report(fared_job), rehearsed=True, took=took)

    assert found.failures() == said


def test_bills_that_are_not_all_of_the_ledger_are_said(job) -> None:
    found = replace(report(fared(job)), ledger_micro_usd=5)

    assert found.failures() == ["the jobs were charged 2000000 micro-USD, the ledger says 5"]


def page(generation, world, *at_s):
    began = {"kind": "began", "step": 0, "world": world, "parameters": "", "at_s": 0.0}
    reached = [
        {"kind": "reached", "step": n, "parameters": "", "at_s": s} for n, s in enumerate(at_s)
    ]
    return Page(generation=generation, rank=0, notes=(began, *reached))


def test_a_job_is_simulated_at_the_rates_and_restarts_that_were_measured(job) -> None:
    pages = [page(1, 1, 10.0, 10.5, 11.0), page(2, 2, 20.0, 20.25), page(3, 1, 30.0, 33.0)]
    restart = TrainingRestarted(
        job_id=job.job_id,
        tenant=job.tenant,
        generation=2,
        restart_s=700,
        load_s=1,
        resumed_done=0.0,
        resumed_sha256="",
        ts_event_ns=1,
    )
    evidence = JobEvidence(restarted=[restart])

    measured = measured_job(job, TASK.steps, pages, evidence, COMPRESSION)

    assert seconds_per_update(pages) == {1: 0.5, 2: 0.25}
    # 512 tokens an update, 40 seconds of wall time in a market hour.
    assert measured.throughputs[0].table == (41_000.0, 81_900.0)
    assert measured.overheads.launch_s == measured.overheads.interrupted_s == 700

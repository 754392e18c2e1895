"""One job trained for real on the local cloud: a resize, a SIGKILL, a notice, and the same model."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from spotline.adapters.clouds.local.cloud import take_back
from spotline.adapters.clouds.local.store import LocalStore
from spotline.adapters.eventlog.reader import EventLogReader
from spotline.demo.train.program.numpy_trainer import BigramModel
from spotline.demo.train.report import events_in
from spotline.demo.train.run import run_training
from spotline.demo.train.scenario import TrainingTask
from spotline.demo.train.tokens import TokenSource
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.events.training import GenerationFormed
from tests.eventually import eventually
from tests.fakes.short_training import ShortTraining, counted_market

STEPS = 150
# One instance can be had, then two. Slots are half a second of wall time: the deadline is far enough
# away for a machine that takes several times as long to start what is killed.
DEADLINE_SLOTS = 380
COUNTS = [1] * 3 + [2] * (DEADLINE_SLOTS + 7)
# Eight seconds of wall time: to save in them must not be a matter of luck.
NOTICE_S = 9600


def newest_instance(folder: Path) -> str:
    store = LocalStore(folder / "local_cloud.sqlite")
    try:
        return str(store.instances("state = 'running' AND taken = 0")[-1]["instance_id"])
    finally:
        store.close()


@pytest.mark.timeout(400)
async def test_a_job_that_is_resized_killed_and_noticed_ends_as_if_nothing_had_been(
    tmp_path: Path,
) -> None:
    task = TrainingTask(
        name="short", task=1, steps=STEPS, first_slot=1, deadline_slots=DEADLINE_SLOTS
    )
    short = ShortTraining(folder=tmp_path, market=counted_market(COUNTS), task=task)
    job = short.job()
    killed = 0
    taken: list[str] = []
    seen: dict[str, float] = {}

    def take(**how: int) -> None:
        taken.append(newest_instance(short.cloud_folder))
        take_back(short.cloud_folder, taken[-1:], **how)

    async def hold(slot: int) -> None:
        nonlocal killed
        seen.update(short.complete())
        if slot == 3:
            await eventually(lambda: short.updates(world=1) >= 3, timeout_s=60)
        if slot == 4:
            await eventually(lambda: short.updates(world=2) >= 3, timeout_s=60)
            killed = short.generation()
            take()
        if slot == 6:
            await eventually(lambda: short.updates(after_generation=killed) >= 3, timeout_s=60)
            seen.update(short.complete())
            take(lead_s=NOTICE_S)

    async with asyncio.timeout(360):
        run = await run_training(
            short.system(), [job], tmp_path / "log", run_id="short", seeds={}, hold=hold
        )

    evidence = short.evidence(run.log, job)
    account = short.account()
    assert evidence.outcome is JobOutcome.COMPLETED
    assert seen.keys() & evidence.committed.keys()
    assert evidence.problems(seen) == []
    assert account.problems == ()
    worlds = [generation.world for generation in account.generations]
    assert worlds[0] == 1
    assert (1, 2) in list(pairwise(worlds))
    assert account.resizes >= 1
    assert evidence.without_notice >= 1
    assert len(evidence.noticed) >= 1
    assert evidence.saves_completed >= 1
    # Only where a member was taken is anything lost: what was trained since the last save, and after
    # that of a notice until the end.
    members = {
        event.generation: event.instance_ids
        for event in events_in(EventLogReader(run.log))
        if isinstance(event, GenerationFormed)
    }
    losing = [generation.generation for generation in account.generations if generation.lost]
    assert all(set(members[generation]) & set(taken) for generation in losing)
    calm, trained = undisturbed_model(task), BigramModel(1)
    (result,) = short.checkpoints.glob(f"{job.job_id}/checkpoints/*-f")
    trained.load(result)
    # Other numbers of ranks add up in another order.
    assert trained.logits == pytest.approx(calm.logits, rel=1e-9, abs=1e-9)
    # One bill: each instance once, and together what the ledger says.
    assert len({bill.instance_id for bill in run.bills}) == len(run.bills)
    assert sum(bill.estimate_micro_usd for bill in run.bills) == run.ledger_micro_usd > 0


def undisturbed_model(task: TrainingTask) -> BigramModel:
    """What one process makes of the text from beginning to end."""
    source = TokenSource(task=task.task)
    model = BigramModel(source.vocabulary)
    tokens = task.batch * (source.length - 1)
    for step in range(task.steps):
        _, gradient = model.loss_and_gradient(source.sequences(step * task.batch, task.batch))
        model.update(gradient / tokens)
    return model

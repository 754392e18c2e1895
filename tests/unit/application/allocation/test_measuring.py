"""Which change of the held set a start of a program answers, and what it took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.allocation.measuring import Measuring
from spotline.domain.events.capacity import CapacityLost, CapacityReported
from spotline.domain.events.lifecycle import JobClosed, JobOutcome, JobSubmitted
from spotline.domain.events.training import (
    CheckpointCommitted,
    CheckpointKind,
    GenerationFormed,
    TrainingRestarted,
)
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.jobs.measured import Change
from spotline.domain.jobs.run import Run
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import EAST, SLOT_S, START_NS, WEST, job, slot_opened

ONE = replace(job(), run=Run(command=("train",)))
WHOSE = {"job_id": ONE.job_id, "tenant": ONE.tenant}


class Story:
    """Tells a fold of one job; `slot` is open."""

    def __init__(self, one=ONE) -> None:
        self.fold = Measuring()
        self.fold.fold(JobSubmitted(job=one, ts_event_ns=0))
        self.slot = -1
        self.generation = 0
        self.open()

    @property
    def followed(self):
        return self.fold.followed[ONE.job_id]

    def open(self, **quoted: object) -> None:
        self.slot += 1
        self.fold.fold(slot_opened(self.slot, **quoted))

    def ns(self, offset_s: int) -> int:
        return START_NS + (self.slot * SLOT_S + offset_s) * NS_PER_S

    def hold(self, offset_s: int, *lots: Lot, ids: tuple[str, ...] = (), revision: int = 0) -> None:
        held = (JobHolding(job_id=ONE.job_id, lots=lots, instance_ids=ids),) if lots else ()
        self.fold.fold(
            CapacityReported(
                slot=self.slot, revision=revision, offset_s=offset_s, settled=True, holdings=held
            )
        )

    def lose(self, offset_s: int, offering_id: str = EAST) -> None:
        self.fold.fold(
            CapacityLost(
                **WHOSE,
                offering_id=offering_id,
                instance_ids=("i-1",),
                slot=self.slot,
                offset_s=offset_s,
            )
        )

    def form(self, at_s: int) -> None:
        self.generation += 1
        self.fold.fold(
            GenerationFormed(
                **WHOSE,
                generation=self.generation,
                instance_ids=("i",),
                detail="",
                ts_event_ns=self.ns(at_s),
            )
        )

    def restart(self, restart_s: int = 20):
        return self.fold.fold(
            TrainingRestarted(
                **WHOSE,
                generation=self.generation,
                restart_s=restart_s,
                load_s=5,
                resumed_done=0.0,
                resumed_sha256="",
                ts_event_ns=self.ns(0),
            )
        )

    def save(self, save_s: int = 16, size_bytes: int = 10**9):
        return self.fold.fold(
            CheckpointCommitted(
                **WHOSE,
                generation=1,
                step=1,
                done=1.0,
                uri="file:///c",
                sha256="",
                size_bytes=size_bytes,
                kind=CheckpointKind.PERIODIC,
                save_s=save_s,
                ts_event_ns=0,
            )
        )

    @property
    def seen(self) -> dict[Change, tuple[int, ...]]:
        return {
            change: quantity.samples
            for change, quantity in self.followed.measured.restarts
            if quantity.samples
        }


def east(spot: int = 0, on_demand: int = 0) -> Lot:
    return Lot(offering_id=EAST, spot=spot, on_demand=on_demand)


@pytest.fixture
def story() -> Story:
    """A job whose first generation runs on four spot instances."""
    made = Story()
    made.hold(0, east(4), ids=("a", "b", "c", "d"))
    made.form(90)
    made.restart(30)
    return made


def test_a_launch_takes_its_boots_and_its_restart(story: Story) -> None:
    assert story.seen == {Change.LAUNCH: (120,)}


def test_fewer_of_the_same_is_a_shrink(story: Story) -> None:
    story.open()
    story.hold(0, east(2), ids=("a", "b"))
    story.form(8)
    story.restart(12)

    assert story.seen[Change.SHRINK] == (20,)


@pytest.mark.parametrize(
    ("lot", "ids"),
    [
        (east(4, 1), ("a", "b", "c", "d", "e")),
        (east(2, 2), ("a", "b", "e", "f")),
        (east(4), ("a", "b", "c", "e")),
        (east(2), ("a", "e")),
    ],
)
def test_what_adds_instances_is_a_growth(story: Story, lot: Lot, ids: tuple[str, ...]) -> None:
    story.open()
    story.hold(0, lot, ids=ids)
    story.form(8)
    story.restart(12)

    assert story.seen[Change.GROW] == (20,)


def test_a_loss_inside_a_slot_is_an_interruption_also_once_it_is_replaced(story: Story) -> None:
    story.lose(100)
    story.hold(100, east(3), ids=("a", "b", "c"))
    story.hold(100, east(3, 1), ids=("a", "b", "c", "e"), revision=1)
    story.form(160)
    story.restart(30)

    assert story.seen[Change.INTERRUPTED] == (90,)


def test_a_whole_set_that_is_replaced_at_once_was_interrupted(story: Story) -> None:
    story.lose(100)
    story.hold(100)
    story.hold(100, east(0, 4), ids=("e", "f", "g", "h"), revision=1)
    story.form(160)
    story.restart(30)

    assert story.seen[Change.INTERRUPTED] == (90,)


def test_a_launch_after_a_pause_is_a_launch(story: Story) -> None:
    story.lose(100)
    story.hold(100)
    story.open()
    story.hold(0, east(0, 4), ids=("e", "f", "g", "h"))
    story.form(60)
    story.restart(30)

    assert story.seen == {Change.LAUNCH: (120, 90)}


def test_what_is_gone_as_a_slot_opens_is_an_interruption(story: Story) -> None:
    story.open(spot=2)
    story.hold(0, east(2, 2), ids=("a", "b", "e", "f"))
    story.form(60)
    story.restart(30)

    assert story.seen[Change.INTERRUPTED] == (90,)


def test_another_offering_is_a_migration_also_after_a_pause(story: Story) -> None:
    story.open()
    story.hold(0)
    story.open()
    story.hold(0, Lot(offering_id=WEST, spot=4), ids=("e", "f", "g", "h"))
    story.form(60)
    story.restart(30)

    assert story.seen[Change.MIGRATE] == (90,)


def test_the_heavier_of_two_changes_that_one_start_answers_counts(story: Story) -> None:
    story.open()
    story.hold(0, east(4, 1), ids=("a", "b", "c", "d", "e"))
    story.hold(50, east(4), ids=("a", "b", "c", "d"), revision=1)
    story.form(60)
    story.restart(30)

    assert story.seen[Change.GROW] == (40,)


def test_a_start_that_no_change_led_to_is_like_one_on_what_is_left(story: Story) -> None:
    story.open()
    story.hold(0, east(4), ids=("a", "b", "c", "d"))
    story.form(60)
    story.restart(30)

    assert story.seen == {Change.LAUNCH: (120,), Change.SHRINK: (30,)}


def test_a_start_is_measured_once(story: Story) -> None:
    assert story.restart(500) is None
    assert story.seen == {Change.LAUNCH: (120,)}


def test_on_another_clock_than_the_markets_only_the_restart_counts(story: Story) -> None:
    story.open()
    story.hold(0, east(2), ids=("a", "b"))
    story.form(10**7)
    story.restart(30)
    story.open()
    story.hold(0, east(1), ids=("a",))
    story.form(-(10**6))
    story.restart(30)

    assert story.seen[Change.SHRINK] == (30, 30)


def test_only_what_changes_belief_is_told(story: Story) -> None:
    first, same, longer = story.save(16), story.save(15), story.save(40)

    assert first is story.followed
    assert same is None
    assert longer is story.followed
    assert story.followed.corrected(ONE).checkpoint.save_s == 52


def test_jobs_that_somebody_else_runs_are_not_followed() -> None:
    story = Story(replace(ONE, run=None))

    assert story.save() is None
    assert story.fold.followed == {}
    assert story.fold.lead_s(replace(ONE, run=None), 120) == 120


def test_a_job_that_is_over_is_forgotten(story: Story) -> None:
    story.fold.fold(
        JobClosed(
            **WHOSE,
            slot=0,
            outcome=JobOutcome.COMPLETED,
            policy_id="msu",
            cost_micro_usd=0,
            value_micro_usd=0,
            progress_ppm=0,
        )
    )

    assert story.fold.followed == {}
    assert story.save() is None

"""Laws of the board: whatever the log says, every job has one phase and can be shown."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.allocator.handler import SPEC, JobsHandler
from spotline.application.allocator.jobs_state import JobsState
from spotline.application.board.fold import BOARD_EVENTS, BoardState
from spotline.application.board.messages import JobPhase, JobView
from spotline.application.board.view import fleet_of, view_of
from spotline.application.market_view import MarketFold
from spotline.application.unfit import Unfit
from spotline.contracts.build import event_of
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened
from spotline.domain.jobs.job import Job
from tests.depth import examples
from tests.fakes.allocator import job
from tests.fakes.training_story import run_job
from tests.samples.events import SAMPLES
from tests.samples.stored_runs import unpack

LOGS = Path(__file__).parents[3] / "data" / "v0.1.0"
WAIT = (JobPhase.WAITING, JobPhase.INTERRUPTED, JobPhase.MOVING)


def check(view: JobView) -> None:
    assert isinstance(view.phase, JobPhase)
    assert view.headline
    assert "\n" not in view.headline
    assert "None" not in view.headline + view.why
    assert view.waiting_for is None or view.phase in WAIT
    assert view.waiting_for is not None or view.phase is not JobPhase.WAITING
    assert view.money.billed_micro_usd >= view.money.egress_micro_usd >= 0
    assert view.counts.interruptions >= view.counts.noticed


def check_all(state: JobsState) -> list[JobView]:
    views = [view_of(state.board, status.job, state.recent) for status in state.statuses.values()]
    for view, status in zip(views, state.statuses.values(), strict=True):
        check(view)
        assert view.phase.over == status.state.over
    fleet = fleet_of(state.board, state.recent, views)
    assert fleet.open_jobs == sum(not view.phase.over for view in views)
    return views


def recorded(name: str, folder: Path) -> list[Event]:
    unpack(LOGS / f"{name}.tar.xz", folder)
    root = next(folder.rglob("manifest.json")).parent
    return [event_of(entry) for entry in EventLogReader(root)]


def fold_all(events: Iterable[Event], *, look: bool) -> tuple[JobsState, list[JobPhase]]:
    handler = JobsHandler()
    state, phases = handler.initial(), []
    for event in events:
        if type(event) in SPEC.consumes:
            handler.evolve(state, event)
            phases += [view.phase for view in check_all(state)] if look else []
    return state, phases


@pytest.mark.parametrize("name", ["demo-log", "up-log"])
def test_every_prefix_of_a_recorded_log_can_be_shown(name: str, tmp_path: Path):
    state, phases = fold_all(recorded(name, tmp_path), look=True)

    assert {JobPhase.WAITING, JobPhase.RUNNING, JobPhase.COMPLETED} <= set(phases)
    assert [view.phase for view in check_all(state)] == [JobPhase.COMPLETED] * 3


def test_looking_changes_nothing(tmp_path: Path):
    events = recorded("up-log", tmp_path)

    looked, _ = fold_all(events, look=True)
    folded, _ = fold_all(events, look=False)

    assert looked.board == folded.board


def test_a_state_that_was_kept_and_taken_up_again_is_the_same(tmp_path: Path):
    events = recorded("demo-log", tmp_path)
    whole, _ = fold_all(events, look=False)
    board, market = BoardState(), MarketFold()

    for number, event in enumerate(events):
        market.fold(event)
        board.fold(event, market)
        if number % 97 == 0:
            board, market = pickle.loads(pickle.dumps((board, market)))

    assert board == whole.board


def samples_of(stated: Job) -> list[Event]:
    """One sample of all that can be said of jobs, of this job."""
    found: list[Event] = []
    for event in SAMPLES:
        if type(event) not in BOARD_EVENTS or isinstance(event, MarketOpened):
            continue
        changes: dict[str, object] = {}
        if hasattr(event, "job_id"):
            changes["job_id"] = stated.job_id
        if hasattr(event, "job"):
            changes["job"] = stated
        if hasattr(event, "holdings"):
            holdings = event.holdings
            changes["holdings"] = (replace(holdings[0], job_id=stated.job_id),)
        found.append(replace(event, **changes))
        if "holdings" in changes:
            found.append(replace(event, holdings=()))
    return found


MARKET = next(event for event in SAMPLES if isinstance(event, MarketOpened))


@settings(max_examples=examples(150), deadline=None)
@given(
    is_run=st.booleans(),
    numbers=st.lists(st.integers(0, 10_000), max_size=40),
    slots=st.lists(st.integers(0, 3), min_size=40, max_size=40),
)
def test_whatever_is_said_in_whatever_order_a_job_can_be_shown(is_run, numbers, slots):
    stated = run_job() if is_run else job()
    events = samples_of(stated)
    state, handler = JobsHandler().initial(), JobsHandler()
    handler.evolve(state, MARKET)
    for number, ahead in zip(numbers, slots, strict=False):
        event = events[number % len(events)]
        if hasattr(event, "slot"):
            event = replace(event, slot=event.slot + ahead)
        try:
            state.recent.fold(event)
        except Unfit:
            # A slot further ahead than time has gone on: it is parked, and nobody folds it.
            continue
        state.board.fold(event, state.recent)

        if stated.job_id in state.board.entries:
            check(view_of(state.board, stated, state.recent))
        fleet_of(state.board, state.recent)

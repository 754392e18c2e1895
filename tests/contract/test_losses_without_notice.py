"""Spot that goes without notice: at any moment, the last safe one included, a hard deadline holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.job import Checkpoint, Deadline, DeadlineKind
from spotline.domain.jobs.measured import NOTHING, corrected, planned_lead_s
from spotline.domain.jobs.program import IDLE, Holding, JobProgram, interruption_s
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.policies.compiled import replay_pool
from spotline.domain.policies.decision import decide_slot, is_safe
from spotline.domain.policies.interface import START, PolicyView, WindowForecast
from spotline.domain.policies.registry import POOL, policy_named
from spotline.domain.policies.replay import clairvoyant_optimum
from spotline.domain.units import NS_PER_S
from tests.contract.test_episode_matches_policies import life_of
from tests.depth import examples
from tests.fakes.training import run_job

SLOT_S = 600
PLENTY = 10**6
NAMES = (
    "msu",
    "on_demand_only",
    "uniform_progress",
    "ahanp(0.3)",
    "ahap(3,2,0.6)",
    "sdp",
    "hybrid(2)",
)
SEEDS = st.integers(0, 2**32 - 1)


def program_of(rng: np.random.Generator) -> JobProgram:
    """A job that its largest count on demand finishes in time, launched in its first slot."""
    counts = [(1,), (1, 2, 4), (4,), (2, 3, 8)][rng.integers(4)]
    rates = [0] * (counts[-1] + 1)
    for count in counts:
        # More instances never run slower, and by no law.
        rates[count] = max(rates) + int(rng.integers(1, 9))
    overheads = sorted(int(part) for part in rng.choice([0, 30, 180, 600, 900], 3))
    launch_s = int(rng.choice([0, 60, 300, 900]))
    deadline = int(rng.integers(4, 24))
    within_s = (deadline - int(rng.integers(0, 4))) * SLOT_S - launch_s
    return JobProgram(
        slot_s=SLOT_S,
        work_quanta=max(1, rates[-1] * max(1, within_s)),
        rate_quanta_per_s=tuple(rates),
        allowed_counts=counts,
        launch_s=launch_s,
        shrink_s=overheads[0],
        grow_s=overheads[1],
        interrupted_s=overheads[2],
        deadline_slots=deadline,
        end_slots=deadline,
        hard=True,
        value_micro_usd=(10**8,) * (deadline + 1),
        lost_s=int(rng.choice([60, 300, 600, 1800, 5400])),
    )


@dataclass(slots=True)
class TrainingProgram:
    """What really happens: it saves every `lost_s` seconds that it runs, and at each change of ours.

    `done` is work in quanta, `saved` what its newest checkpoint holds, made `unsaved_s` ago.
    """

    program: JobProgram
    held: Holding = IDLE
    done: int = 0
    saved: int = 0
    unsaved_s: int = 0
    pending_s: int = 0

    def lose(self) -> None:
        """Spot is gone without a word: the work since the last checkpoint is lost."""
        self.done, self.unsaved_s = self.saved, 0

    def take(self, held: Holding, overhead_s: int) -> None:
        """Another set is held from now on."""
        if held != self.held:
            self.saved, self.unsaved_s = self.done, 0
        self.held = held
        self.pending_s = max(self.pending_s, overhead_s) if held.instances else 0

    def run(self, seconds: int) -> None:
        """Run on what is held."""
        for _ in range(seconds):
            if not self.held.instances:
                return
            if self.pending_s:
                self.pending_s -= 1
                continue
            self.done += self.program.rate_quanta_per_s[self.held.instances]
            self.unsaved_s += 1
            if self.unsaved_s == self.program.lost_s:
                self.saved, self.unsaved_s = self.done, 0


def overhead_s(program: JobProgram, before: Holding, after: Holding, *, interrupted: bool) -> int:
    """What a change costs, told from how long it holds progress up."""
    state = JobProgress(holding=before)
    return advance(program, state, after, held_s=0, interrupted=interrupted).pending_overhead_s


@dataclass(frozen=True, slots=True)
class Loss:
    """All spot goes at this moment of this slot, and none is to be had until the slot is over."""

    slot: int
    offset_s: int


def life(
    name: str,
    rng: np.random.Generator,
    program: JobProgram,
    losses: list[Loss],
    really_lost_s: int | None = None,
) -> tuple[bool, list[Holding]]:
    """Run a job by a policy; say whether it met its deadline, and what it held at each decision.

    `really_lost_s` is what is lost where the program is wrong about it.
    """
    policy, fallback = policy_named(name), policy_named("msu")
    lost_s = program.lost_s if really_lost_s is None else really_lost_s
    real = TrainingProgram(replace(program, lost_s=lost_s))
    state, memory, spent = JobProgress(), START, 0
    held: list[Holding] = []
    for slot in range(program.deadline_slots):
        spot = int(rng.choice([0, 1, 2, program.max_instances, 16]))
        price = int(rng.integers(1, 10**6))
        cuts = [loss.offset_s for loss in losses if loss.slot == slot]
        moments = [0, *sorted(set(cuts) - {0})]
        for index, offset_s in enumerate(moments):
            gone = offset_s in cuts
            spot = 0 if gone else spot
            interrupted = state.holding.spot > spot
            if interrupted:
                real.lose()
                state = state.fallen()
                # The worst case is planned with: there is never less than what is called safe.
                assert really_lost_s is not None or state.progress_quanta <= real.done
            view = PolicyView(
                program=program,
                elapsed_slots=slot,
                state=state,
                interrupted=interrupted,
                spot_price=price,
                on_demand_price=10**6,
                spot_available=spot,
                on_demand_available=PLENTY,
                forecast=WindowForecast(spot_price=(price,) * 5, spot_available=(spot,) * 5),
                slot_left_s=SLOT_S - offset_s,
                spent_micro_usd=spent,
            )
            asked = fallback if policy.needs_forecast and offset_s else policy
            decision = decide_slot(asked, view, memory if asked is policy else START)
            memory = decision.memory if asked is policy else START
            until_s = moments[index + 1] if index + 1 < len(moments) else SLOT_S
            real.take(
                decision.holding,
                overhead_s(program, state.holding, decision.holding, interrupted=interrupted),
            )
            real.run(until_s - offset_s)
            state = advance(
                program,
                state,
                decision.holding,
                held_s=until_s - offset_s,
                interrupted=interrupted,
            )
            held.append(decision.holding)
            if real.done >= program.work_quanta:
                return True, held
    return False, held


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS)
def test_a_loss_without_notice_at_any_moment_keeps_a_hard_deadline(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = program_of(rng)
    losses = [
        Loss(int(rng.integers(0, program.deadline_slots)), int(rng.integers(0, SLOT_S)))
        for _ in range(int(rng.integers(0, 6)))
    ]

    on_time, _ = life(name, rng, program, losses)

    assert on_time


@settings(max_examples=examples(40), deadline=None)
@given(seed=SEEDS)
def test_the_last_safe_moment_is_safe(seed: int) -> None:
    """Spot is held as long as the net allows, and goes in the very last second of it."""
    program = program_of(np.random.default_rng(seed))
    _, held = life("msu", np.random.default_rng(seed), program, [])
    last = max((slot for slot, holding in enumerate(held) if holding.spot), default=-1)
    if last < 0:
        return

    for offset_s in (1, SLOT_S // 2, SLOT_S - 1):
        on_time, _ = life("msu", np.random.default_rng(seed), program, [Loss(last, offset_s)])

        assert on_time


def test_a_net_that_forgot_the_lost_work_would_miss_deadlines_here() -> None:
    """The deadlines above are not kept by luck: the same losses, and a net that counts none."""
    missed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        program = program_of(rng)
        losses = [
            Loss(int(slot), SLOT_S - 1) for slot in rng.integers(0, program.deadline_slots, 4)
        ]
        missed += not life("msu", rng, replace(program, lost_s=0), losses, program.lost_s)[0]

    assert missed > 0


SAVES_EVERY_S = 1800


def run_program(seed: int, *, save_s: int | None, lead_s: int = 120) -> JobProgram:
    """A program that Spotline runs on an offering with notice; `save_s` was measured (None: not)."""
    drawn = program_of(np.random.default_rng(seed))
    end_ns = drawn.deadline_slots * SLOT_S * NS_PER_S
    job = run_job(
        start_ns=0,
        checkpoint=Checkpoint(interval_s=SAVES_EVERY_S, save_s=60),
        deadline=Deadline(kind=DeadlineKind.HARD, at_ns=end_ns, expires_ns=end_ns),
    )
    measured = NOTHING if save_s is None else NOTHING.saved(save_s, 1)
    interrupted_s, lost_s = interruption_s(
        corrected(job, job, measured), planned_lead_s(job, lead_s, measured)
    )
    assert interrupted_s == job.overheads.interrupted_s
    return replace(drawn, lost_s=lost_s)


@pytest.mark.parametrize("name", ["msu", "ahap(3,2,0.6)"])
@settings(max_examples=examples(30), deadline=None)
@given(seed=SEEDS)
def test_until_a_save_was_measured_a_save_that_never_ends_in_time_costs_no_deadline(
    name: str, seed: int
) -> None:
    """The notice is guaranteed, and the program cannot use it."""
    rng = np.random.default_rng(seed)
    program = run_program(seed, save_s=None)
    losses = [
        Loss(int(rng.integers(0, program.deadline_slots)), int(rng.integers(0, SLOT_S)))
        for _ in range(int(rng.integers(0, 6)))
    ]

    on_time, _ = life(name, rng, program, losses, SAVES_EVERY_S)

    assert on_time


def test_what_is_planned_with_turns_with_the_first_save_that_was_measured() -> None:
    assert run_program(1, save_s=None).lost_s == SAVES_EVERY_S
    assert run_program(1, save_s=60).lost_s == 0
    # A quarter more than was measured must fit.
    assert run_program(1, save_s=100).lost_s == SAVES_EVERY_S


@pytest.mark.parametrize("interrupted_s", [SLOT_S, SLOT_S + 1])
@pytest.mark.parametrize(("unsaved_quanta", "safe"), [(0, True), (1, False)])
def test_a_job_that_is_done_is_safe_where_it_has_nothing_to_lose(
    interrupted_s: int, unsaved_quanta: int, safe: bool
) -> None:
    """In the deadline's slot, where a loss costs all that is left of it."""
    program = replace(
        program_of(np.random.default_rng(1)), launch_s=0, interrupted_s=interrupted_s, lost_s=300
    )
    holding = Holding(spot=program.max_instances)
    state = JobProgress(
        progress_quanta=program.work_quanta, holding=holding, unsaved_quanta=unsaved_quanta
    )
    view = PolicyView(
        program=program,
        elapsed_slots=program.deadline_slots - 1,
        state=state,
        interrupted=False,
        spot_price=1,
        on_demand_price=2,
        spot_available=holding.spot,
        on_demand_available=PLENTY,
        forecast=None,
        slot_left_s=SLOT_S,
    )

    assert is_safe(view, holding) == safe


def test_every_policy_of_the_pool_is_of_a_kind_that_is_tried_here() -> None:
    tried = {name.partition("(")[0] for name in NAMES}

    assert {policy.policy_id.partition("(")[0] for policy in POOL} <= tried


@settings(max_examples=examples(30), deadline=None)
@given(seed=SEEDS)
# Late, and the largest count is out of stock: fewer on demand finish the job.
@example(seed=199)
def test_nobody_does_better_than_the_bound_of_the_clairvoyant(seed: int) -> None:
    program, records = life_of(seed)
    if not records:
        return

    best = clairvoyant_optimum(program, records)
    pool = [policy_named(name) for name in NAMES if name not in ("sdp", "hybrid(2)")]
    lives = replay_pool(program, records, pool, policy_named("msu"))

    assert best.result.utility_micro_usd <= best.upper_utility_micro_usd
    assert not best.exact or best.result.utility_micro_usd == best.upper_utility_micro_usd
    for life_of_policy in lives:
        assert life_of_policy.utility_micro_usd <= best.upper_utility_micro_usd

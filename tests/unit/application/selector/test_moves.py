"""Jobs leave an offering where their value tables say that it pays, and the books stay right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateRequest, Alternative, JobTask
from spotline.application.allocation.tasks import move_margin_micro_usd, program_of, task_view
from spotline.application.allocation.value_tables import surcharged, table_spec
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.job_run import RunPhase
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.application.spec import Context, Outcome
from spotline.contracts.build import event_of
from spotline.contracts.mapping import digest
from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided, CallOutcome
from spotline.domain.events.capacity import (
    CapacityReported,
    CostAccrued,
    LaunchRefused,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobAdvanced, JobSubmitted
from spotline.domain.jobs.job import Checkpoint, Overheads
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.jobs.program import IDLE
from spotline.domain.market.generate import generate
from spotline.domain.market.law import MarketLaw, StateSpace, quantised_rows
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.offering import CapacityType, Count, Provenance
from spotline.domain.policies.answer import DecisionReason, JobAnswer, Move
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.registry import policy_named
from spotline.domain.solvers.table_spec import TableUse
from spotline.replay.divergence import SAME
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud
from spotline.replay.simulate import SimulationOptions, simulate
from spotline.replay.summary import SPOTLINE, moves_line
from spotline.replay.verify import verify
from tests.fakes.actuator import Rig, command, lot, opened
from tests.fakes.allocator import (
    EAST,
    SLOT_S,
    START_NS,
    WEST,
    job,
    market_opened,
    offering,
    slot_opened,
)
from tests.fakes.recorded_run import SETTINGS, manifest_of, recorded_run

OUT, UP = 0, 1
LAW = NamedLaw(
    law_id="a law",
    law=MarketLaw(
        space=StateSpace(level_starts=(0, 1), age_starts=(1,), price_centres_ppm=(300_000,)),
        level_counts=(0, 4),
        run_ppb=quantised_rows(np.array([[0.9, 0.1], [0.1, 0.9]])),
        price_ppb=quantised_rows(np.ones((1, 1))),
    ),
)


# --- whether to move --------------------------------------------------------------------------


def table_use(one, offering_id: str, run_state: int) -> TableUse:
    place = offering(offering_id)
    program = program_of(
        one, offering_id, place.instance_type, SLOT_S, START_NS, place.notice_lead_s
    )
    spec = table_spec(
        program,
        LAW,
        place,
        first_slot_start_ns=START_NS,
        on_demand_price_micro_usd=10_000_000,
        on_demand_available=100,
        taken=0,
    )
    return TableUse(table=spec, run_state=run_state)


def asked(
    one,
    *,
    home: int,
    away: int,
    policy: str = "sdp",
    held: int = 4,
    migrate_s: int = 90,
    cost_micro_usd: int = 50_000,
    away_price: int = 3_000_000,
    offset_s: int = 0,
    elapsed: int = 5,
    progress: int = 0,
) -> AllocateRequest:
    """A job at home in EAST that may go WEST; `home` and `away` say whether there is spot."""
    quotes = []
    for quoted in slot_opened(elapsed).quotes:
        east = quoted.quote.offering_id == EAST
        instances = 4 * (home if east else away)
        quotes.append(
            replace(
                quoted,
                quote=replace(
                    quoted.quote,
                    spot_price_micro_usd=3_000_000 if east else away_price,
                    spot_available=Count(instances=instances, provenance=Provenance.OBSERVED),
                ),
            )
        )
    task = JobTask(
        job=one,
        policy_id=policy,
        offering_id=EAST,
        instance_type=offering(EAST).instance_type,
        first_slot_start_ns=START_NS,
        elapsed_slots=elapsed,
        progress_quanta=progress,
        holding=Lot(offering_id=EAST, spot=held),
        interrupted=False,
        pending_overhead_s=0,
        spent_micro_usd=0,
        memory=(),
        spot_firm=True,
        table_use=table_use(one, EAST, home),
        alternatives=(
            Alternative(
                offering_id=WEST,
                instance_type=offering(WEST).instance_type,
                table_use=table_use(one, WEST, away),
                migrate_s=migrate_s,
                move_cost_micro_usd=cost_micro_usd,
            ),
        ),
    )
    return AllocateRequest(
        slot=elapsed,
        revision=0,
        offset_s=offset_s,
        slot_s=SLOT_S,
        quotes=tuple(quotes),
        forecast=None,
        reason=DecisionReason.POLICY,
        tasks=(task,),
        laws=(LAW,),
    )


def answer_to(request: AllocateRequest) -> JobAnswer:
    (answer,) = allocate(request).answers
    return answer


def test_a_job_leaves_a_home_where_spot_has_a_shadow_price_only_for_more() -> None:
    one = job()
    request = asked(one, home=OUT, away=UP)
    (task,) = request.tasks
    quotes = {quoted.quote.offering_id: quoted.quote for quoted in request.quotes}

    def margin(surcharge: int) -> float:
        place = offering(EAST)
        program = program_of(one, EAST, place.instance_type, SLOT_S, START_NS, place.notice_lead_s)
        use = table_use(one, EAST, OUT)
        priced = replace(use, table=surcharged(use.table, surcharge, program, LAW.law))
        view = task_view(
            request,
            replace(task, table_use=priced, notice_lead_s=place.notice_lead_s),
            quotes[EAST],
            ResidualCapacity(request.quotes),
        )
        return move_margin_micro_usd(view)

    assert margin(0) > 0
    assert margin(500_000) == 4 * margin(0)


@pytest.mark.parametrize("policy", ["sdp", "msu"])
def test_a_job_leaves_a_home_without_spot_for_a_place_that_has_some(policy) -> None:
    answer = answer_to(asked(job(), home=OUT, away=UP, policy=policy))

    assert answer.move == Move(from_offering_id=EAST, overhead_s=90, cost_micro_usd=50_000)
    assert answer.lots == (Lot(offering_id=WEST, spot=4),)


def test_a_job_stays_where_another_place_is_as_good() -> None:
    answer = answer_to(asked(job(), home=UP, away=UP))

    assert answer.move is None
    assert answer.lots == (Lot(offering_id=EAST, spot=4),)


def test_a_small_gain_moves_nobody_and_a_large_one_does() -> None:
    small = answer_to(asked(job(), home=UP, away=UP, away_price=2_990_000, cost_micro_usd=0))
    large = answer_to(asked(job(), home=UP, away=UP, away_price=500_000, cost_micro_usd=0))

    assert small.move is None
    assert large.move is not None


def test_egress_can_cost_more_than_a_move_brings() -> None:
    answer = answer_to(asked(job(), home=OUT, away=UP, cost_micro_usd=60_000_000))

    assert answer.move is None


def test_an_interruption_at_home_is_part_of_the_way() -> None:
    slow = replace(
        job(),
        overheads=Overheads(launch_s=60, grow_s=60, shrink_s=30, migrate_s=90, interrupted_s=200),
    )

    answer = answer_to(asked(slow, home=OUT, away=UP))

    assert answer.move is not None
    assert answer.move.overhead_s == 200


def test_a_move_that_would_endanger_a_hard_deadline_is_not_made() -> None:
    # 30 slots of 600 s; four instances need 12 slots on demand: from slot 15 on, 3 are to spare.
    late = asked(job(), home=OUT, away=UP, elapsed=15, migrate_s=90)
    too_far = asked(job(), home=OUT, away=UP, elapsed=15, migrate_s=4 * SLOT_S)

    assert answer_to(late).move is not None
    assert answer_to(too_far).move is None


def test_a_policy_that_takes_no_spot_does_not_travel_for_it() -> None:
    answer = answer_to(asked(job(), home=OUT, away=UP, policy="on_demand_only", held=0))

    assert answer.move is None
    assert {lot.offering_id for lot in answer.lots} == {EAST}


def test_nobody_moves_in_mid_slot() -> None:
    answer = answer_to(asked(job(), home=OUT, away=UP, offset_s=300))

    assert answer.move is None


def test_an_alternative_without_a_quote_is_refused() -> None:
    request = asked(job(), home=OUT, away=UP)
    request = replace(request, quotes=request.quotes[:1])

    with pytest.raises(ValueError, match="alternatives"):
        allocate(request)


# --- what a move does -------------------------------------------------------------------------


class Driver:
    """Feeds a selector one event at a time, and answers its calls as it is told to."""

    def __init__(self) -> None:
        options = SelectorOptions(rehearsals=0)
        self.handler = SelectHandler(options, digest=digest, pool=(policy_named("msu"),))
        self.state: SelectorState = self.handler.initial()
        self._seq = 0

    def feed(self, event: Event) -> Outcome:
        self._seq += 1
        self.handler.evolve(self.state, event)
        ctx = Context(seq=self._seq, now_ns=0, event_id=f"{self._seq:032x}", correlation_id="c")
        outcome = self.handler.decide(self.state, event, ctx)
        for output in outcome.events:
            self.handler.evolve(self.state, output)
        return outcome

    def answered(self, slot: int, revision: int, asked: Outcome, answer: JobAnswer) -> Outcome:
        return self.feed(
            AllocationAnswered(
                slot=slot,
                revision=revision,
                request_digest=asked.calls[0].digest,
                outcome=CallOutcome.ANSWERED,
                answers=(answer,),
            )
        )


def answer_of(one, where: Lot, move: Move | None = None) -> JobAnswer:
    return JobAnswer(
        job_id=one.job_id,
        policy_id="msu",
        lots=(where,),
        memory=(),
        reason=DecisionReason.POLICY,
        move=move,
    )


def report(one, slot: int, *lots: Lot, revision: int = 0, settled: bool = True) -> CapacityReported:
    holdings = (JobHolding(job_id=one.job_id, lots=lots),) if lots else ()
    return CapacityReported(
        slot=slot, revision=revision, offset_s=0, settled=settled, holdings=holdings
    )


MOVE = Move(from_offering_id=EAST, overhead_s=240, cost_micro_usd=140_000)


def running_job() -> tuple[Driver, object, Outcome]:
    """A job that held four spot instances in EAST during slot 0, and is asked for in slot 1."""
    one = replace(
        job(start_ns=START_NS), checkpoint=Checkpoint(interval_s=600, save_s=60, size_gb=14.0)
    )
    driver = Driver()
    driver.feed(market_opened())
    driver.feed(JobSubmitted(job=one, ts_event_ns=0))
    driver.feed(slot_opened(0))
    asked_for = driver.feed(ForecastOverdue(slot=0, waited_ms=1))
    driver.answered(0, 0, asked_for, answer_of(one, Lot(offering_id=EAST, spot=4)))
    driver.feed(report(one, 0, Lot(offering_id=EAST, spot=4)))
    driver.feed(slot_opened(1))
    return driver, one, driver.feed(ForecastOverdue(slot=1, waited_ms=1))


def test_a_move_releases_first_then_launches_and_names_its_price() -> None:
    driver, one, asked_for = running_job()

    outcome = driver.answered(1, 0, asked_for, answer_of(one, Lot(offering_id=WEST, spot=4), MOVE))

    decided, *commands, ended = outcome.events
    assert isinstance(decided, AllocationDecided)
    assert decided.move == MOVE
    assert all(isinstance(one, ProvisioningCommanded) for one in commands)
    assert [(c.target, c.transfer_cost_micro_usd) for c in commands] == [
        (Lot(offering_id=EAST), 0),
        (Lot(offering_id=WEST, spot=4), 140_000),
    ]
    assert len({c.command_id for c in commands}) == 2
    assert isinstance(ended, SlotDecided)


def test_a_move_costs_its_price_and_its_seconds() -> None:
    driver, one, asked_for = running_job()
    run = driver.state.runs[one.job_id]
    before, spent = run.state.progress_quanta, run.spent_micro_usd

    driver.answered(1, 0, asked_for, answer_of(one, Lot(offering_id=WEST, spot=4), MOVE))
    driver.feed(report(one, 1, Lot(offering_id=WEST, spot=4)))
    outcome = driver.feed(slot_opened(2))

    held_micro_usd = 4 * 3_000_000 * SLOT_S // 3600
    assert run.offering_id == WEST
    assert run.moves == 1
    assert run.state.progress_quanta - before == run.compiled.rate_quanta_per_s[4] * (SLOT_S - 240)
    assert run.spent_micro_usd - spent == held_micro_usd + 140_000
    (advanced,) = [one for one in outcome.events if isinstance(one, JobAdvanced)]
    assert advanced.lots == (Lot(offering_id=WEST, spot=4),)
    assert advanced.slot_cost_micro_usd == held_micro_usd + 140_000
    assert run.records[-1].spot_available == 4


def test_a_job_whose_launch_is_refused_after_a_move_stands_idle_in_its_new_home() -> None:
    driver, one, asked_for = running_job()
    driver.answered(1, 0, asked_for, answer_of(one, Lot(offering_id=WEST, spot=4), MOVE))
    driver.feed(
        LaunchRefused(
            command_id="c",
            job_id=one.job_id,
            tenant=one.tenant,
            offering_id=WEST,
            capacity_type=CapacityType.SPOT,
            slot=1,
            requested=4,
            granted=0,
            detail="test",
        )
    )

    outcome = driver.feed(report(one, 1, settled=False))

    request = outcome.calls[0].request
    assert isinstance(request, AllocateRequest)
    (task,) = request.tasks
    assert task.holding == Lot(offering_id=WEST)
    assert task.pending_overhead_s == 240
    left = {one.quote.offering_id: one.quote.spot_available.instances for one in request.quotes}
    assert left == {EAST: 4, WEST: 0}


def test_what_is_left_behind_somewhere_is_released_when_the_job_ends() -> None:
    driver, one, asked_for = running_job()
    run = driver.state.runs[one.job_id]
    run.phase, run.target = RunPhase.CLOSED, IDLE
    run.held_lots = (Lot(offering_id=EAST, spot=1), Lot(offering_id=WEST, on_demand=2))

    outcome = driver.answered(1, 0, asked_for, answer_of(one, Lot(offering_id=EAST)))
    targets = [c.target for c in outcome.events if isinstance(c, ProvisioningCommanded)]

    assert {Lot(offering_id=EAST), Lot(offering_id=WEST)} == set(targets)


def test_only_a_move_to_other_rates_makes_a_jobs_records_mixed() -> None:
    driver, one, _ = running_job()
    run = driver.state.runs[one.job_id]
    faster = replace(
        run.compiled, rate_quanta_per_s=(0, *[r * 2 for r in run.compiled.rate_quanta_per_s[1:]])
    )

    run.move(WEST, run.compiled, MOVE)
    assert not run.mixed
    run.move(EAST, faster, MOVE)
    assert run.mixed


def test_the_exact_cloud_keeps_the_new_when_the_old_is_released() -> None:
    cloud = ExactCloud()
    state = cloud.initial()
    for target in (lot_at(EAST, 4), lot_at(WEST, 4), lot_at(EAST, 0)):
        cloud.evolve(state, replace(command("j", target, 0)))

    assert list(state.held.values()) == [lot_at(WEST, 4)]


def lot_at(offering_id: str, spot: int) -> Lot:
    return Lot(offering_id=offering_id, spot=spot)


# --- money ------------------------------------------------------------------------------------


async def test_the_ledger_holds_what_a_move_cost(tmp_path) -> None:
    rig = Rig(tmp_path)
    await rig.feed(opened(0))
    rig.call(replace(command("j", lot(spot=2), 0), transfer_cost_micro_usd=140_000))
    call = rig.call(SlotDecided(slot=0, revision=0, offset_s=0, commands=1))

    answers = await rig.perform(call)
    again = await rig.perform(call)
    bills = await rig.feed(opened(1))

    (moved,) = [one for one in answers if isinstance(one, CostAccrued)]
    assert (moved.instances, moved.cost_micro_usd) == (0, 140_000)
    assert again == answers
    total = moved.cost_micro_usd + sum(one.cost_micro_usd for one in bills)
    assert rig.ledger.spend_by_job() == {"j": total}
    rig.close()


# --- whole runs -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zones():
    return generate(
        "cloud-gang", seed=1, slots=120, slot_s=1800, start_ns=1_767_571_200_000_000_000
    )


def test_moving_beats_staying_where_zones_fail_one_at_a_time(zones) -> None:
    jobs = generated_jobs(zones, 8, 1)

    going, staying = (
        simulate(
            zones,
            jobs,
            [SPOTLINE],
            forecaster="persistence",
            options=SimulationOptions(selector=SelectorOptions(rehearsals=0, moves=moves)),
        )
        for moves in (True, False)
    )

    ours, theirs = going.policies[SPOTLINE], staying.policies[SPOTLINE]
    assert ours.mean_cost_usd < 0.95 * theirs.mean_cost_usd
    assert ours.on_time_fraction >= theirs.on_time_fraction
    assert ours.percent_of_clairvoyant is not None
    assert ours.percent_of_clairvoyant <= 100.0
    assert "moved" in moves_line(going.lives[SPOTLINE])
    assert not moves_line(staying.lives[SPOTLINE])


def test_a_log_with_moves_is_reproduced(zones) -> None:
    log = recorded_run(zones, generated_jobs(zones, 6, 1))
    moves = [e for e in map(event_of, log) if isinstance(e, AllocationDecided) and e.move]

    result = verify(log, handlers_of(SETTINGS), manifest_of(log), here=environment())

    assert moves
    assert result.exit_code == SAME, result.divergences

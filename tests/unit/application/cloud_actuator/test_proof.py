"""What the actuator believes before it buys: a job that was admitted, and a decision of this revision."""

from dataclasses import replace

import pytest

from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.application.cloud_actuator.handler import APPLY_REVISION, ActuateHandler
from spotline.application.spec import Context
from spotline.application.turn import Turns
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported, CostAccrued, SlotDecided
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobCancelled,
    JobClosed,
    JobOutcome,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.market import MarketOpened
from spotline.domain.events.placement import (
    PipelineProvisioningCommanded,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnd,
    PlacementEnded,
    PlacementOutcome,
    RegionObserved,
)
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.placement.graph import Region
from spotline.domain.placement.pipeline import RegionShare
from spotline.domain.policies.answer import DecisionReason, Move
from tests.fakes.actuator import SLOT_S, Rig, command, opened, quote
from tests.fakes.allocator import job
from tests.fakes.renting import offering
from tests.samples.events import SAMPLES

TENANT = "team"
JOB = replace(
    job(), job_id="j", tenant=TENANT, allowed_counts=(2, 4), offerings=("a", "b"), start_ns=0
)
MARKET = MarketOpened(
    offerings=(offering("a"), offering("b"), offering("c")),
    slot_s=SLOT_S,
    first_slot_start_ns=0,
    source="t",
)
ADMITTED = JobAdmitted(
    job_id="j",
    tenant=TENANT,
    slot=0,
    policy_id="p",
    offering_id="a",
    deadline_slot=9,
    weight_ppb=1,
)
CLOSED = JobClosed(
    job_id="j",
    tenant=TENANT,
    slot=0,
    outcome=JobOutcome.COMPLETED,
    policy_id="p",
    cost_micro_usd=0,
    value_micro_usd=0,
    progress_ppm=0,
)
BEFORE = (
    MARKET,
    opened(0, quote("a"), quote("b"), quote("c")),
    JobSubmitted(job=JOB, ts_event_ns=0),
    ADMITTED,
)


def lot(offering_id, *, spot=0, on_demand=0):
    return Lot(offering_id=offering_id, spot=spot, on_demand=on_demand)


def decision(*lots, slot=0, revision=0, move=None, **changes):
    made = AllocationDecided(
        job_id="j",
        tenant=TENANT,
        slot=slot,
        revision=revision,
        offset_s=0,
        policy_id="p",
        lots=lots,
        reason=DecisionReason.POLICY,
        forecast_used=False,
        explanation="",
        move=move,
    )
    return replace(made, **changes)


def commanded(target, *, slot=0, revision=0, **changes):
    made = command("j", target, slot=slot, revision=revision)
    return replace(made, **{"tenant": TENANT, **changes})


def closing(commands=1, slot=0, revision=0):
    return SlotDecided(slot=slot, revision=revision, offset_s=0, commands=commands)


def taken(*events):
    """What became of the last of these events, all of which the actuator takes."""
    turns = Turns(ActuateHandler(), seals=False)
    turn = None
    for number, event in enumerate(events):
        if turn is not None:
            assert turn.parked is None, turn.parked
        context = Context(seq=number + 1, now_ns=0, event_id=f"e{number}", correlation_id="c")
        turn = turns.take(event, context)
    return turn


def reason_of(turn):
    assert turn.parked is not None
    assert turn.calls == ()
    assert turn.parked.error_type == "Unproven"
    return turn.parked.error


TWO = lot("a", on_demand=2)


def test_a_command_is_carried_out_as_decided():
    turn = taken(*BEFORE, decision(TWO), commanded(TWO), closing())

    (pending,) = turn.calls
    assert pending.call.name == APPLY_REVISION
    assert pending.call.request.commands == (commanded(TWO),)


def test_a_command_for_a_job_that_does_not_exist_is_parked():
    thirty = lot("a", on_demand=30)

    error = reason_of(taken(MARKET, opened(0), commanded(thirty, job_id="nobody")))

    assert error == "job_id must be a job that this revision decides, was nobody"


def test_so_is_the_decision_that_it_would_need():
    error = reason_of(taken(MARKET, opened(0), decision(TWO, job_id="nobody")))

    assert error == "job_id must be a job that was submitted and has not closed, was nobody"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            decision(lot("a", on_demand=3)),
            "lots must be of 2, 4 instances in all, or <= 0 as held, was 3",
        ),
        (decision(lot("c", on_demand=2)), "offering_id must be one that j can run on, was c"),
        (decision(lot("z", on_demand=2)), "offering_id must be an offering of the market, was z"),
        (decision(TWO, slot=1), "slot must be one that has opened (<= 0), was 1"),
        (decision(TWO, tenant="other"), "tenant must be team, whose j is, was other"),
        (commanded(TWO), "job_id must be a job that this revision decides, was j"),
        (commanded(TWO, slot=3), "slot must be one that has opened (<= 0), was 3"),
        (JobCancelled(job_id="j", tenant="other"), "tenant must be team, whose j is, was other"),
        (
            JobSubmitted(job=replace(JOB, tenant="other"), ts_event_ns=0),
            "tenant must be team, whose j is, was other",
        ),
        (
            JobUpdated(job_id="j", tenant=TENANT, job=replace(JOB, tenant="other"), ts_event_ns=0),
            "job must be j of team, was j of other",
        ),
        (
            replace(ADMITTED, job_id="k"),
            "job_id must be a job that was submitted and has not closed, was k",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_nothing_bears_out_is_parked(event, said):
    assert reason_of(taken(*BEFORE, event)) == said


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (commanded(lot("a", on_demand=4)), "target"),
        (commanded(lot("a", spot=2)), "target"),
        (commanded(lot("b", on_demand=2)), "target"),
        (commanded(TWO, revision=1), "job_id"),
        (commanded(TWO, tenant="other"), "tenant"),
        (commanded(TWO, transfer_cost_micro_usd=10**9), "transfer_cost_micro_usd"),
        (commanded(TWO, excepted_on_demand=3), "excepted_on_demand"),
        (decision(lot("a", on_demand=4)), "lots"),
    ],
)
def test_what_is_not_as_decided_is_parked(event, field):
    assert reason_of(taken(*BEFORE, decision(TWO), event)).startswith(f"{field} must be")


def test_a_report_of_a_slot_to_come_is_parked():
    """Bills of slots up to a report count as recorded in full: the ledger was mended by it."""
    early = CapacityReported(slot=7, revision=0, offset_s=0, settled=True, holdings=())

    assert reason_of(taken(*BEFORE, early)) == "slot must be one that has opened (<= 0), was 7"
    assert taken(*BEFORE, replace(early, slot=0)).parked is None


def test_what_a_lost_part_of_the_log_charged_is_told_again_before_a_slot_opens():
    """Told again after a wipe, all of it was parked, and every job it was of frozen for that."""
    begun = next(one for one in SAMPLES if isinstance(one, IncarnationBegun))
    cost = next(one for one in SAMPLES if isinstance(one, CostAccrued))
    told = replace(cost, slot=begun.last_slot_before)

    assert taken(begun, told).parked is None
    later = replace(cost, slot=begun.last_slot_before + 1)
    assert reason_of(taken(begun, later)).startswith("slot must be one that has opened (<= 33)")


def test_a_second_command_for_the_same_is_parked():
    error = reason_of(taken(*BEFORE, decision(TWO), commanded(TWO), commanded(TWO, command_id="z")))

    assert error.startswith("command_id must be")


def test_nothing_is_added_to_a_revision_that_is_carried_out():
    done = (*BEFORE, decision(TWO), commanded(TWO), closing())

    assert "revision must be > 0" in reason_of(taken(*done, commanded(TWO, command_id="z")))
    assert "revision must be > 0" in reason_of(taken(*done, closing(0)))
    assert "revision must be > 0" in reason_of(taken(*done, decision(TWO)))


def test_the_count_of_commands_must_agree():
    turn = taken(*BEFORE, decision(TWO), commanded(TWO), closing(2))

    assert turn.calls == ()
    assert turn.parked.error.startswith("commands must be 1")


def test_before_it_is_admitted_and_after_it_closed_nothing_is_bought_for_a_job():
    early = taken(*BEFORE[:-1], decision(TWO))
    late = taken(*BEFORE, CLOSED, decision(TWO))

    assert reason_of(early) == "job_id must be a job that was admitted, was j"
    assert reason_of(late).startswith("job_id must be a job that was submitted and has not closed")


def test_a_job_that_closes_with_a_decision_still_gets_what_that_says():
    turn = taken(*BEFORE, decision(TWO), CLOSED, commanded(TWO), closing())

    assert len(turn.calls) == 1


def test_a_closed_job_is_released_and_gets_nothing():
    assert taken(*BEFORE, CLOSED, commanded(lot("a"))).parked is None
    assert reason_of(taken(*BEFORE, CLOSED, commanded(TWO))).startswith("target must be")


def test_nothing_is_released_that_is_not_to_be():
    held = CapacityReported(
        slot=0,
        revision=0,
        offset_s=0,
        settled=True,
        holdings=(JobHolding(job_id="j", lots=(TWO,)),),
    )
    done = (*BEFORE, decision(TWO), commanded(TWO), closing(), held)

    assert reason_of(taken(*done, commanded(lot("a"), revision=1))).startswith("job_id must be")
    kept = (*done, decision(TWO, revision=1))
    assert reason_of(taken(*kept, commanded(lot("a"), revision=1))).startswith("target must be")


def test_what_turned_up_beside_what_a_job_is_to_hold_is_released_without_another_decision():
    more = CapacityReported(
        slot=0,
        revision=0,
        offset_s=0,
        settled=False,
        holdings=(JobHolding(job_id="j", lots=(TWO, lot("b", spot=2))),),
    )
    done = (*BEFORE, decision(TWO), commanded(TWO), closing(), more)

    turn = taken(*done, commanded(lot("b"), revision=1), closing(revision=1))

    assert [one.call.name for one in turn.calls] == [APPLY_REVISION]
    bought = commanded(lot("b", spot=2), revision=1)
    assert reason_of(taken(*done, bought)).startswith("target must be")


def test_what_is_held_may_be_kept_whatever_its_count():
    three = lot("a", on_demand=3)
    held = CapacityReported(
        slot=0,
        revision=0,
        offset_s=0,
        settled=True,
        holdings=(JobHolding(job_id="j", lots=(three,)),),
    )
    lost = replace(held, holdings=())

    assert taken(*BEFORE, held, decision(three)).parked is None
    # It was decided before the loss was known.
    assert taken(*BEFORE, held, lost, decision(three)).parked is None
    later = opened(1, quote("a"))
    error = reason_of(taken(*BEFORE, held, lost, later, decision(three, slot=1)))
    assert error.startswith("lots must be")


def test_a_move_costs_what_was_decided_where_it_arrives():
    move = Move(from_offering_id="a", overhead_s=60, cost_micro_usd=77)
    target = lot("b", on_demand=2)
    moved = (*BEFORE, decision(target, move=move))

    arrives = commanded(target, transfer_cost_micro_usd=77)
    leaves = commanded(lot("a"), command_id="leaves")
    assert len(taken(*moved, leaves, arrives, closing(2)).calls) == 1
    assert "transfer_cost" in reason_of(taken(*moved, commanded(target)))


def test_what_is_late_of_a_slot_that_is_over_is_neither_parked_nor_carried_out():
    turn = taken(*BEFORE, opened(1, quote("a")), decision(TWO), commanded(TWO), closing())

    assert (turn.parked, turn.calls) == (None, ())


def test_a_command_of_a_slot_that_is_over_drops_none_of_the_open_one():
    after = (*BEFORE, opened(1, quote("a")), decision(TWO, slot=1), commanded(TWO, slot=1))

    turn = taken(*after, commanded(TWO, command_id="old"), closing(slot=1))

    (pending,) = turn.calls
    assert [each.slot for each in pending.call.request.commands] == [1]


# --- pipelines --------------------------------------------------------------------------------

PIPELINE = next(sample for sample in SAMPLES if isinstance(sample, PipelineSubmitted)).pipeline
PIPE = PIPELINE.job_id
REGIONS = (
    RegionObserved(
        ts_event_ns=0,
        region=Region(region_id="r", gpus=64, energy_usd_per_kwh=0.1, offering_id="a", spot=True),
    ),
    RegionObserved(
        ts_event_ns=0, region=Region(region_id="owned", gpus=64, energy_usd_per_kwh=0.1)
    ),
)


def placed(*shares):
    path = tuple(RegionShare(region_id=region_id, gpus=gpus) for region_id, gpus in shares)
    sample = next(s.placement for s in SAMPLES if isinstance(s, PlacementDecided) and s.placement)
    return PlacementDecided(
        job_id=PIPE,
        tenant=PIPELINE.tenant,
        ts_event_ns=0,
        outcome=PlacementOutcome.PLACED,
        method_id="m",
        placement=replace(sample, path=path) if path else None,
    )


def wanted(target, **changes):
    made = PipelineProvisioningCommanded(
        command_id="c", job_id=PIPE, tenant=PIPELINE.tenant, quota_pool="q", target=target
    )
    return replace(made, **changes)


RENTING = (
    MARKET,
    opened(0, quote("a")),
    *REGIONS,
    PipelineSubmitted(pipeline=PIPELINE, ts_event_ns=0),
)
GPUS = offering("a").gpus_per_instance


def test_a_pipeline_gets_the_whole_instances_that_it_was_placed_on():
    share = placed(("r", 2 * GPUS + (GPUS > 1)), ("owned", 8))
    instances = 2 + (GPUS > 1)

    assert taken(*RENTING, share, wanted(lot("a", spot=instances))).parked is None
    assert taken(*RENTING, share, wanted(lot("a"))).parked is None
    more = wanted(lot("a", spot=instances + 1))
    assert reason_of(taken(*RENTING, share, more)).startswith("target must be")
    on_demand = wanted(lot("a", on_demand=instances))
    assert reason_of(taken(*RENTING, share, on_demand)).startswith("target must be")


def test_a_pipeline_that_nobody_handed_over_or_placed_gets_nothing():
    one = wanted(lot("a", spot=1))

    assert "submitted" in reason_of(taken(*RENTING, replace(one, job_id="nobody")))
    assert "placed" in reason_of(taken(*RENTING, one))
    assert "tenant" in reason_of(taken(*RENTING, placed(("r", GPUS)), replace(one, tenant="x")))


def test_a_pipeline_that_waits_or_has_ended_gets_nothing():
    ended = PlacementEnded(
        job_id=PIPE,
        tenant=PIPELINE.tenant,
        ts_event_ns=0,
        end=PlacementEnd.RELEASED,
        iterations_done=0,
        cost_micro_usd=0,
    )
    one = wanted(lot("a", spot=1))

    assert "target" in reason_of(taken(*RENTING, placed(), one))
    assert "target" in reason_of(taken(*RENTING, placed(("r", GPUS)), ended, one))
    assert taken(*RENTING, placed(("r", GPUS)), ended, wanted(lot("a"))).parked is None


# --- the real actuator ------------------------------------------------------------------------


async def test_thirty_instances_of_a_job_that_does_not_exist_are_not_bought(tmp_path):
    """`faults.md` row 4: a command and a `SlotDecided` were enough."""
    rig = Rig(tmp_path)
    turns = Turns(rig.handler, seals=False)
    thirty = lot("a", on_demand=30)
    forged = (commanded(thirty, job_id="nobody"), closing())
    said = []
    for number, event in enumerate((*BEFORE, *forged, decision(TWO), commanded(TWO), closing())):
        context = Context(seq=number + 1, now_ns=0, event_id=f"e{number}", correlation_id="c")
        turn = turns.take(event, context)
        said.append(turn.parked and turn.parked.error_type)
        for pending in turn.calls:
            await rig.perform(pending.call)

    held = await ThreadedLedger(rig.ledger).held()
    assert [each.job_id for each in held] == ["j", "j"]
    assert said[len(BEFORE) :] == ["Unproven", "Unfit", None, None, None]
    rig.close()

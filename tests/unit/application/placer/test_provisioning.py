"""Placements in rented regions: commands, instances, ledger rows, and what a cloud says back."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.application.cloud_actuator.handler import ActuateHandler
from spotline.application.placer.messages import PlacementPhase
from spotline.application.placer.renting import Rental, covers, lots_of
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    LaunchRefused,
    SlotDecided,
)
from spotline.domain.events.placement import (
    PipelineProvisioningCommanded,
    PipelineReleased,
    PlacementOutcome,
)
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.ledger.caps import Caps
from spotline.domain.market.offering import CapacityType
from tests.depth import examples
from tests.fakes.actuator import CTX, command, opened, quote, running_in
from tests.fakes.actuator import lot as lot_of
from tests.fakes.placer import (
    TENANT,
    Played,
    at,
    both_ways,
    decisions,
    id_of,
    of_type,
    pipeline,
    region,
    submitted,
)
from tests.fakes.renting import Rented, market, offering, slot

ONE = id_of("one")
TWO_OFFERINGS = market(offering("a"), offering("b"))
RENTED = (
    TWO_OFFERINGS,
    region("ra", 8, offering_id="a"),
    region("rb", 8, 0.3, offering_id="b"),
    *both_ways("ra", "rb", egress_usd_per_gb=0.02),
)


@pytest.fixture
def rented(tmp_path: Path) -> Iterator[Rented]:
    made = Rented(tmp_path, *RENTED)
    yield made
    made.close()


def commanded(events) -> list[tuple[str, Lot]]:
    return [(one.job_id, one.target) for one in of_type(events, PipelineProvisioningCommanded)]


def on_demand(offering_id: str, count: int) -> Lot:
    return Lot(offering_id=offering_id, on_demand=count)


def quotes(**counts: int | None):
    return [quote(name, spot=0, on_demand=count) for name, count in counts.items()]


# --- commands ---------------------------------------------------------------------------------


def holding(
    number: int, *held: tuple[str, Lot], offset_s: int = 0, settled: bool = True
) -> CapacityReported:
    """A report: what the cloud holds for pipelines by name."""
    return CapacityReported(
        slot=number,
        revision=0,
        offset_s=offset_s,
        settled=settled,
        holdings=tuple(JobHolding(job_id=id_of(name), lots=(lot,)) for name, lot in held),
    )


def test_a_placement_in_a_rented_region_is_commanded_and_computes_when_it_holds_its_instances() -> (
    None
):
    played = Played(*RENTED, slot(0, *quotes(a=8, b=8)))

    placed = played.play(submitted())
    starting = played.run().phase
    played.play(decided(0, offset_s=60))
    # The report tells of a loss at another moment; the launch was the revision's.
    report = holding(0, ("one", on_demand("a", 8)), offset_s=90, settled=False)
    (started,) = played.play(report)
    ended = played.play(slot(2, *quotes(a=8, b=8)))

    assert commanded(placed) == [(ONE, on_demand("a", 8))]
    assert placed[-1].quota_pool == "pool-a"
    assert starting is PlacementPhase.STARTING
    assert started.outcome is PlacementOutcome.STARTED
    assert (started.starts_ns, started.finish_ns) == (at(60), at(860))
    assert decisions(ended) == [(ONE, "completed")]
    assert ended[0].ts_event_ns == at(860)
    assert commanded(ended) == [(ONE, on_demand("a", 0))]


def test_without_instances_nothing_is_done_and_nothing_completed() -> None:
    played = Played(*RENTED, slot(0, *quotes(a=8, b=8)), submitted())

    for number in range(1, 5):
        assert decisions(played.play(slot(number, *quotes(a=8, b=8)))) == []

    status = played.run()
    assert (status.phase, status.iterations_done) == (PlacementPhase.STARTING, 0)
    assert status.cost_micro_usd == 0


def test_what_comes_after_a_slot_has_settled_is_expected_to_start_with_the_next() -> None:
    played = Played(*RENTED, slot(0, *quotes(a=8, b=8)), decided(0))

    placed = played.play(submitted())[0]
    refused = played.play(submitted("two", deadline_s=1300))[0]

    assert (placed.starts_ns, placed.finish_ns) == (at(600), at(1400))
    assert refused.outcome is PlacementOutcome.REFUSED
    assert refused.earliest_finish_ns > at(1300)


def test_owned_gpus_are_never_commanded_and_compute_at_once() -> None:
    played = Played(TWO_OFFERINGS, region("own", 8), slot(0, *quotes(a=8, b=8)))

    (placed,) = played.play(submitted())

    assert placed.outcome is PlacementOutcome.PLACED
    assert played.run().phase is PlacementPhase.RUNNING


def test_a_region_whose_offering_nobody_quotes_gives_nothing() -> None:
    played = Played(market(offering("b")), region("ra", 8, offering_id="a"), slot(0))

    played.play(submitted())

    assert played.run().phase is PlacementPhase.WAITING


def test_a_path_over_two_rented_regions_is_two_commands() -> None:
    played = Played(*RENTED, slot(0, *quotes(a=4, b=4)))

    assert commanded(played.play(submitted())) == [
        (ONE, on_demand("a", 4)),
        (ONE, on_demand("b", 4)),
    ]


def test_gpus_are_rented_as_whole_instances_and_no_two_pipelines_share_one() -> None:
    five = {"min_gpus": 5, "max_gpus": 5}
    played = Played(
        market(offering("a", gpus_per_instance=8), offering("b")),
        region("ra", 16, 0.1, offering_id="a", spot=True),
        region("rb", 16, 0.9, offering_id="b"),
        slot(0, quote("a", spot=2), quote("b", 0, 16)),
    )

    first = played.play(submitted("one", **five))
    second = played.play(submitted("two", **five))
    third = played.play(submitted("three", **five))

    assert commanded(first) == [(ONE, Lot(offering_id="a", spot=1))]
    assert commanded(second) == [(id_of("two"), Lot(offering_id="a", spot=1))]
    # Six GPUs idle in ra are not free: the third goes where it can have instances of its own.
    assert commanded(third) == [(id_of("three"), on_demand("b", 5))]


def test_jobs_of_one_pass_wait_rather_than_share_an_instance() -> None:
    five = {"min_gpus": 5, "max_gpus": 5}
    played = Played(
        market(offering("a", gpus_per_instance=8)),
        region("ra", 16, offering_id="a"),
        *(submitted(name, **five) for name in ("one", "two", "three")),
    )

    events = played.play(slot(0, quote("a", 0, 2)))

    assert [what for _, what in decisions(events)] == ["placed", "placed"]
    assert len(commanded(events)) == 2
    phases = sorted(played.run(name).phase.value for name in ("one", "two", "three"))
    assert phases == ["starting", "starting", "waiting"]


def test_rent_and_count_come_from_the_market_and_a_dearer_slot_moves_a_job() -> None:
    long = {"iterations": 100_000, "checkpoint_gb": 1.0}
    played = Played(*RENTED, slot(0, quote("a", 0, 8, 100), quote("b", 0, 8, 200)), cost="rent")
    begun = played.play(submitted(**long))
    played.play(holding(0, ("one", on_demand("a", 8))))

    moved = played.play(slot(1, quote("a", 0, 8, 900_000), quote("b", 0, 8, 200)))
    started = played.play(holding(1, ("one", on_demand("b", 8))))

    assert commanded(begun) == [(ONE, on_demand("a", 8))]
    assert decisions(moved) == [(ONE, "moved")]
    assert commanded(moved) == [(ONE, on_demand("a", 0)), (ONE, on_demand("b", 8))]
    assert [one.transfer_cost_micro_usd for one in moved[1:]] == [0, 0]
    # The copy is paid where the job begins: 1 GB at 0.02 USD.
    assert commanded(started) == [(ONE, on_demand("b", 8))]
    assert started[-1].transfer_cost_micro_usd == 20_000


def test_an_instance_of_several_gpus_rounds_up_and_knows_what_there_is() -> None:
    rental = Rental(offering=offering("a", 8), quote=quote("a", spot=3, price=8), spot=True)

    assert [rental.instances(gpus) for gpus in (1, 8, 9)] == [1, 1, 2]
    assert [rental.whole_gpus(gpus) for gpus in (1, 8, 9)] == [8, 8, 16]
    assert rental.usd_per_gpu_hour == 1e-6


# --- refusals and losses ------------------------------------------------------------------------


def refusal(command: PipelineProvisioningCommanded, granted: int, number: int = 0) -> LaunchRefused:
    wanted = command.target.spot or command.target.on_demand
    return LaunchRefused(
        command_id=command.command_id,
        job_id=command.job_id,
        tenant=TENANT,
        offering_id=command.target.offering_id,
        capacity_type=CapacityType.SPOT if command.target.spot else CapacityType.ON_DEMAND,
        slot=number,
        requested=wanted,
        granted=granted,
        detail="",
    )


def refused(played: Played, command, granted: int, number: int = 0) -> list:
    """What follows when a revision is carried out and refuses that."""
    wanted = command.target
    lot = replace(
        wanted,
        spot=granted if wanted.spot else 0,
        on_demand=granted if wanted.on_demand else 0,
    )
    events = played.play(decided(number))
    events += played.play(refusal(command, granted, number))
    name = {id_of(name): name for name in ("one", "two", "three")}[command.job_id]
    return events + played.play(holding(number, (name, lot), settled=False))


def loss(name: str, offering_id: str, *, number: int = 0, offset_s: int = 0) -> CapacityLost:
    return CapacityLost(
        job_id=id_of(name),
        tenant=TENANT,
        offering_id=offering_id,
        instance_ids=("i-1",),
        slot=number,
        offset_s=offset_s,
    )


def last_command(events) -> PipelineProvisioningCommanded:
    return of_type(events, PipelineProvisioningCommanded)[-1]


def test_a_cloud_that_refuses_is_asked_again_ever_later() -> None:
    played = Played(market(offering("a")), region("ra", 8, offering_id="a"), slot(0, *quotes(a=8)))
    events = played.play(submitted(min_gpus=8))

    asked = []
    for number in range(32):
        for one in of_type(events, PipelineProvisioningCommanded):
            if one.target.on_demand:
                asked.append(number)
                refused(played, one, 7, number)
        events = played.play(slot(number + 1, *quotes(a=8)))

    assert asked == [0, 1, 3, 7, 15, 31]


def test_who_can_do_with_what_was_granted_begins_with_it() -> None:
    played = Played(market(offering("a")), region("ra", 8, offering_id="a"), slot(0, *quotes(a=8)))
    command = last_command(played.play(submitted(min_gpus=4)))

    events = refused(played, command, 7)
    after = played.play(decided(0, revision=1)) + played.play(
        holding(0, ("one", on_demand("a", 7)))
    )

    assert (decisions(events), commanded(events)) == ([(ONE, "placed")], [(ONE, on_demand("a", 7))])
    assert decisions(after) == [(ONE, "started")]
    assert played.path() == {"ra": 7}


def test_an_earlier_commands_refusal_breaks_nothing() -> None:
    played = Played(*RENTED, slot(0, *quotes(a=8, b=8)))
    first = last_command(played.play(submitted("one", min_gpus=4)))
    played.play(PipelineReleased(job_id=ONE, tenant=TENANT, ts_event_ns=at(1)))
    played.play(submitted("two", min_gpus=4, max_gpus=4))

    assert played.play(refusal(first, 7)) == []
    assert played.path("two") == {"ra": 4}


def test_refused_spot_says_nothing_of_on_demand() -> None:
    eight = {"min_gpus": 8, "max_gpus": 8}
    played = Played(
        market(offering("a")),
        region("spot", 8, 0.1, offering_id="a", spot=True),
        region("od", 8, 0.2, offering_id="a"),
        slot(0, quote("a", 8, 8)),
    )
    command = last_command(played.play(submitted(**eight)))

    assert command.target.spot == 8
    assert decisions(refused(played, command, 3)) == [(ONE, "placed")]
    assert played.path() == {"od": 8}


def test_who_is_put_back_where_it_lost_an_instance_launches_another() -> None:
    four = {"min_gpus": 4, "max_gpus": 4}
    played = Played(market(offering("a")), region("ra", 8, offering_id="a"), slot(0, *quotes(a=8)))
    played.play(submitted("one", iterations=1000, **four))
    played.play(submitted("two", iterations=10, **four))
    played.play(holding(0, ("one", on_demand("a", 4)), ("two", on_demand("a", 4))))

    # By then the other one is done, and its instances are free.
    events = played.play(loss("one", "a", offset_s=500))

    assert played.path("one") == {"ra": 4}
    assert (ONE, on_demand("a", 4)) in commanded(events)
    assert played.run("one").phase is PlacementPhase.STARTING


def test_a_loss_of_a_slot_that_is_over_does_not_turn_the_clock() -> None:
    played = Played(*RENTED, slot(0, *quotes(a=8, b=8)), submitted(iterations=1000))
    played.play(holding(0, ("one", on_demand("a", 8))))
    played.play(slot(1, *quotes(a=8, b=8)))

    played.play(loss("one", "a", number=0, offset_s=590))
    (moved, *_) = played.play(holding(0, ("one", on_demand("a", 7)), settled=False))

    assert moved.ts_event_ns == at(600)


def test_on_demand_that_is_held_stays_whatever_is_quoted() -> None:
    played = Played(*RENTED, slot(0, *quotes(a=8, b=8)), submitted(iterations=1000))
    played.play(holding(0, ("one", on_demand("a", 8))))

    assert played.play(slot(1, *quotes(a=0, b=8))) == []


def test_what_was_observed_ahead_of_a_slot_is_decided_on_with_its_quotes() -> None:
    played = Played(*RENTED, slot(0, *quotes(a=8, b=8)))
    waiting = played.play(region("ra", 8, 0.1, at_s=600, offering_id="a", down=True))

    assert waiting == []
    assert decisions(played.play(submitted())) == [(ONE, "placed")]
    assert played.path() == {"rb": 8}


# --- the actuator -----------------------------------------------------------------------------


def waiting_for(count: int, command_id: str = "c") -> PipelineProvisioningCommanded:
    return PipelineProvisioningCommanded(
        command_id=command_id,
        job_id="p",
        tenant=TENANT,
        quota_pool="pool-a",
        target=on_demand("a", count),
    )


def carried(*events) -> list[list[tuple[str, int, int]]]:
    """Of every revision carried out: (command, revision, counts)."""
    handler = ActuateHandler()
    state = handler.initial()
    seen = []
    for event in events:
        handler.evolve(state, event)
        for call in handler.decide(state, event, CTX).calls:
            commands = getattr(call.request, "commands", None)
            if commands is not None:
                seen.append(
                    [(one.command_id, one.revision, one.target.on_demand) for one in commands]
                )
    return seen


def decided(number: int, revision: int = 0, commands: int = 0, offset_s: int = 0) -> SlotDecided:
    return SlotDecided(slot=number, revision=revision, offset_s=offset_s, commands=commands)


def test_pipelines_go_with_the_next_revision_after_the_jobs_and_only_once() -> None:
    job = command("j", lot_of(spot=1), 0)

    assert carried(
        opened(0), waiting_for(8), job, decided(0, commands=1), decided(0, revision=1)
    ) == [[(job.command_id, 0, 0), ("c", 0, 8)], []]


def test_a_later_command_replaces_one_that_was_not_carried_out() -> None:
    assert carried(opened(0), waiting_for(8), waiting_for(0, "d"), decided(0)) == [[("d", 0, 0)]]


def test_a_revision_of_a_slot_that_is_over_carries_nothing_away() -> None:
    assert carried(opened(0), opened(1), waiting_for(8), decided(0), decided(1)) == [[("c", 0, 8)]]


# --- the whole way ----------------------------------------------------------------------------


async def test_instances_are_launched_billed_and_released_and_the_ledger_is_told(rented) -> None:
    await rented.play(slot(0, *quotes(a=8, b=8)))
    await rented.play(submitted())
    during = await rented.held()
    await rented.play(slot(1, *quotes(a=8, b=8)))
    running = await rented.held()
    events = await rented.play(slot(2, *quotes(a=8, b=8)), slot(3, *quotes(a=8, b=8)))

    assert during == {}  # it goes with the next revision
    assert running == {ONE: {"a": 8}}
    assert await rented.held() == {}
    bills = of_type(events, CostAccrued)
    # Launched with slot 1, done at 1400 s in slot 2, which is charged whole.
    assert [(one.job_id, one.slot, one.instances, one.held_s) for one in bills] == [
        (ONE, 1, 8, 600),
        (ONE, 2, 8, 600),
    ]
    status = rented.placer.run()
    assert status.phase is PlacementPhase.COMPLETED
    assert status.finish_ns == at(1400)
    assert status.ledger_micro_usd == sum(bill.cost_micro_usd for bill in bills) > 0


async def test_a_refused_launch_sends_the_pipeline_elsewhere_in_the_same_slot(rented) -> None:
    rented.jobs = [command("j", lot_of(on_demand=1), 0)]

    events = await rented.play(submitted(min_gpus=8), slot(0, *quotes(a=8, b=8)))

    (refused,) = of_type(events, LaunchRefused)
    assert (refused.job_id, refused.offering_id, refused.granted) == (ONE, "a", 7)
    assert [what for _, what in decisions(events)] == ["waiting", "placed", "placed", "started"]
    assert rented.placer.path() == {"rb": 8}
    assert await rented.held() == {"j": {"a": 1}, ONE: {"b": 8}}
    assert of_type(events, CapacityReported)[-1].settled


async def test_where_less_is_launched_than_quoted_the_place_is_given_up(tmp_path: Path) -> None:
    rented = Rented(tmp_path, *RENTED, caps=Caps(launches_per_minute=6))
    try:
        events = await rented.play(submitted(min_gpus=8), slot(0, *quotes(a=8, b=8)))

        refused = of_type(events, LaunchRefused)
        assert [one.offering_id for one in refused] == ["a", "b"]
        assert rented.placer.run().phase is PlacementPhase.WAITING
        assert "cap launches per minute" in rented.placer.run().reason
        again = await rented.play(slot(1, *quotes(a=8, b=8)))
        assert [one.job_id for one in of_type(again, LaunchRefused)][:1] == [ONE]
    finally:
        rented.close()


async def test_what_is_taken_back_breaks_only_its_own_pipeline(rented) -> None:
    short = {"min_gpus": 4, "max_gpus": 4}
    await rented.play(
        submitted("one", **short), submitted("two", **short), slot(0, *quotes(a=8, b=8))
    )
    before = rented.placer.path("two")
    running = await running_in(rented.rig.cloud)
    victim = next(one.instance_id for one in running if one.job_id == ONE)
    await rented.rig.cloud.terminate(rented.rig.ledger.owner, [victim])

    events = await rented.play(slot(1, *quotes(a=8, b=8)))

    (lost,) = of_type(events, CapacityLost)
    assert lost.job_id == ONE
    assert "a took 1 back" in rented.placer.run("one").reason
    assert rented.placer.path("one") == {"rb": 4}
    assert rented.placer.path("two") == before == {"ra": 4}
    assert await rented.held() == {ONE: {"b": 4}, id_of("two"): {"a": 4}}
    assert of_type(events, CapacityReported)[-1].settled


def released(name: str = "one", *, at_s: float = 0) -> PipelineReleased:
    return PipelineReleased(job_id=id_of(name), tenant=TENANT, ts_event_ns=at(at_s))


async def test_a_released_pipeline_gives_its_instances_back(rented) -> None:
    await rented.play(submitted(), slot(0, *quotes(a=8, b=8)))
    assert await rented.held() == {ONE: {"a": 8}}

    await rented.play(released(at_s=10), slot(1, *quotes(a=8, b=8)))

    assert await rented.held() == {}
    assert pipeline().job_id == ONE


# --- laws -------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 6), st.integers(0, 3)),
        st.tuples(st.just("release"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("slot"), st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.just("others"), st.integers(0, 4), st.integers(0, 4)),
        st.tuples(st.just("take"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("own"), st.integers(0, 4), st.just(0)),
    ),
    min_size=4,
    max_size=30,
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(STEPS, st.sampled_from([(1, 1), (2, 1), (4, 2)]), st.booleans(), st.integers(0, 99))
def test_the_cloud_holds_what_pipelines_were_told_to_and_the_ledger_bills_it(
    steps, gpus_per_instance, both_kinds, seed
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_play_steps(Path(directory), steps, gpus_per_instance, both_kinds, seed))


async def _play_steps(directory: Path, steps, gpus_per_instance, both_kinds, seed) -> None:
    of_a, of_b = gpus_per_instance
    observed = [
        market(offering("a", of_a), offering("b", of_b)),
        region("ra", 16, 0.1, offering_id="a", spot=True),
        region("rb", 16, 0.3, offering_id="b"),
        region("own", 2, 0.2),
    ]
    names = ["ra", "rb", "own"]
    if both_kinds:
        observed.append(region("ro", 8, 0.4, offering_id="a"))
        names.append("ro")
    for index, name in enumerate(names):
        for other in names[:index]:
            observed += both_ways(name, other, egress_usd_per_gb=0.02)
    rented = Rented(
        directory,
        *observed,
        settings=SimulatedCloudSettings(seed=seed, interruption_per_instance_hour=0.5),
    )
    try:
        number = submissions = 0
        await rented.play(slot(0, quote("a", 8, 4), quote("b", 0, 8)))
        for what, one, other in steps:
            now_s = number * 600
            if what == "submit":
                stages = {"min_gpus": one, "max_gpus": one + other, "iterations": 200}
                await rented.play(submitted(f"p{submissions}", at_s=now_s, **stages))
                submissions += 1
            elif what == "release":
                job_id = id_of(f"p{one}")
                await rented.play(
                    PipelineReleased(job_id=job_id, tenant=TENANT, ts_event_ns=at(now_s))
                )
            elif what == "others":
                rented.jobs = [
                    command("j", lot_of(spot=one), number + 1),
                    command("k", lot_of(on_demand=other, offering_id="b"), number + 1),
                ]
            elif what == "take":
                running = await running_in(rented.rig.cloud)
                gone = [running[one].instance_id] if one < len(running) else []
                await rented.rig.cloud.terminate(rented.rig.ledger.owner, gone)
            elif what == "own":
                await rented.play(region("own", one, 0.2, at_s=now_s))
            else:
                number += 1
                await rented.play(slot(number, quote("a", one, 4), quote("b", 0, other)))
                await _check(rented)
    finally:
        rented.close()


async def _check(rented: Rented) -> None:
    """After a settled slot; what was told after its last revision goes with the next one."""
    state = rented.placer.state
    held = await rented.held()
    spent = rented.rig.ledger.spend_by_job()
    rentals = state.rentals()
    for job_id, run in state.runs.items():
        told = {
            offering_id: one.lot.spot + one.lot.on_demand
            for offering_id, one in run.told.items()
            if one.carried
        }
        for offering_id, count in told.items():
            assert held.get(job_id, {}).get(offering_id, 0) == count
        assert held.get(job_id, {}).keys() <= run.told.keys()
        wanted = lots_of(run.placement, rentals)
        assert wanted == {
            offering_id: one.lot
            for offering_id, one in run.told.items()
            if one.lot.spot or one.lot.on_demand
        }
        if run.placement is not None and not run.pending:
            assert all(covers(run.held.get(name), lot) for name, lot in wanted.items())
        assert run.ledger_micro_usd == spent.get(job_id, 0)


def test_who_finds_no_whole_instance_goes_where_there_is_one_in_the_same_pass() -> None:
    five = {"min_gpus": 5, "max_gpus": 5}
    played = Played(
        market(offering("a", 8), offering("b", 8)),
        region("ra", 16, 0.1, offering_id="a"),
        region("rb", 16, 0.9, offering_id="b"),
        *(submitted(name, **five) for name in ("one", "two", "three")),
    )

    played.play(slot(0, quote("a", 0, 2), quote("b", 0, 2)))

    places = sorted(tuple(played.path(name)) for name in ("one", "two", "three"))
    assert places == [("ra",), ("ra",), ("rb",)]


def test_two_losses_of_one_answer_leak_nothing() -> None:
    played = Played(*RENTED, slot(0, *quotes(a=4, b=4)), submitted(min_gpus=8, iterations=1000))
    both = JobHolding(job_id=ONE, lots=(on_demand("a", 4), on_demand("b", 4)))
    played.play(decided(0))
    played.play(replace(holding(0), holdings=(both,)))

    assert played.play(loss("one", "a")) == []
    assert played.play(loss("one", "b")) == []
    left = replace(both, lots=(on_demand("a", 3), on_demand("b", 3)))
    events = played.play(replace(holding(0, settled=False), holdings=(left,)))

    assert decisions(events) == [(ONE, "waiting")]
    assert commanded(events) == [(ONE, on_demand("a", 0)), (ONE, on_demand("b", 0))]


def test_what_is_held_beyond_what_was_told_is_released() -> None:
    played = Played(*RENTED, slot(0, *quotes(a=8, b=8)), submitted())
    played.play(decided(0))
    played.play(holding(0, ("one", on_demand("a", 8))))
    played.play(PipelineReleased(job_id=ONE, tenant=TENANT, ts_event_ns=at(1)))
    played.play(slot(1, *quotes(a=8, b=8)))
    played.play(decided(1))

    again = played.play(holding(1, ("one", on_demand("a", 2))))

    assert commanded(again) == [(ONE, on_demand("a", 0))]
    played.play(decided(1, revision=1))
    assert played.play(holding(1)) == []
    assert played.state.renting == {}

"""Placements in rented regions: commands, instances, ledger rows, and what a cloud says back."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.application.actuate import ActuateHandler
from spotline.application.placing import PlacementPhase
from spotline.application.renting import Rental
from spotline.domain.events import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    LaunchRefused,
    Lot,
    PipelineProvisioningCommanded,
    PipelineReleased,
    SlotDecided,
)
from spotline.domain.ledger.caps import Caps
from tests.fakes.actuator import CTX, command, opened, quote
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


def test_a_placement_in_a_rented_region_is_commanded_and_its_end_releases_it() -> None:
    played = Played(*RENTED, slot(0, *quotes(a=8, b=8)))

    begun = played.play(submitted())
    ended = played.play(slot(2, *quotes(a=8, b=8)))

    assert commanded(begun) == [(ONE, on_demand("a", 8))]
    assert begun[-1].quota_pool == "pool-a"
    assert decisions(ended) == [(ONE, "completed")]
    assert commanded(ended) == [(ONE, on_demand("a", 0))]


def test_owned_gpus_are_never_commanded() -> None:
    played = Played(TWO_OFFERINGS, region("own", 8), slot(0, *quotes(a=8, b=8)))

    assert commanded(played.play(submitted())) == []


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
    played = Played(
        market(offering("a", gpus_per_instance=8)),
        region("ra", 16, offering_id="a", spot=True),
        slot(0, quote("a", spot=2)),
    )

    first = played.play(submitted("one", min_gpus=5, max_gpus=5))
    second = played.play(submitted("two", min_gpus=5, max_gpus=5))
    third = played.play(submitted("three", min_gpus=5, max_gpus=5))

    assert commanded(first) == [(ONE, Lot(offering_id="a", spot=1))]
    assert commanded(second) == [(id_of("two"), Lot(offering_id="a", spot=1))]
    assert (decisions(third), commanded(third)) == ([(id_of("three"), "waiting")], [])
    assert "1 whole instances in ra, 0 are free" in played.run("three").reason


def test_rent_and_count_come_from_the_market_and_a_dearer_slot_moves_a_job() -> None:
    long = {"iterations": 100_000, "checkpoint_gb": 1.0}
    played = Played(*RENTED, slot(0, quote("a", 0, 8, 100), quote("b", 0, 8, 200)), cost="rent")
    begun = played.play(submitted(**long))

    moved = played.play(slot(1, quote("a", 0, 8, 900_000), quote("b", 0, 8, 200)))

    assert commanded(begun) == [(ONE, on_demand("a", 8))]
    assert decisions(moved) == [(ONE, "moved")]
    assert commanded(moved) == [(ONE, on_demand("a", 0)), (ONE, on_demand("b", 8))]
    assert moved[-1].transfer_cost_micro_usd == 20_000  # 1 GB at 0.02 USD


def test_an_instance_of_several_gpus_rounds_up_and_knows_what_there_is() -> None:
    rental = Rental(offering=offering("a", 8), quote=quote("a", spot=3, price=8), spot=True)

    assert [rental.instances(gpus) for gpus in (1, 8, 9)] == [1, 1, 2]
    assert [rental.usable_gpus(gpus) for gpus in (7, 20, 64)] == [0, 16, 24]
    assert rental.usd_per_gpu_hour == 1e-6


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


def decided(number: int, revision: int = 0, commands: int = 0) -> SlotDecided:
    return SlotDecided(slot=number, revision=revision, offset_s=0, commands=commands)


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
    (bill,) = of_type(events, CostAccrued)
    assert (bill.job_id, bill.slot, bill.instances, bill.held_s) == (ONE, 1, 8, 600)
    status = rented.placer.run()
    assert status.phase is PlacementPhase.COMPLETED
    assert status.ledger_micro_usd == bill.cost_micro_usd > 0


async def test_a_refused_launch_sends_the_pipeline_elsewhere_in_the_same_slot(rented) -> None:
    rented.jobs = [command("j", lot_of(on_demand=1), 0)]

    events = await rented.play(submitted(), slot(0, *quotes(a=8, b=8)))

    (refused,) = of_type(events, LaunchRefused)
    assert (refused.job_id, refused.offering_id, refused.granted) == (ONE, "a", 7)
    assert decisions(events)[-1] == (ONE, "placed")
    assert rented.placer.path() == {"rb": 8}
    assert await rented.held() == {"j": {"a": 1}, ONE: {"b": 8}}
    assert of_type(events, CapacityReported)[-1].settled


async def test_where_less_is_launched_than_quoted_the_place_is_given_up(tmp_path: Path) -> None:
    rented = Rented(tmp_path, *RENTED, caps=Caps(launches_per_minute=6))
    try:
        events = await rented.play(submitted(), slot(0, *quotes(a=8, b=8)))

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
    running = await rented.rig.cloud.list_instances("test")
    victim = next(one.instance_id for one in running if one.job_id == ONE)
    await rented.rig.cloud.terminate(rented.rig.ledger.owner, [victim])

    events = await rented.play(slot(1, *quotes(a=8, b=8)))

    (lost,) = of_type(events, CapacityLost)
    assert lost.job_id == ONE
    assert "took 1 instances back" in rented.placer.run("one").reason
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
        st.tuples(st.just("submit"), st.integers(0, 3), st.integers(1, 8)),
        st.tuples(st.just("release"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("slot"), st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.just("others"), st.integers(0, 4), st.integers(0, 4)),
        st.tuples(st.just("take"), st.integers(0, 7), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(STEPS)
def test_the_cloud_holds_what_running_pipelines_were_promised_and_the_ledger_bills_it(
    steps,
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_play_steps(Path(directory), steps))


async def _play_steps(directory: Path, steps) -> None:
    rented = Rented(directory, *RENTED)
    try:
        number = 0
        await rented.play(slot(0, *quotes(a=8, b=8)))
        for what, one, other in steps:
            now_s = number * 600
            if what == "submit":
                stages = {"min_gpus": other, "max_gpus": other, "iterations": 400}
                await rented.play(submitted(f"p{one}", at_s=now_s, **stages))
            elif what == "release":
                name = PipelineReleased(
                    job_id=id_of(f"p{one}"), tenant=TENANT, ts_event_ns=at(now_s)
                )
                await rented.play(name)
            elif what == "others":
                rented.jobs = [
                    command("j", lot_of(on_demand=one), number + 1),
                    command("k", lot_of(on_demand=other, offering_id="b"), number + 1),
                ]
            elif what == "take":
                running = await rented.rig.cloud.list_instances("test")
                gone = [running[one].instance_id] if one < len(running) else []
                await rented.rig.cloud.terminate(rented.rig.ledger.owner, gone)
            else:
                number += 1
                await rented.play(slot(number, *quotes(a=one, b=other)))
                await _check(rented)
    finally:
        rented.close()


async def _check(rented: Rented) -> None:
    state = rented.placer.state
    held = await rented.held()
    pipelines = {run.pipeline.job_id: run for run in state.runs.values()}
    for job_id, run in pipelines.items():
        promised = {
            share.region_id.removeprefix("r"): share.gpus
            for share in (run.placement.path if run.placement else ())
        }
        assert held.get(job_id, {}) == promised
    bills = of_type(rented.log, CostAccrued)
    for job_id, run in pipelines.items():
        billed = sum(bill.cost_micro_usd for bill in bills if bill.job_id == job_id)
        assert run.ledger_micro_usd == billed

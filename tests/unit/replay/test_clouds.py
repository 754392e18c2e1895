"""Runs in which jobs are not told what there is, or the market moves after they decided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.spec import Context
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    LaunchRefused,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.generate import generate
from spotline.replay.clouds import Information, TellingCloud, told
from spotline.replay.course import slots_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.simulate import SimulationOptions, simulate

START_NS = 1_767_571_200_000_000_000
MARKET = generate("mixed", seed=2, slots=160, slot_s=1800, start_ns=START_NS)
SLOTS = {opened.slot: opened for opened in slots_of(MARKET)}
HERE = MARKET.offerings[0].offering_id
CTX = Context(seq=1, now_ns=0, event_id="e", correlation_id="c")


def spot_there(slot: int) -> int:
    quotes = {one.quote.offering_id: one.quote for one in SLOTS[slot].quotes}
    return quotes[HERE].spot_available.instances


def command(slot: int, job_id: str, spot: int, on_demand: int = 0) -> ProvisioningCommanded:
    return ProvisioningCommanded(
        command_id=f"{slot}-{job_id}",
        job_id=job_id,
        tenant="t",
        quota_pool="q",
        slot=slot,
        revision=0,
        offset_s=0,
        target=Lot(offering_id=HERE, spot=spot, on_demand=on_demand),
    )


def decided(slot: int, revision: int = 0, offset_s: int = 0) -> SlotDecided:
    return SlotDecided(slot=slot, revision=revision, offset_s=offset_s, commands=0)


def carried_out(cloud: TellingCloud, state, *events):
    for event in events:
        cloud.evolve(state, event)
    return cloud.decide(state, events[-1], CTX).events


def falling_slot() -> int:
    """A slot with spot after which less is there."""
    return next(s for s in range(150) if spot_there(s) > spot_there(s + 1) >= 0)


def test_a_censored_slot_names_no_spot_count_and_keeps_prices() -> None:
    shown = told(SLOTS[3], Information.CENSORED)

    assert not any(one.quote.spot_available.known for one in shown.quotes)
    assert [one.quote.spot_price_micro_usd for one in shown.quotes] == [
        one.quote.spot_price_micro_usd for one in SLOTS[3].quotes
    ]
    assert told(SLOTS[3], Information.DECIDE_FIRST) is SLOTS[3]


def test_more_spot_than_there_is_gets_a_refusal_that_says_how_much() -> None:
    slot = falling_slot()
    cloud = TellingCloud(SLOTS, Information.CENSORED, sharing=True)

    events = carried_out(cloud, cloud.initial(), command(slot, "a", 99), decided(slot))

    refused, report = events
    assert isinstance(refused, LaunchRefused)
    assert (refused.requested, refused.granted) == (99, spot_there(slot))
    assert isinstance(report, CapacityReported)
    assert not report.settled
    assert report.holdings[0].lots[0].spot == spot_there(slot)


def test_in_mid_slot_the_market_moves_to_the_next_counts() -> None:
    slot = falling_slot()
    cloud = TellingCloud(SLOTS, Information.DECIDE_FIRST, sharing=True)

    events = carried_out(
        cloud, cloud.initial(), command(slot, "a", spot_there(slot)), decided(slot)
    )

    lost, report = events
    assert isinstance(lost, CapacityLost)
    assert len(lost.instance_ids) == spot_there(slot) - spot_there(slot + 1)
    assert (lost.offset_s, report.offset_s) == (900, 900)
    assert not report.settled


def test_jobs_alone_do_not_take_from_each_other() -> None:
    slot = falling_slot()
    both = [command(slot, name, spot_there(slot)) for name in ("a", "b")]
    shared = TellingCloud(SLOTS, Information.CENSORED, sharing=True)
    alone = TellingCloud(SLOTS, Information.CENSORED, sharing=False)

    refused = carried_out(shared, shared.initial(), *both, decided(slot))
    granted = carried_out(alone, alone.initial(), *both, decided(slot))

    assert any(isinstance(event, LaunchRefused) for event in refused)
    assert not any(isinstance(event, LaunchRefused) for event in granted)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(0, 4)), max_size=8),
    st.sampled_from([Information.CENSORED, Information.DECIDE_FIRST]),
)
def test_never_more_is_held_than_there_is(asked, information) -> None:
    cloud = TellingCloud(SLOTS, information, sharing=True)
    state = cloud.initial()
    for slot, (name, spot, on_demand) in enumerate(asked):
        carried_out(cloud, state, command(slot, name, spot, on_demand), decided(slot))
        carried_out(cloud, state, decided(slot, 1))
        after = slot + 1 if information is Information.DECIDE_FIRST else slot

        assert sum(lot.spot for lot in state.held.values()) <= spot_there(after)


JOBS = generated_jobs(MARKET, 4, 2)
NAMES = ["msu", "uniform_progress", "sdp", "spotline"]


@pytest.fixture(scope="module")
def full():
    """Runs in which jobs are told all."""
    return simulate(MARKET, JOBS, NAMES, forecaster="persistence")


@pytest.mark.parametrize("information", [Information.CENSORED, Information.DECIDE_FIRST])
def test_jobs_that_are_not_told_end_on_time_and_pay_more(full, information) -> None:
    hard = simulate(
        MARKET,
        JOBS,
        NAMES,
        forecaster="persistence",
        options=SimulationOptions(information=information),
    )

    for name in NAMES:
        told_all, withheld = full.lives[name], hard.lives[name]
        assert all(life.on_time for life in withheld), name
        assert len(withheld) == len(told_all)
    assert hard.policies["msu"].mean_utility_usd <= full.policies["msu"].mean_utility_usd


def test_equal_runs_are_equal() -> None:
    jobs = JOBS[:2]
    options = SimulationOptions(information=Information.DECIDE_FIRST)

    first = simulate(MARKET, jobs, ["spotline"], forecaster="persistence", options=options)
    again = simulate(MARKET, jobs, ["spotline"], forecaster="persistence", options=options)

    assert first.lives == again.lives
    changed = simulate(
        MARKET, jobs, ["spotline"], forecaster="persistence", options=replace(options, seed=9)
    )
    assert [life.job_id for life in changed.lives["spotline"]] == [job.job_id for job in jobs]

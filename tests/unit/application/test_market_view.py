"""Whether market time is needed, and what a client is told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.allocator.handler import JobsHandler
from spotline.application.market_view import ClockReading, MarketState, without_account
from spotline.domain.events.allocation import ShadowPricesUpdated
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome, JobSubmitted
from spotline.domain.market.offering import Reservation
from spotline.domain.modes import Mode
from spotline.domain.policies.answer import SpotWorth
from tests.fakes.allocator import (
    EAST,
    SLOT_NS,
    SLOT_S,
    START_NS,
    job,
    market_opened,
    offering,
    slot_opened,
)

JOB = job()
SUBMITTED = JobSubmitted(job=JOB, ts_event_ns=START_NS)
ADMITTED = JobAdmitted(
    job_id=JOB.job_id,
    tenant=JOB.tenant,
    slot=1,
    policy_id="msu",
    offering_id=EAST,
    deadline_slot=3,
    weight_ppb=1,
)
CLOSED = JobClosed(
    job_id=JOB.job_id,
    tenant=JOB.tenant,
    slot=1,
    outcome=JobOutcome.COMPLETED,
    policy_id="msu",
    cost_micro_usd=0,
    value_micro_usd=0,
    progress_ppm=1_000_000,
)


def status_after(*events, waits: bool = True, ends_ns: int = 0):
    handler = JobsHandler()
    state = handler.initial()
    opened = replace(market_opened(), waits_for_work=waits, ends_ns=ends_ns)
    for event in (opened, *events):
        handler.evolve(state, event)
    return state.market_status()


def test_before_the_first_slot_it_is_not_open():
    status = status_after()

    assert status.state is MarketState.NOT_OPEN
    assert status.clock == ClockReading(market_ns=START_NS, slot=-1, slot_s=SLOT_S, mode=Mode.LIVE)
    assert status.next_slot_start_ns == START_NS


def test_before_a_market_is_known_there_is_no_clock():
    status = JobsHandler().initial().market_status()

    assert (status.state, status.clock) == (MarketState.NOT_OPEN, None)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((slot_opened(0),), MarketState.WAITING_FOR_WORK),
        ((slot_opened(0), SUBMITTED), MarketState.OPEN),
        ((slot_opened(0), SUBMITTED, slot_opened(1), ADMITTED, CLOSED), MarketState.OPEN),
        (
            (slot_opened(0), SUBMITTED, slot_opened(1), ADMITTED, CLOSED, slot_opened(4)),
            MarketState.WAITING_FOR_WORK,
        ),
    ],
)
def test_it_waits_where_nobody_needs_it(events, state):
    status = status_after(*events)

    assert status.state is state
    assert status.next_slot_start_ns == status.clock.market_ns + SLOT_NS
    assert status_after(*events, waits=False).state is MarketState.OPEN


def test_after_the_last_slot_it_has_ended():
    status = status_after(slot_opened(7, last=True))

    assert status.state is MarketState.ENDED
    assert status.ends_ns == START_NS + 8 * SLOT_NS
    assert status.next_slot_start_ns == 0


def test_the_end_is_told_before_it_comes():
    assert status_after(slot_opened(0), ends_ns=START_NS + 99).ends_ns == START_NS + 99


def test_a_client_is_told_the_shadow_prices_that_were_published_last():
    worth = SpotWorth(offering_id=EAST, micro_usd_per_instance_hour=500_000)
    priced = [ShadowPricesUpdated(slot=k, prices=prices) for k, prices in ((0, (worth,)), (1, ()))]

    assert status_after(slot_opened(0)).shadow_prices == ()
    assert status_after(slot_opened(0), priced[0]).shadow_prices == (worth,)
    assert status_after(slot_opened(0), *priced).shadow_prices == ()


def test_what_everybody_sees_of_an_offering_is_neither_account_nor_what_was_paid():
    reserved = Reservation(instances=4, sunk_price_micro_usd=3_000_000)
    known = replace(offering(EAST), account="research-account", reservation=reserved)

    shown = without_account(known)

    assert shown.account == ""
    assert shown.reservation == Reservation(instances=4)
    assert replace(shown, account=known.account, reservation=reserved) == known

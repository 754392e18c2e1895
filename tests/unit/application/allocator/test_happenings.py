"""What owners are told of every event of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.allocator.handler import SPEC
from spotline.application.allocator.happenings import LONGEST_TEXT, happening_text
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CostAccrued,
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    RefusalClass,
)
from spotline.domain.events.lifecycle import JobExited, JobQuoted
from spotline.domain.events.training import JobStalled
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.run import OnStall
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import Move
from tests.samples.events import SAMPLES

# What changes too often, or is no news to an owner.
QUIET = {
    *("MarketOpened", "SlotOpened", "ForecastIssued", "JobAdvanced", "JobProgressReported"),
    *("AdmissionRecorded", "ValueTableRequested", "ValueTableReady", "CapacityReported"),
    "InstancesEnded",
    *("PipelineSubmitted", "PlacementDecided", "PlacementEnded", "CostAccrued"),
    *("ForecastOverdue", "AllocationAnswered", "SlotDecided", "PolicyWeightsUpdated"),
    *("MarketLawLearned", "ShadowPricesUpdated"),
    *("ParkedEntryRetried", "ParkedEntryDropped"),
    # Of the system: shown with what a job waits for.
    *("BuyingFrozen", "BuyingUnfrozen", "AccountModeSet", "LimitSet"),
    *("AgreementChecked", "IncarnationBegun", "OrphanFound", "OrphanSettled"),
}


@pytest.mark.parametrize(
    "event",
    [one for one in SAMPLES if type(one) in SPEC.consumes],
    ids=lambda one: type(one).__name__,
)
def test_every_event_of_a_job_is_told_or_known_to_be_no_news(event):
    text = happening_text(event)

    assert (text is None) == (type(event).__name__ in QUIET)
    assert text is None or (text and "\n" not in text and "None" not in text)


def test_a_programs_last_words_are_one_line_of_bounded_length():
    exited = JobExited(
        job_id="j",
        tenant="t",
        generation=1,
        exit_code=1,
        detail="Trace\n  back\n" * 200,
        ts_event_ns=0,
    )

    text = happening_text(exited)

    assert text.startswith("the program failed with exit code 1: Trace back")
    assert len(text) == LONGEST_TEXT


def _of(event_type):
    return next(one for one in SAMPLES if isinstance(one, event_type))


def test_a_refusal_says_what_was_got_and_why_not_more():
    refused = replace(
        _of(LaunchRefused),
        requested=4,
        granted=1,
        capacity_type=CapacityType.SPOT,
        offering_id="here",
        detail="sold out",
        refusal_class=RefusalClass.NO_CAPACITY,
        retry_after_s=60,
    )

    assert happening_text(refused) == (
        "got 1 of 4 spot here: none is there (sold out); asked again in 60 s"
    )
    before = replace(refused, granted=0, refusal_class=None, detail="", retry_after_s=0)
    assert happening_text(before) == "got none of 4 spot here"


@pytest.mark.parametrize("refusal", RefusalClass)
def test_every_class_of_refusals_is_said_in_words(refusal):
    assert "_" not in happening_text(
        replace(_of(LaunchRefused), refusal_class=refusal, detail="", offering_id="here")
    )


def test_a_copied_checkpoint_is_told_and_no_other_bill():
    bill = replace(_of(CostAccrued), instances=0, cost_micro_usd=1_230_000, offering_id="there")

    assert happening_text(bill) == "its checkpoint was copied to there for 1.23 USD"
    assert happening_text(replace(bill, instances=1)) is None


def test_a_move_says_from_where():
    decided = replace(
        _of(AllocationDecided),
        lots=(Lot(offering_id="there", spot=2),),
        move=Move(from_offering_id="here", overhead_s=1, cost_micro_usd=0),
        explanation="by sdp",
    )

    assert happening_text(decided) == "moves from here: is to hold 2 spot there: by sdp"


def test_a_quote_says_what_is_likely_and_when():
    quoted = _of(JobQuoted)
    outlook = replace(
        quoted.outlook,
        futures=64,
        on_time_probability_ppm=984_375,
        cost_p10_micro_usd=1_000_000,
        cost_p50_micro_usd=2_000_000,
        cost_p90_micro_usd=3_500_000,
        finish_p50_ns=1_772_323_200 * 10**9,
    )

    assert happening_text(replace(quoted, outlook=outlook)) == (
        "quoted: 2.00 USD (1.00 to 3.50 in 8 of 10 futures), done 2026-03-01T00:00:00Z in the "
        "middle one, on time in 98 % of 64"
    )
    assert ", not done in the middle one," in happening_text(
        replace(quoted, outlook=replace(outlook, finish_p50_ns=0))
    )


def test_a_stall_says_for_how_long_and_what_follows():
    stalled = _of(JobStalled)

    assert happening_text(stalled) == (
        "stalled: its program has reported nothing for 2000 s; it is started again"
    )
    alarm = replace(stalled, on_stall=OnStall.ALARM)
    assert happening_text(alarm) == "stalled: its program has reported nothing for 2000 s"


def test_a_probe_says_why_it_was_sent_and_what_came_of_it():
    sent = replace(
        _of(ProbeCommanded),
        offering_id="there",
        instances=4,
        gain_micro_usd=3_100_000,
        price_micro_usd=240_000,
    )
    found = replace(
        _of(OfferingProbed),
        offering_id="there",
        requested=4,
        granted=3,
        cost_micro_usd=180_000,
        detail="sold out",
    )

    assert happening_text(sent) == (
        "asked there for 4 spot: knowing what is there may save 3.10 USD, and costs at most 0.24"
    )
    assert happening_text(found) == (
        "there had 3 of 4 spot that were asked for (sold out), ended at once for 0.18 USD"
    )

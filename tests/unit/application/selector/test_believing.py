"""A market that publishes no counts: what the selector shows, asks for, and keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.selector.options import SelectorOptions, where_uncounted
from spotline.domain.beliefs.count_laws import LEVEL_STARTS
from spotline.domain.events.allocation import AllocationAnswered, CallOutcome
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    LaunchRefused,
    ProvisioningCommanded,
    RefusalClass,
)
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.market.offering import CapacityType, Provenance
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.replay.clouds import Information, told
from spotline.replay.course import slots_of
from spotline.replay.jobs import generated_jobs
from tests.unit.application.selector.test_revisions import MARKET, Driver

BELIEVING = where_uncounted(SelectorOptions(rehearsals=0))
SLOTS = [told(opened, Information.CENSORED) for opened in slots_of(MARKET)]


def scored(opened, score):
    """The slot with such a score of each offering, given as it opened."""
    return replace(
        opened,
        quotes=tuple(
            replace(
                quoted,
                quote=replace(quoted.quote, placement_score=score, scored_ns=opened.ts_event_ns),
            )
            for quoted in opened.quotes
        ),
    )


class Market:
    """A job on a market without counts, its slots one after the other."""

    def __init__(self, options, first=0, scores=()):
        self.driver = Driver(options)
        self.scores = iter(scores)
        self.job = generated_jobs(MARKET, 1, 2)[0]
        self.slot = next(opened.slot for opened in SLOTS if opened.ts_event_ns >= self.job.start_ns)
        self.driver.feed(
            MarketOpened(
                offerings=MARKET.offerings,
                slot_s=MARKET.slot_s,
                first_slot_start_ns=MARKET.start_ns,
                source="test",
            )
        )
        self.job = replace(self.job, start_ns=max(self.job.start_ns, SLOTS[first].ts_event_ns))
        self.slot = max(self.slot, first)
        for opened in SLOTS[:first]:
            self.driver.feed(opened)
        self.driver.feed(JobSubmitted(job=self.job, ts_event_ns=0))
        self.asked = self.open()

    @property
    def state(self):
        return self.driver.state

    @property
    def home(self):
        return self.state.runs[self.job.job_id].offering_id

    def open(self):
        score = next(self.scores, 0)
        opened = SLOTS[self.slot]
        self.driver.feed(scored(opened, score) if score else opened)
        return self.driver.feed(ForecastOverdue(slot=self.slot, waited_ms=1))

    def shown(self):
        (count,) = [
            quoted.quote.spot_available
            for quoted in self.asked.calls[0].request.quotes
            if quoted.quote.offering_id == self.home
        ]
        return count

    def decide(self, spot=0, on_demand=0):
        lot = Lot(offering_id=self.home, spot=spot, on_demand=on_demand)
        outcome = self.driver.feed(
            AllocationAnswered(
                slot=self.slot,
                revision=self.state.revision,
                request_digest=self.asked.calls[0].digest,
                outcome=CallOutcome.ANSWERED,
                answers=(
                    JobAnswer(
                        job_id=self.job.job_id,
                        policy_id="msu",
                        lots=(lot,) if spot or on_demand else (),
                        memory=(),
                        reason=DecisionReason.POLICY,
                    ),
                ),
            )
        )
        return [each for each in outcome.events if isinstance(each, ProvisioningCommanded)]

    def refuse(self, requested, refusal_class=RefusalClass.NO_CAPACITY):
        self.driver.feed(
            LaunchRefused(
                command_id="c",
                job_id=self.job.job_id,
                tenant=self.job.tenant,
                offering_id=self.home,
                capacity_type=CapacityType.SPOT,
                slot=self.slot,
                requested=requested,
                granted=0,
                detail="test",
                refusal_class=refusal_class,
            )
        )

    def hold(self, spot=0, on_demand=0, *, settled=True):
        lot = Lot(offering_id=self.home, spot=spot, on_demand=on_demand)
        held = (JobHolding(job_id=self.job.job_id, lots=(lot,)),) if spot or on_demand else ()
        outcome = self.driver.feed(
            CapacityReported(
                slot=self.slot,
                revision=self.state.revision,
                offset_s=0,
                settled=settled,
                holdings=held,
            )
        )
        if not settled:
            self.asked = outcome
        return outcome

    def next_slot(self):
        self.slot += 1
        self.asked = self.open()


def test_a_count_that_nobody_publishes_is_shown_as_what_is_worth_asking_for():
    market = Market(BELIEVING)

    assert market.shown().provenance is Provenance.INFERRED
    assert market.shown().instances >= market.job.max_instances
    assert market.state.laws.keys() >= {market.home}


def test_without_beliefs_it_stays_unknown_and_nothing_is_kept():
    market = Market(replace(BELIEVING, beliefs=""))
    assert not market.shown().known
    market.decide(on_demand=2)
    market.hold(on_demand=2)
    market.next_slot()

    (command,) = market.decide(spot=2)

    assert not command.keep_until_granted


def test_on_demand_is_kept_until_the_spot_in_its_place_is_there():
    market = Market(BELIEVING)
    market.decide(on_demand=2)
    market.hold(on_demand=2)
    market.next_slot()

    (command,) = market.decide(spot=2)
    assert command.keep_until_granted
    market.refuse(2)
    market.hold(on_demand=2, settled=False)

    assert market.shown().instances == 0
    (refused,) = market.state.runs[market.job.job_id].segments
    assert (refused.holding.on_demand, refused.interrupted) == (2, False)
    assert market.decide(on_demand=2) == []
    market.hold(on_demand=2)
    (segment,) = market.state.runs[market.job.job_id].segments
    assert (segment.holding.on_demand, segment.interrupted) == (2, False)


def test_a_launch_in_place_of_nothing_is_no_swap():
    (command,) = Market(BELIEVING).decide(spot=2)

    assert not command.keep_until_granted


def test_a_refusal_lowers_the_belief_and_a_limit_of_ours_does_not():
    chances = {}
    for refusal_class in (RefusalClass.NO_CAPACITY, RefusalClass.QUOTA):
        market = Market(BELIEVING)
        market.decide(spot=2)
        market.refuse(1, refusal_class)
        market.hold(settled=False)
        market.decide()
        market.hold()
        market.next_slot()
        chances[refusal_class] = market.state.beliefs.risk_ppm(market.home, 1)

    assert chances[RefusalClass.NO_CAPACITY] > chances[RefusalClass.QUOTA]


def risk_beside_scores(options, scores):
    """The risk that no spot is there in the slot behind those with such scores: none where it is 1, plenty where 9."""
    market = Market(options, scores=scores)
    for score in scores[:-1]:
        if score == 1:
            market.decide(spot=2)
            market.refuse(1)
            market.hold(settled=False)
            market.decide()
            market.hold()
        else:
            market.decide(spot=2)
            market.hold(spot=2)
        market.next_slot()
    return market.state.beliefs.risk_ppm(market.home, 2)


def test_scores_move_a_belief_once_launches_have_shown_what_they_tell():
    past = [1, 9, 1, 9, 1, 9]

    low, none, high = (risk_beside_scores(BELIEVING, [*past, last]) for last in (1, 0, 9))

    assert low > none > high
    assert risk_beside_scores(BELIEVING, [1]) == risk_beside_scores(BELIEVING, [9])


def test_scores_count_where_counts_are_believed_and_not_in_logs_of_before():
    assert BELIEVING.score_beliefs
    assert not SelectorOptions().score_beliefs


def test_without_the_option_scores_are_left_out():
    plain = replace(BELIEVING, score_beliefs=False)
    past = [1, 9, 1, 9]

    low, none, high = (risk_beside_scores(plain, [*past, last]) for last in (1, 0, 9))

    assert low == none == high


def test_spot_that_was_taken_is_not_asked_for_again_in_its_slot():
    market = Market(BELIEVING)
    market.decide(spot=2)
    market.hold(spot=2)
    market.driver.feed(
        CapacityLost(
            job_id=market.job.job_id,
            tenant=market.job.tenant,
            offering_id=market.home,
            instance_ids=("i-1", "i-2"),
            slot=market.slot,
            offset_s=60,
        )
    )
    market.hold(settled=False)

    assert market.shown().instances == 0


def test_a_slot_that_is_over_shows_a_path_that_agrees_with_what_was_seen():
    market = Market(BELIEVING)
    market.decide(spot=2)
    market.refuse(1)
    market.hold(spot=2, settled=False)
    market.next_slot()

    (last,) = [
        quoted.quote.spot_available.instances
        for quoted in market.state.history[-1][0].quotes
        if quoted.quote.offering_id == market.home
    ]
    assert 2 <= last < LEVEL_STARTS[2]
    (record,) = market.state.runs[market.job.job_id].records
    assert record.spot_available == 2


def test_equal_events_are_believed_alike():
    states = []
    for _ in range(2):
        market = Market(BELIEVING)
        market.decide(spot=2)
        market.refuse(2)
        market.hold(settled=False)
        market.decide()
        market.hold()
        market.next_slot()
        states.append(market.asked.calls[0].digest)

    assert states[0] == states[1]


def test_no_job_is_rehearsed_on_counts_that_nobody_saw():
    market = Market(replace(BELIEVING, rehearsals=6), first=20)

    assert market.state.learner.rule.rounds == 0
    assert len(market.state.history) >= 20


def test_beliefs_of_other_priors_are_refused_by_name():
    with pytest.raises(ValueError, match="priors_sha256"):
        SelectorOptions(beliefs="0" * 64)


def test_feedback_is_the_mean_of_paths_that_agree_with_what_was_seen():
    market = Market(BELIEVING)
    market.decide(spot=2)
    market.refuse(1)
    market.hold(spot=2, settled=False)
    market.next_slot()

    (record,) = market.state.runs[market.job.job_id].records
    assert len(record.sampled) == BELIEVING.belief_paths
    assert {spot for spot, _ in record.sampled} == {2}
    told = told_back(market)
    assert told.sampled_paths == BELIEVING.belief_paths
    assert 0 < told.misfit_ppm < 1_000_000
    assert market.state.runs[market.job.job_id].paths is None


def test_paths_widen_the_bound_of_the_regret_and_known_counts_do_not():
    believed = told_back(Market(BELIEVING)).regret
    earlier = told_back(Market(replace(BELIEVING, belief_paths=0)))

    assert 0 < believed.widened_micro_usd <= believed.bound_micro_usd
    assert (earlier.sampled_paths, earlier.misfit_ppm) == (0, 0)
    assert earlier.regret.widened_micro_usd == 0


def told_back(market):
    """The feedback of the job, which holds nothing until its deadline has passed."""
    while True:
        outcome = market.driver.feed(SLOTS[market.slot + 1])
        market.slot += 1
        for event in outcome.events:
            if isinstance(event, PolicyWeightsUpdated):
                return event
        market.asked = market.driver.feed(ForecastOverdue(slot=market.slot, waited_ms=1))
        if market.asked.calls:
            market.decide()
            market.hold()

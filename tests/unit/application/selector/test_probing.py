"""When the selector asks offerings: where nothing is known or held, and what it does with the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.selector.options import SelectorOptions, where_uncounted
from spotline.application.selector.probing import probe_odds
from spotline.domain.beliefs.probes import ProbeWorth
from spotline.domain.events.allocation import AllocationAnswered, CallOutcome
from spotline.domain.events.capacity import (
    OfferingProbed,
    ProbeCommanded,
    RefusalClass,
)
from spotline.domain.events.freeze import BuyingFrozen
from spotline.domain.jobs.lot import Lot
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.market.offering import CapacityType
from spotline.domain.modes import Mode
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from tests.unit.application.selector.test_believing import Market

ASKING = where_uncounted(SelectorOptions(rehearsals=0, probes=2))


class Probing(Market):
    """The market of beliefs, with answers that say what asking is worth."""

    @property
    def run(self):
        return self.state.runs[self.job.job_id]

    @property
    def away(self):
        return min(name for name in self.state.offerings if name != self.home)

    def odds(self, options=ASKING):
        return probe_odds(self.state, self.run, self.away, options)

    def worth(self, offering_id=None, gain=5_000_000):
        return ProbeWorth(
            offering_id=offering_id or self.away,
            job_id=self.job.job_id,
            instances=self.job.max_instances,
            gain_micro_usd=gain,
        )

    def answered(self, *worths, spot=0, at=None):
        lot = Lot(offering_id=at or self.home, spot=spot)
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
                        lots=(lot,) if spot else (),
                        memory=(),
                        reason=DecisionReason.POLICY,
                    ),
                ),
                probe_worths=worths,
            )
        )
        return [event for event in outcome.events if isinstance(event, ProbeCommanded)]

    def told(self, command, granted, cost=7, refusal=RefusalClass.NO_CAPACITY):
        self.driver.feed(
            OfferingProbed(
                command_id=command.command_id,
                job_id=command.job_id,
                tenant=command.tenant,
                offering_id=command.offering_id,
                slot=self.slot,
                requested=command.instances,
                granted=granted,
                cost_micro_usd=cost,
                refusal_class=None if granted == command.instances else refusal,
            )
        )


@pytest.fixture
def market():
    return Probing(ASKING)


def test_what_gains_more_than_it_costs_is_asked_and_says_so(market):
    (sent,) = market.answered(market.worth())

    assert (sent.offering_id, sent.instances) == (market.away, market.job.max_instances)
    assert sent.gain_micro_usd == 5_000_000
    assert 0 < sent.price_micro_usd < 5_000_000
    assert sent.tenant == market.job.tenant
    assert sent.quota_pool == market.state.offerings[market.away].quota_pool


def test_what_gains_less_than_it_costs_is_not(market):
    assert market.answered(market.worth(gain=1)) == []


def test_the_answer_is_believed_and_paid_in_its_slot(market):
    chance = market.state.beliefs.offerings[market.away].belief.chance_of(market.job.max_instances)
    (sent,) = market.answered(market.worth())
    market.told(sent, sent.instances)
    assert market.run.probed_micro_usd == 7
    assert dict(market.run.costs_until((10, 30), 60)) == {
        CapacityType.SPOT: 7,
        CapacityType.ON_DEMAND: 0,
    }
    market.hold()
    market.next_slot()

    known = market.state.beliefs.offerings[market.away].belief
    assert known.chance_of(market.job.max_instances) > chance
    assert market.run.spent_micro_usd == 7
    assert market.run.probed_micro_usd == 0


@pytest.mark.parametrize(
    ("refusal", "tells"), [(RefusalClass.NO_CAPACITY, True), (RefusalClass.LIMIT, False)]
)
def test_a_refusal_that_is_ours_tells_nothing_of_the_market(market, refusal, tells):
    known = market.state.beliefs.offerings[market.away]
    before = known.belief.chance_of(market.job.max_instances)
    (sent,) = market.answered(market.worth())
    market.told(sent, 0, refusal=refusal)
    market.hold()
    market.next_slot()

    after = known.belief.chance_of(market.job.max_instances)

    assert (after < before / 2) is tells


def test_an_offering_rests_after_it_was_asked(market):
    market.answered(market.worth())
    market.hold()
    market.next_slot()
    assert market.odds() is None
    market.answered()
    market.hold()
    market.next_slot()

    assert market.odds() is not None


def test_nothing_is_asked_where_a_job_launches_in_the_same_slot(market):
    assert market.answered(market.worth(market.home), spot=2) == []


def test_odds_are_given_only_where_a_probe_may_be_sent(market):
    assert market.odds() is not None
    assert market.odds(replace(ASKING, probes=0)) is None

    market.state.beliefs.offerings[market.away].cool_until_ns = 2**62
    assert market.odds() is None


def test_on_paper_nobody_asks(market):
    market.state.mode = Mode.SHADOW

    assert market.odds() is None


def test_where_buying_is_stopped_nobody_asks(market):
    market.driver.feed(
        BuyingFrozen(
            freeze=Freeze(
                freeze_id="f",
                scope=FreezeScope.SYSTEM,
                key="",
                reason=FreezeReason.PAUSED,
                detail="stop",
            )
        )
    )

    assert market.odds() is None


def test_where_instances_are_held_nobody_asks(market):
    market.decide(spot=2)
    market.hold(spot=2)
    market.next_slot()

    assert probe_odds(market.state, market.run, market.home, ASKING) is None


@pytest.mark.parametrize(
    "wrong", [{"probes": -1}, {"probe_rest_slots": 0}, {"probe_usd_per_hour": -0.1}]
)
def test_a_ration_is_one(wrong):
    with pytest.raises(ValueError, match="probe"):
        SelectorOptions(**wrong)

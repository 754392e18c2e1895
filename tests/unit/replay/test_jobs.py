"""The demo's draft, and the platform that runs it at rates of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.admission import job_id_for
from spotline.demo.platform import true_rates
from spotline.domain.configuration.provenance import ParameterOrigin
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.market.generate import generate
from spotline.replay.jobs import generated_draft
from tests.fakes.allocator import START_NS, job
from tests.fakes.configurator import completed

MARKET = generate("mixed", seed=3, slots=288, slot_s=1800, start_ns=START_NS)


def completed_job() -> Job:
    draft = generated_draft(MARKET, 3)
    assert draft is not None
    return completed(draft, 2e6)


@pytest.mark.parametrize("slots", [16, 72, 288])
@pytest.mark.parametrize("seed", range(8))
def test_a_generated_draft_states_four_things_and_ends_with_the_market(slots, seed) -> None:
    market = MARKET.between(0, slots)

    draft = generated_draft(market, seed)

    assert draft == generated_draft(market, seed)
    assert draft is not None
    assert draft.job_id == job_id_for(draft.tenant, draft.client_request_id)
    assert draft.tokens > 0
    assert draft.value_micro_usd > 0
    starts = market.slot_starts_ns()
    assert draft.start_ns in starts
    assert draft.start_ns < draft.deadline.at_ns <= starts[-1]
    left_out = ("method", "gpu_model", "gpus", "batch_size", "allowed_counts", "throughputs")
    assert not any(getattr(draft, name) for name in left_out)


def test_a_market_of_unknown_gpus_has_no_draft() -> None:
    unknown = replace(
        MARKET, offerings=tuple(replace(one, gpu_model="") for one in MARKET.offerings)
    )

    assert generated_draft(unknown, 3) is None


def test_a_smaller_gpu_gets_a_smaller_model() -> None:
    small = replace(
        MARKET, offerings=tuple(replace(one, gpu_model="v100") for one in MARKET.offerings)
    )

    assert generated_draft(MARKET, 3).model_name == "granite-3.1-8b"
    assert generated_draft(small, 3).model_name == "granite-3.1-2b"


def test_true_rates_are_a_share_of_what_was_predicted_not_of_what_is_planned_on() -> None:
    one = completed_job()
    assert one.configuration is not None
    # Predicted is the middle of the interval: 4e6 to 16e6 on four instances, planned on 8e6.
    truth = true_rates(one, 0.75)
    origin = ParameterOrigin(
        parameter="throughput.p4d.24xlarge",
        value="8e6",
        kind=one.configuration.origins[-1].kind,
        low=8e6,
        high=32e6,
    )
    wider = replace(
        one,
        configuration=replace(one.configuration, origins=(*one.configuration.origins[:-1], origin)),
    )

    assert truth.factor == 0.75
    assert truth.throughputs[0].rate_per_hour(4) == pytest.approx(6e6)
    assert true_rates(wider, 0.75).throughputs[0].rate_per_hour(4) == pytest.approx(12e6)


def test_without_an_interval_true_rates_are_a_share_of_the_stated_ones() -> None:
    stated = replace(job(), throughputs=(Throughput(offering="*", table=(1.0, 1.9, 2.7, 3.4)),))

    assert true_rates(stated, 0.5).throughputs[0].table == (0.5, 0.95, 1.35, 1.7)

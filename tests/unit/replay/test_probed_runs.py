"""Whole runs in which offerings are asked: every probe is recomputed, rationed, and on a job's bill."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.application.explaining.messages import DecisionQuery
from spotline.application.selector.handler import ALLOCATE_CALL
from spotline.application.selector.options import SelectorOptions, where_uncounted
from spotline.contracts.build import event_of
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported, OfferingProbed, ProbeCommanded
from spotline.domain.events.lifecycle import JobAdvanced, JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.market.generate import generate
from spotline.domain.units import cost_micro_usd
from spotline.replay.clouds import Information, TellingCloud, told
from spotline.replay.course import slots_of
from spotline.replay.divergence import SAME
from spotline.replay.explain import LogExplainer, RecordedEntries
from spotline.replay.handlers import handlers_of
from spotline.replay.host import LocalHost
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import answer_in_process
from spotline.replay.verify import verify
from tests.fakes.recorded_run import START_NS, manifest_of

OPTIONS = where_uncounted(SelectorOptions(rehearsals=0, probes=2))
MARKET = generate("cloud-zones", seed=2, slots=24, slot_s=1800, start_ns=START_NS)
REAL = {opened.slot: opened for opened in slots_of(MARKET)}


def settings_of(options):
    return {
        "selector": asdict(options),
        "forecaster": {"forecaster": "river", "horizon_slots": 6},
    }


def run_of(options, jobs=4):
    """The log of jobs on a market that hides its counts."""
    log = []
    cloud = TellingCloud(REAL, Information.CENSORED, sharing=True)
    host = LocalHost(
        [*handlers_of(settings_of(options)), cloud],
        answers={ALLOCATE_CALL: answer_in_process},
        record=log.append,
    )
    host.publish(
        MarketOpened(
            offerings=MARKET.offerings,
            slot_s=MARKET.slot_s,
            first_slot_start_ns=MARKET.start_ns,
            source="test",
        ),
        source="market_ingest",
    )
    for job in generated_jobs(MARKET, jobs, 3):
        host.publish(JobSubmitted(job=job, ts_event_ns=MARKET.start_ns), source="allocator")
    for opened in REAL.values():
        host.publish(told(opened, Information.CENSORED), source="market_ingest")
    return log


@pytest.fixture(scope="module")
def log():
    return run_of(OPTIONS)


@pytest.fixture(scope="module")
def events(log):
    return [event_of(entry) for entry in log]


def of_type(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_every_probe_is_recomputed(log, events):
    assert of_type(events, ProbeCommanded)

    manifest = replace(manifest_of(log), settings=settings_of(OPTIONS))
    result = verify(log, handlers_of(settings_of(OPTIONS)), manifest, here=environment())

    assert result.exit_code == SAME


def test_every_probe_is_answered_and_nothing_is_held_for_it(events):
    sent, answers = of_type(events, ProbeCommanded), of_type(events, OfferingProbed)
    assert {each.command_id for each in sent} == {each.command_id for each in answers}

    held = Counter()
    for event in events:
        if isinstance(event, CapacityReported):
            held = Counter(lot.offering_id for each in event.holdings for lot in each.lots)
        elif isinstance(event, ProbeCommanded):
            assert not held[event.offering_id]


def test_probes_keep_to_their_ration(events):
    sent = of_type(events, ProbeCommanded)
    assert max(Counter(each.slot for each in sent).values()) <= OPTIONS.probes
    last = {}
    for each in sent:
        assert each.slot - last.get(each.offering_id, -9) >= OPTIONS.probe_rest_slots
        last[each.offering_id] = each.slot
        spent = sum(one.price_micro_usd for one in sent if 0 <= each.slot - one.slot < 2)
        assert spent <= OPTIONS.probe_ration.micro_usd_per_hour


def test_a_probe_is_on_the_bill_of_its_job(events):
    paid = Counter()
    for answer in of_type(events, OfferingProbed):
        paid[answer.job_id, answer.slot] += answer.cost_micro_usd
    job_id, slot = max(paid, key=lambda key: paid[key])
    assert paid[job_id, slot] > 0

    (advanced,) = [
        event
        for event in of_type(events, JobAdvanced)
        if (event.job_id, event.slot) == (job_id, slot)
    ]
    moved = [
        event.move.cost_micro_usd
        for event in of_type(events, AllocationDecided)
        if (event.job_id, event.slot) == (job_id, slot) and event.move is not None
    ]
    quotes = {each.quote.offering_id: each.quote for each in REAL[slot].quotes}
    held = sum(
        cost_micro_usd(quotes[lot.offering_id].spot_price_micro_usd, lot.spot, 1800)
        + cost_micro_usd(quotes[lot.offering_id].on_demand_price_micro_usd, lot.on_demand, 1800)
        for lot in advanced.lots
    )

    assert advanced.slot_cost_micro_usd == held + sum(moved) + paid[job_id, slot]


def test_the_explanation_of_a_decision_says_what_was_asked_and_found(log, events):
    sent = of_type(events, ProbeCommanded)[0]
    explainer = LogExplainer(OPTIONS)
    query = DecisionQuery(job_id=sent.job_id, slot=sent.slot, revision=sent.revision)

    found = explainer.explain(RecordedEntries(log), query)

    texts = [link.text for link in found.chain]
    assert any(text.startswith(f"asked {sent.offering_id} for") for text in texts)
    assert any(text.startswith(f"{sent.offering_id} had") for text in texts)
    assert explainer.differences(RecordedEntries(log), query) == ()


def test_without_the_option_nobody_asks():
    events = [event_of(entry) for entry in run_of(replace(OPTIONS, probes=0), jobs=2)]

    assert not of_type(events, ProbeCommanded)
    assert not of_type(events, OfferingProbed)

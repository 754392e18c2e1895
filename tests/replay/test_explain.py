"""Every decision of a log is worked out again, and its explanation adds up."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.explaining.ports import LogBeginsLate, UnknownDecision
from spotline.contracts.mapping import from_message, to_message
from spotline.domain.decision_version import DECISION_VERSION
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import PPM
from spotline.replay.explain import LogExplainer, RecordedEntries
from spotline.replay.handlers import selector_options
from spotline.replay.recorded import readable_events
from tests.fakes.recorded_run import SETTINGS, altered, small_run, write_log
from tests.samples.stored_runs import STORED, unpack


def explanations(entries, settings, *, every=1):
    """Explanations of a log's decisions, or of each n-th of them."""
    log = RecordedEntries(entries)
    explainer = LogExplainer(selector_options(settings))
    explainer.follow(log)
    return [
        explainer.explain(log, query_of(found)) for found in explainer.index.decisions()[::every]
    ]


def query_of(found):
    return DecisionQuery(job_id=found.job_id, slot=found.slot, revision=found.revision)


@pytest.fixture(scope="module")
def small():
    return small_run()


@pytest.fixture(scope="module", params=["demo-log", "up-log", "small"])
def recorded(request, tmp_path_factory, small):
    """A log's entries and settings."""
    if request.param == "small":
        return small, SETTINGS
    if DECISION_VERSION != 1:
        pytest.skip("v0.1.0 decides by version 1")
    folder = tmp_path_factory.mktemp("v0.1.0") / request.param
    unpack(STORED / f"{request.param}.tar.xz", folder)
    reader = EventLogReader(folder)
    return list(reader), reader.manifest.settings


@pytest.fixture(scope="module")
def told(recorded):
    """A log, and explanations from all over it."""
    entries, settings = recorded
    return entries, explanations(entries, settings, every=3)


def test_every_decision_is_made_again_as_it_was_recorded(recorded):
    entries, settings = recorded
    log = RecordedEntries(entries)
    explainer = LogExplainer(selector_options(settings))
    explainer.follow(log)
    decided = [
        found.event
        for found in readable_events(entries)
        if isinstance(found.event, AllocationDecided)
    ]

    made = explainer.index.decisions()

    assert len(made) == len(decided) > 10
    for found in made:
        assert explainer.differences(log, query_of(found)) == ()


def test_a_decision_that_is_made_again_has_no_divergence(told):
    _, explained = told

    assert explained
    for each in explained:
        assert "not reproduced" not in each.summary
        assert all(found.kind != "divergence" for found in each.inputs)


def test_numbers_are_finite_and_the_chosen_comes_first(told):
    _, explained = told

    valued = [each for each in explained if each.alternatives]
    assert valued
    for each in valued:
        first, *others = each.alternatives
        assert first.chosen
        assert first.worse_by_micro_usd == 0
        held = tuple(lot for lot in first.lots if lot.spot or lot.on_demand)
        assert held == each.decision.lots
        assert not any(other.chosen for other in others)
        for other in each.alternatives:
            assert 0 <= other.on_time_probability_ppm <= PPM
            assert math.isfinite(other.utility_micro_usd)
            assert abs(other.utility_micro_usd) < 10**12
            assert other.immediate_cost_micro_usd >= 0
            assert other.cost_to_go_micro_usd >= 0
            assert other.worse_by_micro_usd == first.utility_micro_usd - other.utility_micro_usd
            assert bool(other.cut is None) == (not other.cut_detail)


def test_by_its_table_nothing_that_could_be_had_is_better_than_what_was_chosen(told):
    _, explained = told
    by_table = [
        each
        for each in explained
        if each.method.startswith("worth by") and each.decision.reason is DecisionReason.POLICY
    ]

    if not by_table:
        pytest.skip("no decision of this log was made by a table alone")
    for each in by_table:
        for other in each.alternatives:
            if other.cut is None:
                assert other.worse_by_micro_usd >= 0, (each.decision, other)


def test_the_bills_of_the_chain_are_those_of_the_ledger(told):
    entries, explained = told
    billed: dict[tuple[str, int], list[int]] = {}
    for found in readable_events(entries):
        if isinstance(found.event, CostAccrued):
            key = found.event.job_id, found.event.slot
            billed.setdefault(key, []).append(found.seq)

    for each in explained:
        key = each.decision.job_id, each.decision.slot
        bills = [link.seq for link in each.chain if link.kind == "bill"]
        assert bills == billed.get(key, [])
        seqs = [link.seq for link in each.chain]
        assert seqs == sorted(seqs)
        kinds = [link.kind for link in each.chain]
        assert kinds[0] == "market.slot"
        assert "decision" in kinds


def test_a_later_decision_is_explained_from_where_an_earlier_one_was(small):
    log = RecordedEntries(small)
    fresh = LogExplainer(selector_options(SETTINGS))
    gone_on = LogExplainer(selector_options(SETTINGS))
    gone_on.follow(log)
    found = gone_on.index.decisions()
    early, late = (
        DecisionQuery(job_id=each.job_id, slot=each.slot) for each in (found[3], found[-1])
    )

    first = gone_on.explain(log, early)
    again = gone_on.explain(log, late)

    assert again == fresh.explain(log, late)
    # And back to one that was left behind.
    assert gone_on.explain(log, early) == first


def test_a_cut_log_is_explained_up_to_its_last_decision(small):
    whole = LogExplainer(selector_options(SETTINGS))
    whole.follow(RecordedEntries(small))
    found = whole.index.decisions()[20]
    last = whole.explain(RecordedEntries(small), query_of(found))
    cut = RecordedEntries([entry for entry in small if entry.seq <= last.seq])

    told = LogExplainer(selector_options(SETTINGS)).explain(cut, DecisionQuery(job_id=found.job_id))

    assert told.decision == last.decision
    assert told.alternatives == last.alternatives
    assert all(link.kind != "bill" for link in told.chain)


def test_an_altered_decision_is_named_and_not_hidden(small):
    def more(event: AllocationDecided) -> AllocationDecided:
        return replace(event, lots=(Lot(offering_id="neocloud:neo-1:a100-1x", on_demand=99),))

    entries, seq = altered(small, AllocationDecided, more, nth=4)
    log = RecordedEntries(entries)
    explainer = LogExplainer(selector_options(SETTINGS))
    explainer.follow(log)
    found = next(each for each in explainer.index.decisions() if each.mark.seq == seq)

    told = explainer.explain(log, DecisionQuery(job_id=found.job_id, slot=found.slot))

    assert told.decision.lots[0].on_demand == 99
    assert told.summary.startswith("This decision is not reproduced: lots")
    assert told.inputs[0].kind == "divergence"
    assert "99" in told.inputs[0].text


def test_other_settings_of_the_selector_are_named_where_they_ask_otherwise(small):
    log = RecordedEntries(small)
    other = LogExplainer(selector_options({"selector": {"moves": False, "spot_firm": False}}))
    other.follow(log)

    told = [other.differences(log, query_of(found)) for found in other.index.decisions()]

    assert any("request: " in difference for differences in told for difference in differences)


def test_a_slot_without_a_decision_names_the_nearest(small):
    log = RecordedEntries(small)
    explainer = LogExplainer(selector_options(SETTINGS))
    explainer.follow(log)
    found = explainer.index.decisions()[0]

    with pytest.raises(UnknownDecision, match=r"the nearest are \d+, \d+, \d+; found 7000"):
        explainer.explain(log, DecisionQuery(job_id=found.job_id, slot=7000))
    with pytest.raises(UnknownDecision, match="revision: expected"):
        explainer.explain(log, DecisionQuery(job_id=found.job_id, slot=found.slot, revision=40))
    with pytest.raises(UnknownDecision, match="expected a job of the log") as unknown:
        explainer.explain(log, DecisionQuery(job_id="0" * 32))
    assert not unknown.value.job_known


def test_a_log_without_its_beginning_says_so(small):
    log = RecordedEntries(small[10:])

    with pytest.raises(LogBeginsLate, match=f"begins with seq {small[10].seq}"):
        LogExplainer(selector_options(SETTINGS)).follow(log)


_DIGEST = """
import sys
from pathlib import Path
from spotline.adapters.eventlog.reader import EventLogReader
from tests.replay.test_explain import digest_of
print(digest_of(EventLogReader(Path(sys.argv[1]))))
"""


def digest_of(entries) -> str:
    digest = hashlib.sha256()
    for each in explanations(entries, SETTINGS, every=7):
        digest.update(to_message(each).SerializeToString(deterministic=True))
    return digest.hexdigest()


@pytest.mark.slow  # test_verify.py has the short form
def test_explanations_do_not_depend_on_how_sets_are_ordered(small, tmp_path):
    entries = small[:320]
    write_log(tmp_path / "log", entries)
    here = digest_of(entries)
    elsewhere = [
        subprocess.Popen(
            [sys.executable, "-c", _DIGEST, str(tmp_path / "log")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("2024",)
    ]

    for process in elsewhere:
        said, _ = process.communicate(timeout=120)
        assert (process.returncode, said.strip()) == (0, here)


def test_an_explanation_survives_its_message(told):
    _, explained = told
    for each in explained[:5]:
        assert from_message(DecisionExplanation, to_message(each)) == each

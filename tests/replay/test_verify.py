"""A recorded log gives the same decisions again, and whatever was changed in it is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from spotline.adapters.eventlog.manifest import environment
from spotline.cli import replay as replay_command
from spotline.contracts.build import event_of
from spotline.domain.decision_version import DECISION_VERSION
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided
from spotline.domain.events.capacity import CapacityReported, SlotDecided
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.law import MarketLawLearned, ValueTableReady
from spotline.domain.events.lifecycle import JobAdmitted
from spotline.domain.events.market import QuoteObserved, SlotOpened
from spotline.domain.jobs.lot import Lot
from spotline.replay.divergence import DIVERGED, SAME, UNREADABLE, field_differences
from spotline.replay.handlers import handlers_of
from spotline.replay.verify import verify
from tests.fakes.events import envelope
from tests.fakes.recorded_run import (
    SETTINGS,
    altered,
    digest_of,
    manifest_of,
    small_run,
    write_log,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def log():
    return small_run()


def verified(entries, log, **options):
    return verify(entries, handlers_of(SETTINGS), manifest_of(log), here=environment(), **options)


def places(log, event_type):
    return [index for index, entry in enumerate(log) if isinstance(event_of(entry), event_type)]


def test_a_recorded_log_gives_the_same_decisions(log):
    report = verified(log, log)

    assert report.exit_code == SAME
    assert report.entries == len(log)
    assert report.open_inputs == 0
    assert report.decisions == {
        "forecaster": len(places(log, ForecastIssued)) + len(places(log, MarketLawLearned)),
        "allocator": len(places(log, ValueTableReady)),
        "configurator": 0,
        "placer": 0,
        "selector": sum(
            entry.headers["ce-source"] == "spotline/selector"
            and not isinstance(event_of(entry), AllocationAnswered)
            for entry in log
        ),
    }
    assert report.answers == len(places(log, AllocationAnswered)) > 0


def test_an_altered_decision_is_named_with_its_field(log):
    def with_more_spot(event):
        lots = (Lot(offering_id="elsewhere", spot=7),)
        return replace(event, lots=lots)

    changed, seq = altered(log, AllocationDecided, with_more_spot, nth=5)

    report = verified(changed, log)

    assert report.exit_code == DIVERGED
    assert [one.seq for one in report.divergences] == [seq]
    assert report.divergences[0].handler == "selector"
    assert "lots" in report.divergences[0].describe()


@pytest.mark.parametrize(
    ("event_type", "change", "field"),
    [
        (
            JobAdmitted,
            lambda e: replace(e, policy_id="msu", weight_ppb=1),
            "weight_ppb: 1 recorded",
        ),
        (
            AllocationAnswered,
            lambda e: replace(e, revision=3),
            "revision: 3 recorded, 0 recomputed",
        ),
        (AllocationAnswered, lambda e: replace(e, request_digest="0" * 64), "request_digest: '000"),
        (SlotDecided, lambda e: replace(e, commands=9), "commands: 9 recorded"),
    ],
)
def test_one_altered_entry_is_one_divergence(log, event_type, change, field):
    changed, seq = altered(log, event_type, change, nth=2)

    report = verified(changed, log)

    assert [one.seq for one in report.divergences] == [seq]
    assert field in report.divergences[0].describe()


def test_an_altered_answer_is_recomputed(log):
    def other_policy(event):
        first = replace(event.answers[0], policy_id="on_demand_only")
        return replace(event, answers=(first, *event.answers[1:]))

    changed, seq = altered(log, AllocationAnswered, other_policy, nth=3)

    report = verified(changed, log)

    assert [one.seq for one in report.divergences] == [seq]
    assert "answers[0].policy_id: 'on_demand_only' recorded" in report.divergences[0].describe()


def test_an_altered_forecast_is_named_first(log):
    changed, seq = altered(log, ForecastIssued, lambda e: replace(e, model_id="other"), nth=20)

    report = verified(changed, log, most=1)

    assert [(one.seq, one.handler) for one in report.divergences] == [(seq, "forecaster")]
    assert not report.complete


def test_an_altered_observation_leads_to_other_decisions(log):
    def dearer(event):
        quotes = tuple(
            replace(q, quote=replace(q.quote, spot_price_micro_usd=9_000_000)) for q in event.quotes
        )
        return replace(event, quotes=quotes)

    changed, seq = altered(log, SlotOpened, dearer, nth=30)

    report = verified(changed, log)

    assert report.exit_code == DIVERGED
    assert report.divergences[0].seq > seq


def test_a_decision_that_was_never_recorded_is_missed(log):
    place = places(log, AllocationDecided)[4]

    report = verified([*log[:place], *log[place + 1 :]], log)

    assert report.exit_code == DIVERGED
    assert [(one.recorded, one.kind) for one in report.divergences] == [("nothing", "decision")]


def test_a_decision_without_a_cause_is_named(log):
    place = places(log, AllocationDecided)[4]
    headers = {**log[place].headers, "ce-id": "f" * 32, "ce-causationid": "e" * 32}
    forged = replace(log[place], headers=headers)

    report = verified([*log[: place + 1], forged, *log[place + 1 :]], log)

    assert [one.seq for one in report.divergences] == [forged.seq]
    assert "cause" in report.divergences[0].recomputed


def test_an_unreadable_decision_of_ours_diverges(log):
    place = places(log, AllocationDecided)[4]
    entries = list(log)
    entries[place] = replace(entries[place], payload=b"\xff\xff")

    report = verified(entries, log)

    assert report.exit_code == DIVERGED
    assert report.divergences[0].recorded.startswith("unreadable")


def test_an_unreadable_observation_was_dead_lettered_and_is_passed_over(log):
    place = places(log, QuoteObserved)[4]
    entries = list(log)
    entries[place] = replace(entries[place], payload=b"\xff\xff")

    report = verified(entries, log)

    assert report.exit_code == SAME
    assert report.skipped == 1


def test_an_entry_that_came_twice_counts_once(log):
    for event_type in (SlotOpened, CapacityReported, AllocationDecided):
        place = places(log, event_type)[6]

        report = verified([*log[: place + 1], log[place], *log[place + 1 :]], log)

        assert report.exit_code == SAME


def test_a_log_may_end_anywhere(log):
    last = len(log)
    for end in (1, 2, 10, last // 2, last // 2 + 1, last // 2 + 2, last - 3, last - 2, last - 1):
        assert verified(log[:end], log).exit_code == SAME


def test_a_log_that_begins_in_the_middle_is_unreadable(log):
    report = verified(log[10:], log)

    assert report.exit_code == UNREADABLE
    assert "seq 11" in report.unreadable


def test_another_platform_or_decision_version_is_no_verdict(log):
    elsewhere = replace(
        environment(), platform="Plan9 mips", spotline="9.9", decision_version=DECISION_VERSION + 1
    )
    manifest = replace(manifest_of(log), environment=elsewhere)

    report = verify(log, handlers_of(SETTINGS), manifest, here=environment())

    assert report.exit_code == UNREADABLE
    version, platform = report.environment
    assert platform.startswith("platform: Plan9 mips there, ")
    assert version.startswith(f"decision_version: {DECISION_VERSION + 1} there (Spotline 9.9), ")


def test_a_log_of_another_release_that_decides_alike_is_verified(log):
    manifest = replace(manifest_of(log), environment=replace(environment(), spotline="9.9"))

    report = verify(log, handlers_of(SETTINGS), manifest, here=environment())

    assert report.exit_code == SAME


def test_other_settings_lead_to_other_decisions(log):
    handlers = handlers_of({**SETTINGS, "selector": {"rehearsals": 0}})

    report = verify(log, handlers, manifest_of(log), here=environment())

    assert report.exit_code == DIVERGED


def test_differences_name_nested_fields():
    recorded = (Lot(offering_id="a", spot=1), Lot(offering_id="b", on_demand=2))
    recomputed = (Lot(offering_id="a", spot=1), Lot(offering_id="b", on_demand=3))

    assert field_differences(recorded, recomputed, "lots") == (
        "lots[1].on_demand: 2 recorded, 3 recomputed",
    )


# --- the command ------------------------------------------------------------------------------


def run_command(*arguments: str):
    app = typer.Typer()
    replay_command.register(app)
    return CliRunner().invoke(app, ["replay", "verify", *arguments])


def test_the_command_exits_0_on_the_same(log, tmp_path):
    write_log(tmp_path / "log", log)

    result = run_command(str(tmp_path / "log"))

    assert result.exit_code == 0, result.output
    assert "same" in result.output


def test_the_command_exits_1_and_names_the_entry(log, tmp_path):
    changed, seq = altered(log, SlotDecided, lambda e: replace(e, commands=9), nth=40)
    write_log(tmp_path / "log", changed)

    result = run_command(str(tmp_path / "log"))
    as_json = run_command(str(tmp_path / "log"), "--json", "--first")

    assert result.exit_code == 1
    assert f"seq {seq}" in result.output
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["divergences"][0]["seq"] == seq


def test_the_command_exits_2_on_a_gap_and_on_no_log(log, tmp_path):
    write_log(tmp_path / "log", log)
    entries = tmp_path / "log" / "entries.jsonl"
    lines = entries.read_text().splitlines(keepends=True)
    entries.write_text("".join([*lines[:50], *lines[51:]]))

    gap = run_command(str(tmp_path / "log"))
    none = run_command(str(tmp_path / "nothing"))

    assert gap.exit_code == 2
    assert "52" in gap.output
    assert none.exit_code == 2


def test_the_command_exits_2_on_another_version(log, tmp_path):
    manifest = replace(
        manifest_of(log), environment=replace(environment(), packages={"numpy": "1.0"})
    )
    write_log(tmp_path / "log", log, manifest)

    result = run_command(str(tmp_path / "log"))

    assert result.exit_code == 2
    assert "numpy: 1.0 there" in result.output


# --- the order of hashes ----------------------------------------------------------------------

_RECORD_AND_VERIFY = """
from tests.fakes.recorded_run import digest_of, small_run
print(digest_of(small_run()))
"""


@pytest.mark.timeout(300)
def test_decisions_do_not_depend_on_the_hash_seed(log):
    running = []
    # This process has a seed of its own, a random one.
    for seed in range(1, 2):
        environ = {
            **os.environ,
            "PYTHONHASHSEED": str(seed),
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        }
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", _RECORD_AND_VERIFY],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [digest_of(log)]
    for process in running:
        out, problems = process.communicate(timeout=280)
        assert process.returncode == 0, problems
        said.append(out.strip())

    assert len(set(said)) == 1
    assert said[0].startswith("0 ")


def in_place_of(log, place, event, source):
    """The log with an entry of somebody instead of the one there."""
    put = envelope(event, source=source, event_id="begun")
    there = log[place]
    changed = replace(there, subject=put.subject, headers=put.headers(), payload=put.payload)
    return [*log[:place], changed, *log[place + 1 :]]


@pytest.mark.parametrize(
    ("source", "incarnation", "excused"),
    [("store", 2, True), ("store", 1, False), ("selector", 2, False)],
)
def test_what_is_missing_is_excused_where_the_store_says_that_the_log_was_cut(
    log, source, incarnation, excused
):
    missing = places(log, ForecastIssued)[5]
    begun = IncarnationBegun(
        installation_id="0" * 32,
        incarnation=incarnation,
        last_seq_before=missing + 1,
        detail="cut",
    )

    report = verified(in_place_of(log, missing, begun, source), log, most=1000)

    of_forecasts = [one for one in report.divergences if one.handler == "forecaster"]
    assert (of_forecasts == []) == excused

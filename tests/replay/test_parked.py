"""Logs with parked entries: what the log says was parked is left out, whatever today's code could do."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.application.turn import Turns, context_of
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.parking import EntryParked
from spotline.replay.divergence import DIVERGED, SAME
from spotline.replay.report import learned_in
from spotline.replay.verify import verify
from tests.fakes.events import overdue, published
from tests.fakes.recorded_run import manifest_of
from tests.fakes.toy import ToyHandler

ROOT = Path(__file__).parents[2]
POISON = 13


class Fragile(ToyHandler):
    """Fails on one slot, behind what it has changed."""

    def evolve(self, state, event):
        super().evolve(state, event)
        if isinstance(event, ForecastOverdue) and event.slot == POISON:
            raise KeyError("nobody foresaw this")


def recorded(handler, slots=(1, 2, POISON, 4, 5)):
    """The log of a service: inputs first, then what followed, as after a restart behind them."""
    log = [
        StoredEntry(
            seq=seq,
            stored_ns=seq,
            subject=one.subject,
            headers=one.headers(),
            payload=one.payload,
        )
        for seq, one in enumerate(published(overdue(slot) for slot in slots), start=1)
    ]
    turns = Turns(handler)
    for entry in tuple(log):
        turn = turns.take(event_of(entry), context_of(entry, entry.envelope()))
        answers = [answer for call in turn.calls for answer in call.answers([_answer(call.call)])]
        for output in (*turn.outputs, *answers):
            one = output.envelope("toy")
            log.append(
                StoredEntry(
                    seq=len(log) + 1,
                    stored_ns=len(log) + 1,
                    subject=one.subject,
                    headers=one.headers(),
                    payload=one.payload,
                )
            )
    return log


def _answer(call):
    from tests.fakes.toy import answer

    return answer(call.request)


def verified(log, handler):
    return verify(log, [handler], manifest_of(log), here=environment())


def test_a_log_with_a_parked_entry_is_the_same_for_the_code_that_parked_it():
    log = recorded(Fragile())

    report = verified(log, Fragile())

    assert report.exit_code == SAME, [one.describe() for one in report.divergences]
    assert report.parked == 1
    assert report.now_taken == ()


def test_what_could_be_taken_now_is_left_out_and_told():
    log = recorded(Fragile())

    report = verified(log, ToyHandler())

    assert report.exit_code == SAME, [one.describe() for one in report.divergences]
    (taken,) = report.now_taken
    assert (taken.seq, taken.service, taken.kind) == (3, "toy", "forecast.overdue")
    assert f"spotline parked retry toy {taken.event_id}" in taken.describe()
    assert report.as_json()["parked_now_taken"][0]["seq"] == 3


def test_what_is_parked_now_and_was_taken_then_is_a_divergence():
    log = recorded(ToyHandler())

    report = verified(log, Fragile())

    assert report.exit_code == DIVERGED
    told = [one for one in report.divergences if one.recorded == "handled"]
    assert [(one.seq, one.kind) for one in told] == [(3, "forecast.overdue")]
    assert "parked: KeyError: 'nobody foresaw this'" in told[0].recomputed


def test_a_log_that_ends_before_the_reason_was_stored_is_the_same():
    log = recorded(Fragile(), slots=(1, 2, POISON))
    cut = [entry for entry in log if not isinstance(event_of(entry), EntryParked)]

    report = verified([replace(one, seq=seq) for seq, one in enumerate(cut, 1)], Fragile())

    assert report.exit_code == SAME
    assert report.open_inputs == 1


def test_a_reason_that_somebody_else_gave_parks_nothing():
    log = recorded(ToyHandler())
    said = EntryParked(
        service="other", seq=3, place=0, event_id="x", kind="y", error="z", error_type="E"
    )
    cause = log[2].envelope().event_id
    one = envelope_for(said, event_id="e", source="other", causation_id=cause, correlation_id=cause)
    log.append(
        StoredEntry(
            seq=len(log) + 1,
            stored_ns=0,
            subject=one.subject,
            headers=one.headers(),
            payload=one.payload,
        )
    )

    assert verified(log, ToyHandler()).exit_code == SAME


# --- a whole run ------------------------------------------------------------------------------

_RECORD_AND_VERIFY = """
import hashlib
from dataclasses import replace
from spotline.adapters.eventlog.manifest import environment
from spotline.contracts.build import event_of
from spotline.domain.events.parking import EntryParked
from spotline.replay.handlers import handlers_of
from spotline.replay.verify import verify
from tests.fakes.odd_run import poisoned_run
from tests.fakes.recorded_run import manifest_of

run = poisoned_run()
log = run.log
parked = sum(isinstance(event_of(entry), EntryParked) for entry in log)
payloads = hashlib.sha256(b"".join(entry.payload for entry in log)).hexdigest()
manifest = replace(manifest_of(log), settings=run.settings)
report = verify(log, handlers_of(run.settings), manifest, here=environment())
print(report.exit_code, parked, payloads, report.decisions_sha256)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_with_parked_entries_verifies_whatever_the_hash_seed():
    said = set()
    for seed in range(3):
        environ = {
            **os.environ,
            "PYTHONHASHSEED": str(seed),
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        }
        done = subprocess.run(
            [sys.executable, "-c", _RECORD_AND_VERIFY],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        said.add(done.stdout)

    (one,) = said
    exit_code, parked, *_ = one.split()
    assert exit_code == "0", one
    assert int(parked) > 5


def test_a_report_leaves_out_what_the_selector_parked(tmp_path):
    from spotline.adapters.eventlog.reader import EventLogReader
    from tests.fakes.odd_run import poisoned_run
    from tests.fakes.recorded_run import write_log

    run = poisoned_run()
    write_log(tmp_path / "log", run.log, replace(manifest_of(run.log), settings=run.settings))

    learned = learned_in(EventLogReader(tmp_path / "log"))

    assert learned is not None
    assert run.events(AllocationDecided)

"""Logs that v0.1.0 recorded verify on later releases, as long as these decide alike."""

import json

import pytest
from typer.testing import CliRunner

from spotline.adapters.eventlog import manifest
from spotline.adapters.eventlog.reader import EventLogReader
from spotline.cli.main import app
from spotline.contracts.build import event_of
from spotline.domain.decision_version import DECISION_VERSION
from spotline.domain.events.law import MarketLawLearned
from spotline.domain.market.law import law_id_of
from spotline.replay.divergence import SAME, UNREADABLE
from tests.samples.stored_runs import STORED, unpack


@pytest.fixture(scope="module", params=["demo-log", "up-log"])
def log(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("v0.1.0") / request.param
    unpack(STORED / f"{request.param}.tar.xz", folder)
    return folder


def verified(log):
    done = CliRunner().invoke(app, ["replay", "verify", str(log)])
    return done.exit_code, done.output


@pytest.mark.skipif(DECISION_VERSION != 1, reason="v0.1.0 decides by version 1")
def test_a_log_of_v0_1_0_verifies_on_the_next_release(log, monkeypatch):
    monkeypatch.setattr(manifest, "__version__", "0.2.0")
    assert EventLogReader(log).manifest.environment.spotline == "0.1.0"

    code, said = verified(log)

    assert (code, "same, sha256" in said) == (SAME, True), said


def test_the_laws_of_v0_1_0_keep_their_ids(log):
    learned = [
        event for event in map(event_of, EventLogReader(log)) if isinstance(event, MarketLawLearned)
    ]

    assert learned
    for event in learned:
        assert event.named.law_id == law_id_of(event.named.law)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "decision_version",
            DECISION_VERSION + 1,
            f"decision_version: {DECISION_VERSION + 1} there (Spotline 0.1.0), "
            f"{DECISION_VERSION} here (Spotline 0.2.0); "
            f"verify it with a release that decides by version {DECISION_VERSION + 1}",
        ),
        ("platform", "Plan9 mips", "platform: Plan9 mips there, "),
        ("packages", {"numpy": "1.0"}, "numpy: 1.0 there, "),
    ],
)
def test_a_log_that_was_decided_otherwise_is_no_verdict(
    log, tmp_path, monkeypatch, name, value, told
):
    monkeypatch.setattr(manifest, "__version__", "0.2.0")
    said_there = json.loads((log / "manifest.json").read_text(encoding="utf-8"))
    said_there["environment"][name] = value
    (tmp_path / "manifest.json").write_text(json.dumps(said_there), encoding="utf-8")
    (tmp_path / "entries.jsonl").write_bytes((log / "entries.jsonl").read_bytes())

    code, said = verified(tmp_path)

    assert code == UNREADABLE
    assert told in said

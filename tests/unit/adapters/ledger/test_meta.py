"""Whose a ledger is, and what it holds of what the log said of jobs."""

import pytest

from spotline.adapters.ledger.sql import SqlLedger
from spotline.contracts.errors import ConfigError
from spotline.domain.events.lifecycle import JobCancelled, JobClosed, JobSubmitted, JobUpdated
from spotline.domain.ledger.job_records import JobRecord
from tests.samples.events import SAMPLES

OWNER = "test"
OURS, THEIRS = "0" * 32, "1" * 32
SAID = [s for s in SAMPLES if isinstance(s, JobSubmitted | JobUpdated | JobCancelled | JobClosed)]


@pytest.fixture
def ledger(ledger_database):
    opened = SqlLedger(ledger_database, OWNER)
    yield opened
    opened.close()


def test_a_ledger_belongs_to_who_claims_it_first(ledger):
    assert (ledger.installation_id, ledger.incarnation) == ("", 1)
    ledger.claim(OURS, 1)
    ledger.claim(OURS, 2)

    with pytest.raises(ConfigError, match=f"belongs to installation {OURS}, the store to {THEIRS}"):
        ledger.claim(THEIRS, 3)

    assert (ledger.installation_id, ledger.incarnation) == (OURS, 2)


def test_what_the_log_said_is_held_once_and_in_order(ledger):
    records = [
        JobRecord(event_id=f"e{place}", correlation_id="c", job_id="j", event=event)
        for place, event in enumerate(SAID)
    ]
    ledger.note_jobs([*records, *records])
    ledger.note_jobs(records[1:])

    assert ledger.job_records() == records
    ledger.audit()

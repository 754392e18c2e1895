"""Submitted jobs in the ledger."""

from dataclasses import replace

import pytest

from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.ports import Admission
from tests.fakes.actuator import OWNER

FIRST = Admission(job_id="j", tenant="acme", digest="d1", slot=3, ts_ns=180)
SECOND = Admission(job_id="k", tenant="acme", digest="d2")


@pytest.fixture
def ledger(ledger_database):
    opened = SqlLedger(ledger_database, OWNER)
    yield opened
    opened.close()


def test_a_job_is_admitted_once_and_the_first_submission_stands(ledger):
    ledger.admit([FIRST])
    ledger.admit([replace(FIRST, digest="other"), SECOND, replace(SECOND, tenant="other")])

    assert ledger.admitted(["j", "k", "never"]) == {"j": FIRST, "k": SECOND}
    ledger.audit()


def test_admissions_outlive_the_process(ledger, ledger_database):
    ledger.admit([FIRST, SECOND])
    again = SqlLedger(ledger_database, OWNER)

    assert again.admitted(["k", "j"]) == {"j": FIRST, "k": SECOND}
    again.close()

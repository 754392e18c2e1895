"""The headers around a payload: CloudEvents as others read them, exact time, older forms."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ContractError
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import SlotOpened
from tests.samples.events import SAMPLES

AT_NS = 1_772_323_200_123_456_789


def envelope(**changes: object) -> Envelope:
    fields = {
        "event_id": "e1",
        "kind": "decision",
        "source": "selector",
        "subject": "spotline.v1.decision.a.b",
        "causation_id": "c",
        "correlation_id": "r",
        "index": 0,
        "ts_event_ns": AT_NS,
        "payload": b"",
        **changes,
    }
    return Envelope(**fields)


def sample_of(event_type):
    return next(event for event in SAMPLES if type(event) is event_type)


def read(headers: dict[str, str]) -> Envelope:
    return StoredEntry(seq=1, stored_ns=1, subject="s", headers=headers, payload=b"").envelope()


def test_the_time_is_rfc_3339_for_all_and_an_integer_for_the_exact():
    headers = envelope().headers()

    assert headers["ce-time"] == "2026-03-01T00:00:00.123456789Z"
    assert headers["ce-timens"] == str(AT_NS)
    assert datetime.fromisoformat(headers["ce-time"]).year == 2026


def test_what_has_no_time_in_the_market_states_none():
    headers = envelope(ts_event_ns=0).headers()

    assert "ce-time" not in headers
    assert "ce-timens" not in headers
    assert read(headers).ts_event_ns == 0


@given(st.integers(-(2**63), 2**63 - 1))
def test_the_time_survives_to_the_nanosecond_with_the_extension_and_without(at_ns):
    headers = envelope(ts_event_ns=at_ns).headers()

    assert read(headers).ts_event_ns == at_ns
    headers.pop("ce-timens", "")
    assert read(headers).ts_event_ns == at_ns


def test_headers_of_before_0_3_0_are_read():
    headers = envelope().headers() | {"ce-time": str(AT_NS)}
    del headers["ce-timens"]

    assert read(headers).ts_event_ns == AT_NS


@pytest.mark.parametrize(
    ("said", "decimals_ns"),
    [
        ("2026-03-01T00:00:00Z", 0),
        ("2026-03-01t01:00:00.5+01:00", 500_000_000),
    ],
)
def test_a_foreign_publisher_may_write_rfc_3339_its_own_way(said, decimals_ns):
    headers = envelope(ts_event_ns=0).headers() | {"ce-time": said}

    assert read(headers).ts_event_ns == 1_772_323_200_000_000_000 + decimals_ns


@pytest.mark.parametrize(
    "said", ["yesterday", "2026-03-01", "2026-03-01T00:00:00", "2026-13-01T00:00:00Z"]
)
def test_a_time_that_is_none_is_refused(said):
    with pytest.raises(ContractError, match="a header is malformed"):
        read(envelope(ts_event_ns=0).headers() | {"ce-time": said})


@pytest.mark.parametrize("event_type", [AllocationDecided, JobSubmitted])
def test_what_is_about_a_job_names_it(event_type):
    event = sample_of(event_type)
    made = envelope_for(event, event_id="e", source="s", causation_id="", correlation_id="")
    job_id = event.job.job_id if isinstance(event, JobSubmitted) else event.job_id

    assert made.headers()["ce-subject"] == job_id
    assert read(made.headers()).job_id == job_id


def test_what_is_about_no_job_names_none():
    made = envelope_for(
        sample_of(SlotOpened), event_id="e", source="s", causation_id="", correlation_id=""
    )

    assert "ce-subject" not in made.headers()

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import (
    EVENT_TYPES,
    KINDS,
    STREAM_SUBJECTS,
    dead_letter_subject,
    filter_of,
    on_subject,
    stream_name,
    subject_of,
    token,
)
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.lifecycle import JobCancelled
from spotline.domain.events.market import QuoteObserved, SlotOpened
from tests.samples.events import GOLDEN, QUOTE, SAMPLES


def matches(pattern, subject):
    """What a NATS server does with `>` at the end of a filter."""
    if pattern.endswith(".>"):
        return subject.startswith(pattern[:-1]) and len(subject) > len(pattern) - 1
    return subject == pattern


def test_an_instance_type_with_a_dot_is_one_token():
    assert subject_of(QuoteObserved(quote=QUOTE)) == (
        "spotline.v1.market.quote.aws_us-east-1_use1-az4_p4d_24xlarge"
    )


def test_a_decision_is_on_tenant_and_job():
    decided = next(event for event in SAMPLES if type(event) is AllocationDecided)

    assert subject_of(decided) == "spotline.v1.decision.team_vision.job-7"


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: KINDS[type(event)])
def test_the_subject_of_a_kind_never_changes(event):
    golden = json.loads((GOLDEN / f"{KINDS[type(event)]}.json").read_text())

    assert subject_of(event) == golden["subject"]


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: KINDS[type(event)])
def test_a_filter_matches_its_own_events_and_no_other(event):
    matching = [
        event_type for event_type in KINDS if matches(filter_of(event_type), subject_of(event))
    ]

    assert matching == [type(event)]
    assert matches(STREAM_SUBJECTS[0], subject_of(event))


def test_kinds_are_unique():
    assert len(EVENT_TYPES) == len(KINDS)


@given(st.text(min_size=1))
def test_any_name_becomes_a_valid_token(name):
    assert re.fullmatch(r"[a-z0-9_-]+", token(name))


@given(st.from_regex(r"[a-z0-9_-]+", fullmatch=True))
def test_a_valid_token_stays_as_it_is(name):
    assert token(name) == name


def test_an_empty_routing_field_is_refused():
    with pytest.raises(ContractError, match="must not be empty"):
        subject_of(JobCancelled(job_id="", tenant="a"))


def test_a_kind_is_not_found_on_a_longer_name():
    assert on_subject("cost", "spotline.v1.cost.a.b")
    assert not on_subject("cost", "spotline.v1.costs.a.b")
    assert filter_of(SlotOpened) == "spotline.v1.market.slot"


def test_streams_are_named_by_partition():
    assert stream_name() == "SPOTLINE_0"
    assert stream_name(3) == "SPOTLINE_3"


def test_a_dead_letter_subject_needs_a_service_name():
    assert dead_letter_subject("cloud_actuator") == "spotline.v1.deadletter.cloud_actuator"
    with pytest.raises(ContractError, match=r"\[a-z0-9_-\]\+"):
        dead_letter_subject("Cloud Actuator")

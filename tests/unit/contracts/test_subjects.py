import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.contracts.errors import ContractError
from spotline.contracts.publishers import PUBLISHERS, SERVICES
from spotline.contracts.subjects import (
    BATCH_KIND,
    EVENT_TYPES,
    KINDS,
    ONLY_IN_BATCHES,
    PREFIX,
    PRODUCERS,
    ROUTES,
    SINGLE_KINDS,
    StreamPart,
    batch_subject,
    dead_letter_subject,
    filter_of,
    on_subject,
    output_subject,
    own_filter_of,
    speaker_of,
    stream_name,
    stream_subjects,
    subject_of,
    subjects_with,
    token,
)
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.events.lifecycle import JobCancelled, JobClosed
from spotline.domain.events.market import QuoteObserved, SlotOpened
from tests.samples.events import GOLDEN, QUOTE, SAMPLES, source_of
from tests.unit.application.test_trace_edges import SPECS

BY_SOURCE = sorted(
    (event_type for event_type, route in ROUTES.items() if route.by_source), key=KINDS.get
)


def matches(pattern, subject):
    """What a NATS server does with `>` or `*` at the end of a filter."""
    if pattern.endswith(".*"):
        return bool(re.fullmatch(re.escape(pattern[:-1]) + r"[^.]+", subject))
    if pattern.endswith(".>"):
        return subject.startswith(pattern[:-1]) and len(subject) > len(pattern) - 1
    return subject == pattern


def test_an_instance_type_with_a_dot_is_one_token():
    assert subject_of(QuoteObserved(quote=QUOTE), "market_ingest") == (
        "spotline.v1.market.quote.aws_us-east-1_use1-az4_p4d_24xlarge"
    )


def test_a_decision_is_on_tenant_and_job():
    decided = next(event for event in SAMPLES if type(event) is AllocationDecided)

    assert subject_of(decided, "selector") == "spotline.v1.decision.team_vision.job-7"


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: KINDS[type(event)])
def test_the_subject_of_a_kind_never_changes(event):
    golden = json.loads((GOLDEN / f"{KINDS[type(event)]}.json").read_text())

    assert subject_of(event, source_of(event)) == golden["subject"]


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: KINDS[type(event)])
def test_a_filter_matches_its_own_events_and_no_other(event):
    matching = [
        event_type
        for event_type in KINDS
        if matches(filter_of(event_type), subject_of(event, source_of(event)))
    ]

    assert matching == [type(event)]
    assert streams_of(subject_of(event, source_of(event))) == [home(event)]


def streams_of(subject):
    """The streams that take what is published on a subject."""
    return [
        part for part in StreamPart if any(matches(one, subject) for one in stream_subjects(part))
    ]


def home(event):
    kind = KINDS[type(event)]
    if kind.startswith("stats."):
        return StreamPart.STATISTICS
    return StreamPart.DECISIONS if kind in ONLY_IN_BATCHES else StreamPart.LOG


def test_batches_and_dead_letters_are_part_of_the_log():
    assert streams_of(batch_subject("selector")) == [StreamPart.LOG]
    assert streams_of(dead_letter_subject("selector")) == [StreamPart.LOG]


def test_what_programs_write_is_kept_in_a_stream_of_its_own():
    subject = output_subject("Team.A", "job-1")

    assert subject == "spotline.v1.output.team_a.job-1"
    assert streams_of(subject) == [StreamPart.OUTPUT]
    assert stream_name(2, StreamPart.OUTPUT) == "SPOTLINE_2_OUTPUT"


def test_no_stream_takes_heartbeats():
    assert streams_of(f"{PREFIX}heartbeat.worker-1") == []
    assert streams_of(f"{PREFIX}heartbeat") == []


def test_decisions_are_published_beside_the_log():
    assert streams_of("spotline.v1.decision.team.job") == [StreamPart.DECISIONS]
    assert f"{PREFIX}{BATCH_KIND}.selector" in subjects_with([AllocationDecided])
    assert f"{PREFIX}decision.>" in subjects_with([AllocationDecided])


def test_whoever_consumes_an_event_follows_the_batches_of_those_who_make_it():
    assert subjects_with([SlotOpened]) == [
        "spotline.v1.market.slot",
        "spotline.v1.batch.operator",
    ]
    assert subjects_with([SlotOpened, CostAccrued, JobClosed]) == [
        "spotline.v1.market.slot",
        "spotline.v1.cost.>",
        "spotline.v1.job.closed.>",
        "spotline.v1.batch.cloud_actuator",
        "spotline.v1.batch.operator",
        "spotline.v1.batch.selector",
    ]


def test_an_event_that_no_service_is_listed_with_is_looked_for_in_all_batches(monkeypatch):
    monkeypatch.setattr("spotline.contracts.subjects.PRODUCERS", {"selector": (JobClosed,)})
    assert subjects_with([CostAccrued])[1:] == ["spotline.v1.batch.*"]


def test_no_service_follows_a_subject_twice():
    for spec in SPECS:
        subjects = subjects_with(spec.consumes, spec.service)
        assert len(subjects) == len(set(subjects)), spec.service
        assert len(spec.consumes) == len(set(spec.consumes)), spec.service


def test_every_service_is_listed_with_what_its_batches_may_hold():
    for spec in SPECS:
        listed = {KINDS[event_type] for event_type in PRODUCERS.get(spec.service, ())}
        produced = {KINDS[event_type] for event_type in spec.produces}
        assert listed == produced - SINGLE_KINDS, spec.service


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
        subject_of(JobCancelled(job_id="", tenant="a"), "allocator")


def test_a_kind_is_not_found_on_a_longer_name():
    assert on_subject("cost", "spotline.v1.cost.a.b")
    assert not on_subject("cost", "spotline.v1.costs.a.b")
    assert filter_of(SlotOpened) == "spotline.v1.market.slot"


def test_streams_are_named_by_partition():
    assert stream_name() == "SPOTLINE_0"
    assert stream_name(3) == "SPOTLINE_3"
    assert stream_name(3, StreamPart.DECISIONS) == "SPOTLINE_3_DECISIONS"
    assert stream_name(0, StreamPart.STATISTICS) == "SPOTLINE_0_STATISTICS"


def test_a_dead_letter_subject_needs_a_service_name():
    assert dead_letter_subject("cloud_actuator") == "spotline.v1.deadletter.cloud_actuator"
    with pytest.raises(ContractError, match=r"\[a-z0-9_-\]\+"):
        dead_letter_subject("Cloud Actuator")


@pytest.mark.parametrize("event_type", BY_SOURCE, ids=KINDS.get)
def test_what_several_services_say_each_says_on_a_subject_of_its_own(event_type):
    event = next(event for event in SAMPLES if type(event) is event_type)
    kind = KINDS[event_type]
    subjects = {source: subject_of(event, source) for source in PUBLISHERS[kind]}

    assert len(set(subjects.values())) == len(subjects) > 1
    for source, subject in subjects.items():
        assert speaker_of(kind, subject) == token(source)
        may = [name for name in SERVICES if own_filter_of(event_type, name) == subject]
        assert may == [source]


@pytest.mark.parametrize("event_type", BY_SOURCE, ids=KINDS.get)
def test_what_a_release_before_wrote_is_followed_still(event_type):
    former = f"spotline.v1.{KINDS[event_type]}"

    assert former in subjects_with([event_type])
    assert former in stream_subjects()
    assert speaker_of(KINDS[event_type], former) is None


def test_every_kind_that_several_may_say_names_who_says_it():
    several = {
        EVENT_TYPES[kind]
        for kind, may in PUBLISHERS.items()
        if len(may) > 1 and kind in SINGLE_KINDS
    }

    assert several == set(BY_SOURCE)

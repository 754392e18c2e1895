"""Who may publish what, and what tells that nobody who may has."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from spotline.application.allocator.handler import SPEC as ALLOCATOR
from spotline.application.analytics.handler import SPEC as ANALYTICS
from spotline.application.cloud_actuator.handler import SPEC as CLOUD_ACTUATOR
from spotline.application.configurator.handler import SPEC as CONFIGURATOR
from spotline.application.forecaster.handler import SPEC as FORECASTER
from spotline.application.market_ingest.handler import SPEC as MARKET_INGEST
from spotline.application.placer.handler import SPEC as PLACER
from spotline.application.read_model.handler import SPEC as READ_MODEL
from spotline.application.selector.handler import SPEC as SELECTOR
from spotline.contracts.batch import packed_for, unpacked
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.envelope import StoredEntry, derive_id
from spotline.contracts.publishers import CAUSED, PUBLISHERS, SERVICES, STORE, why_forged
from spotline.contracts.subjects import EVENT_TYPES, KINDS
from spotline.domain.events.parking import EntryParked
from tests.samples.events import SAMPLES

SPECS = (
    *(ALLOCATOR, ANALYTICS, CLOUD_ACTUATOR, CONFIGURATOR, FORECASTER),
    *(MARKET_INGEST, PLACER, READ_MODEL, SELECTOR),
)
BY_KIND = {KINDS[type(sample)]: sample for sample in SAMPLES}


def sent(kind, *, source=None, cause="cause", index=0, event_id=None):
    event = BY_KIND[kind]
    if kind == KINDS[EntryParked]:
        event = replace(event, service=source or "selector")
    source = source if source is not None else min(PUBLISHERS[kind])
    if kind == KINDS[EntryParked]:
        source = event.service
    derived = derive_id(cause, kind, index)
    return event, envelope_for(
        event,
        event_id=derived if event_id is None else event_id,
        source=source,
        causation_id=cause,
        correlation_id="",
        index=index,
    )


def test_the_table_says_what_the_services_themselves_say_that_they_publish():
    said = {kind: {STORE} if kind == "log.incarnation" else set() for kind in EVENT_TYPES}
    for spec in SPECS:
        for event_type in spec.produces:
            said[KINDS[event_type]].add(spec.service)

    assert {kind: set(services) for kind, services in PUBLISHERS.items()} == said


def test_the_table_says_what_the_edges_of_traces_say():
    rows = yaml.safe_load((Path(__file__).parents[3] / "docs" / "trace-edges.yaml").read_text())[
        "messages"
    ]

    for row in rows:
        assert row["from"] in PUBLISHERS[row["kind"]], row


def test_every_service_that_publishes_is_listed():
    assert set().union(*PUBLISHERS.values()) - {STORE} == SERVICES


def test_what_is_decided_only_is_decided_by_all_who_publish_it():
    for kind in CAUSED:
        for spec in SPECS:
            if EVENT_TYPES[kind] in spec.produces:
                assert EVENT_TYPES[kind] in spec.decides, (kind, spec.service)


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_the_right_source_is_believed(kind):
    assert why_forged(*sent(kind)) is None


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_no_other_source_is(kind):
    event, envelope = sent(kind)
    for source in {*SERVICES, STORE, "stranger", ""} - PUBLISHERS[kind]:
        found = why_forged(event, replace(envelope, source=source))
        assert found is not None
        assert found[0] == "ce-source"
        assert found[2] == repr(source)


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_no_event_is_believed_in_the_batch_of_another(kind):
    event, envelope = sent(kind)
    other = min(SERVICES - {envelope.source})
    batch = packed_for(other, envelope)
    entry = StoredEntry(
        seq=1, stored_ns=1, subject=batch.subject, headers=batch.headers(), payload=batch.payload
    )
    (carried,) = unpacked(entry)

    found = why_forged(event, carried.envelope())

    assert found is not None
    assert found[:2] == ("ce-source", f"{other}, in whose batch it came")


@pytest.mark.parametrize("kind", sorted(CAUSED))
def test_what_is_decided_must_follow_from_an_entry(kind):
    assert why_forged(*sent(kind, cause="", event_id="e"))[0] == "ce-causationid"
    assert why_forged(*sent(kind, event_id="another"))[0] == "ce-id"
    event, envelope = sent(kind)
    assert why_forged(event, replace(envelope, index=envelope.index + 1))[0] == "ce-id"


def test_a_service_says_only_what_it_has_parked_itself():
    event, envelope = sent(KINDS[EntryParked], source="selector")

    assert why_forged(replace(event, service="allocator"), envelope)[0] == "service"


@pytest.mark.parametrize("kind", ["parked.entry", "buying.frozen", "buying.unfrozen"])
def test_a_service_is_not_believed_on_the_subject_of_another(kind):
    event, envelope = sent(kind, source="allocator")
    assert why_forged(event, envelope) is None
    on_other = replace(envelope, subject=f"spotline.v1.{kind}.selector")

    assert why_forged(event, on_other) == (
        "ce-source",
        "selector, on whose subject it stands",
        "'allocator'",
    )


@pytest.mark.parametrize("kind", ["parked.entry", "buying.frozen", "buying.unfrozen"])
def test_what_a_release_before_wrote_without_its_service_in_the_subject_is_believed(kind):
    event, envelope = sent(kind)

    assert why_forged(event, replace(envelope, subject=f"spotline.v1.{kind}")) is None


def test_a_service_that_the_table_does_not_know_believes_itself():
    event, envelope = sent("forecast.overdue")
    ours = replace(envelope, source="toy")

    assert why_forged(event, ours) is not None
    assert why_forged(event, ours, "toy") is None
    assert why_forged(event, ours, "other") is not None


def test_an_event_that_is_told_again_under_another_id_is_not_the_same_object():
    """A slot's opening is billed once: it is known by itself, not by its like."""
    _, envelope = sent("forecast.overdue")
    once, again, other = (
        event_of(
            StoredEntry(
                seq=seq,
                stored_ns=1,
                subject=envelope.subject,
                headers=replace(envelope, event_id=event_id).headers(),
                payload=envelope.payload,
            )
        )
        for seq, event_id in ((1, "a"), (1, "a"), (2, "b"))
    )

    assert once is again
    assert once == other
    assert once is not other

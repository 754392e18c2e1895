"""Any decodable entry, any field, any service, in the middle of a run: nobody stops.

Whatever comes, no exception leaves a turn; a service that parks it is as before; and the market, the
jobs and the readers go on to the end.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from enum import Enum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.contracts.codec import decode, encode
from spotline.contracts.errors import ContractError, InvariantViolation
from spotline.contracts.subjects import KINDS, subject_of
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.parking import EntryParked
from spotline.replay.jobs import generated_jobs
from tests.depth import examples
from tests.fakes.odd_run import OddRun, watch
from tests.fakes.recorded_run import small_market
from tests.samples.events import SAMPLES
from tests.samples.strategies import values

MARKET = small_market(slots=16)
JOBS = generated_jobs(MARKET, 3, 5)
EDGES = (-(2**63), -1, 0, 1, 2, 5, 11, 12, 1000, 10**7, 2**63 - 1)
NAMES = ("", "x", "nobody", JOBS[0].job_id, JOBS[1].job_id, MARKET.offerings[0].offering_id)


def clean():
    run = OddRun(MARKET, JOBS)
    run.begin()
    run.to_the_end()
    return run


CLEAN = clean()
REAL = [*CLEAN.events(object), *SAMPLES]
KINDS_OF_EVENT = sorted(KINDS, key=lambda kind: kind.__name__)


def decodable(event):
    """The event as a service would read it off the log, None where no service could."""
    try:
        subject_of(event, "somebody")
        return decode(KINDS[type(event)], encode(event))
    except (ContractError, InvariantViolation):
        return None


@st.composite
def altered(draw):
    """A real event of some kind with some of its fields, however deep, set to other values."""
    kind = draw(st.sampled_from(KINDS_OF_EVENT))
    event = draw(st.sampled_from([one for one in REAL if type(one) is kind] or list(SAMPLES)))
    slot = draw(st.integers(0, 11))
    try:
        if hasattr(event, "slot") and draw(st.booleans()):
            event = replace(event, slot=slot)
        for _ in range(draw(st.integers(0, 2))):
            event = _changed(draw, event)
    except ValueError:  # its constructor refuses that
        return None
    return slot, decodable(event)


def _changed(draw, value):
    if is_dataclass(value) and not isinstance(value, type):
        if not fields(value):
            return value
        name = draw(st.sampled_from([member.name for member in fields(value)]))
        return replace(value, **{name: _changed(draw, getattr(value, name))})
    if isinstance(value, tuple):
        if not value or draw(st.booleans()):
            return draw(st.sampled_from([(), value[:1], value + value[:1]]))
        place = draw(st.integers(0, len(value) - 1))
        return (*value[:place], _changed(draw, value[place]), *value[place + 1 :])
    if isinstance(value, Enum):
        return draw(st.sampled_from(list(type(value))))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw(st.sampled_from([*EDGES, value - 1, value + 1, value * 1000]))
    if isinstance(value, float):
        return draw(st.sampled_from([0.0, -1.0, 1e300, value * 1000]))
    return draw(st.sampled_from(NAMES)) if isinstance(value, str) else value


@st.composite
def drawn(draw):
    """An event of some kind, every field drawn."""
    event = draw(values(draw(st.sampled_from(KINDS_OF_EVENT))))
    return draw(st.integers(0, 11)), decodable(event)


def assert_goes_on(odd):
    by_slot = {}
    for slot, event in filter(None, odd):
        # A log that begins anew goes on behind the slots that were lost: that is to be so.
        if event is not None and not isinstance(event, IncarnationBegun):
            by_slot.setdefault(slot, []).append(event)
    run = OddRun(MARKET, JOBS)
    changed = watch(run, *{type(event) for events in by_slot.values() for event in events})

    run.begin()
    run.to_the_end(by_slot)

    assert changed == []
    assert run.state_of("market_ingest").slot == MARKET.slots - 1
    over = {event.job_id for event in run.events(JobClosed)}
    told_over = {e.job_id for events in by_slot.values() for e in events if type(e) is JobClosed}
    assert over | told_over >= set(CLEAN.outcomes())
    assert run.state_of("allocator").applied > 0
    told_parked = [e for events in by_slot.values() for e in events if type(e) is EntryParked]
    for parked in run.parked():
        if parked in told_parked:
            # It was put in, not parked by a service.
            continue
        assert parked.error.isprintable()
        assert parked.error


@settings(
    max_examples=examples(10),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
@given(st.lists(altered(), min_size=4, max_size=12))
def test_a_run_goes_on_whatever_becomes_of_real_entries(odd):
    assert_goes_on(odd)


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
@given(st.lists(drawn(), min_size=4, max_size=12))
def test_a_run_goes_on_whatever_is_drawn(odd):
    assert_goes_on(odd)


@pytest.mark.parametrize("kind", KINDS_OF_EVENT, ids=lambda kind: kind.__name__)
def test_a_service_that_fails_on_a_kind_of_event_is_as_before(kind):
    """The oracle: a fold that changes the state and fails is put back, wherever that is."""
    event = next(decodable(one) for one in SAMPLES if type(one) is kind)
    run = OddRun(MARKET, JOBS)
    run.begin()
    for turns in run.host.hosted:
        if turns.consumes(event) and turns.service != "cloud_actuator":
            _fails_on(turns, event)
    changed = watch(run, kind)

    run.host.publish(event, source="somebody")

    failed = {parked.service for parked in run.parked() if parked.kind == KINDS[kind]}
    consumers = {
        turns.service
        for turns in run.host.hosted
        if turns.consumes(event) and turns.service != "cloud_actuator"
    }
    if kind is not EntryParked:
        assert consumers <= failed
    assert changed == []


def _fails_on(turns, event):
    handler = turns._handler
    evolve = handler.evolve

    def failing(state, one):
        evolve(state, one)
        if one == event:
            raise KeyError("planted")

    handler.evolve = failing

"""Events made up from their types."""

import random

import pytest

from spotline.bench.faults.forging import Unforgeable, altered, forged
from spotline.contracts.build import envelope_for
from spotline.contracts.codec import decode
from spotline.contracts.subjects import EVENT_TYPES
from tests.samples.events import SAMPLES

NAMES = {"job_id": "j", "tenant": "t"}
# Their numbers must fit each other: the log has them, and what it has is altered.
FROM_THE_LOG = {"forecast.issued", "law.learned", "table.requested"}


@pytest.mark.parametrize("kind", sorted(EVENT_TYPES))
def test_any_kind_can_be_made_and_travels(kind):
    try:
        event = forged(EVENT_TYPES[kind], NAMES)
    except Unforgeable:
        assert kind in FROM_THE_LOG
        return
    assert kind not in FROM_THE_LOG

    envelope = envelope_for(event, event_id="e", source="s", causation_id="", correlation_id="")

    assert decode(kind, envelope.payload) == event


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_what_there_is_is_altered_by_a_field(sample):
    made = altered(sample, NAMES, random.Random(1))

    assert type(made) is type(sample)
    assert made == altered(sample, NAMES, random.Random(1))

import pytest

from spotline.application.forecaster.handler import SPEC, ForecastHandler, ForecastStateCodec
from spotline.application.spec import NOTHING, Context
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import MarketOpened
from spotline.domain.forecasting.persistence import PersistenceForecaster
from spotline.domain.forecasting.registry import forecaster_factory, forecaster_names
from tests.fakes.market_slots import START_NS, series, slot_opened

CTX = Context(seq=1, now_ns=START_NS, event_id="e", correlation_id="c")
OPENED = MarketOpened(offerings=(), slot_s=1800, first_slot_start_ns=START_NS, source="test")

pytestmark = pytest.mark.parametrize("name", forecaster_names())


def run(handler, state, slots):
    said = []
    for opened in slots:
        handler.evolve(state, opened)
        outcome = handler.decide(state, opened, CTX)
        for event in outcome.events:
            handler.evolve(state, event)
        said += outcome.events
    return said


def test_every_slot_gets_one_forecast_of_its_own(name):
    handler = ForecastHandler(forecaster_factory(name), horizon_slots=4)

    said = run(handler, handler.initial(), series([16, 0, 16]))

    issued = [e for e in said if isinstance(e, ForecastIssued)]
    assert [e.slot for e in issued] == [0, 1, 2]
    assert all(len(f.steps) == 4 for e in issued for f in e.forecasts)
    assert {type(e) for e in said} <= set(SPEC.decides)
    assert issued[2].scores
    assert issued[2].model_id.startswith(name)


def test_deciding_changes_nothing(name):
    handler = ForecastHandler(forecaster_factory(name))
    state = handler.initial()
    opened = slot_opened(0, {"a": 16})
    handler.evolve(state, opened)
    before = state.forecaster.dump()

    assert handler.decide(state, opened, CTX) == handler.decide(state, opened, CTX)
    assert state.forecaster.dump() == before


def test_other_and_past_events_say_nothing(name):
    handler = ForecastHandler(forecaster_factory(name))
    state = handler.initial()
    handler.evolve(state, OPENED)
    run(handler, state, [slot_opened(5, {"a": 16})])

    late = slot_opened(4, {"a": 16})
    handler.evolve(state, late)

    assert handler.decide(state, late, CTX) == NOTHING
    assert handler.decide(state, OPENED, CTX) == NOTHING
    assert list(handler.due(state)) == []


def test_snapshot_continues_identically(name):
    handler = ForecastHandler(forecaster_factory(name), horizon_slots=4)
    codec = ForecastStateCodec(forecaster_factory(name), horizon_slots=4)
    slots = series([16, 0, 16, 16, 0, 0, 16, 3])
    state = handler.initial()
    run(handler, state, slots[:5])

    restored = codec.load(codec.dump(state))

    assert run(handler, restored, slots[5:]) == run(handler, state, slots[5:])


def test_fresh_state_survives_a_snapshot(name):
    handler = ForecastHandler(forecaster_factory(name))
    codec = ForecastStateCodec(forecaster_factory(name))

    assert codec.load(codec.dump(handler.initial())).slot == -1


def test_snapshot_of_another_horizon_is_refused_and_has_another_version(name):
    factory = forecaster_factory(name)
    short, long = (ForecastStateCodec(factory, horizon_slots=h) for h in (3, 6))
    dumped = short.dump(ForecastHandler(factory, horizon_slots=3).initial())

    assert short.version != long.version
    with pytest.raises(ValueError, match="horizon 6, was of 3"):
        long.load(dumped)


def test_bytes_without_a_slot_are_refused(name):
    with pytest.raises(ValueError, match="start with its slot"):
        ForecastStateCodec(forecaster_factory(name)).load(b"nonsense")


def test_horizon_must_be_positive(name):
    with pytest.raises(ValueError, match="horizon_slots"):
        ForecastHandler(PersistenceForecaster, horizon_slots=0)

"""What every registered forecaster promises."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.domain.forecasting.registry import (
    DEFAULT_FORECASTER,
    forecaster_factory,
    forecaster_names,
    make_forecaster,
)
from spotline.domain.units import PPM
from tests.depth import examples
from tests.fakes.hash_seeds import said_under
from tests.fakes.market_slots import series, slot_opened

HORIZON = 5

pytestmark = pytest.mark.parametrize("name", forecaster_names())


def wild_slots(seed: int, slots: int = 60):
    """Offerings come and go, counts are unknown now and then, slots are left out, prices jump."""
    rng = random.Random(seed)
    counts = {"a": 16, "b": 0, "c": 7}
    prices = {"a": 900_000, "b": 1_000_000, "c": 1}
    opened = []
    for slot in range(slots):
        for i in counts:
            if rng.random() < 0.2:
                counts[i] = rng.choice((0, 16, rng.randint(0, 300)))
            if rng.random() < 0.2:
                prices[i] = max(1, int(prices[i] * rng.uniform(0.2, 3)))
        if rng.random() < 0.1:
            continue
        quoted = [i for i in counts if rng.random() < 0.9]
        opened.append(
            slot_opened(
                slot, {i: counts[i] if rng.random() < 0.9 else None for i in quoted}, prices
            )
        )
    return opened


def assert_sound(forecasts, opened, horizon=HORIZON):
    assert [f.offering_id for f in forecasts] == sorted(q.quote.offering_id for q in opened.quotes)
    for forecast in forecasts:
        assert len(forecast.steps) == horizon
        for step in forecast.steps:
            counts = [c.instances for c in step.counts]
            assert counts == sorted(set(counts))
            assert sum(c.probability_ppm for c in step.counts) == PPM
            assert isinstance(step.spot_price_micro_usd, int)


def test_default_is_registered(name):
    assert DEFAULT_FORECASTER in forecaster_names()


def test_unknown_name_is_refused(name):
    with pytest.raises(ValueError, match=f"one of .*{name}"):
        make_forecaster(f"no-{name}")


@pytest.mark.parametrize("horizon", [0, -1])
def test_horizon_must_be_positive(name, horizon):
    with pytest.raises(ValueError, match="horizon_slots"):
        make_forecaster(name, horizon)


def test_nothing_learnt_forecasts_nothing(name):
    forecaster = make_forecaster(name, HORIZON)

    assert forecaster.forecast(HORIZON) == ()
    assert forecaster.scores() == ()


@settings(max_examples=examples(18), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6))
def test_forecasts_are_sound_on_wild_markets(name, seed):
    forecaster = make_forecaster(name, HORIZON)

    for opened in wild_slots(seed):
        forecaster.learn(opened)

        assert_sound(forecaster.forecast(HORIZON), opened)


def test_shorter_horizon_is_a_prefix(name):
    forecaster = make_forecaster(name, HORIZON)
    for opened in wild_slots(1):
        forecaster.learn(opened)

    for short, full in zip(forecaster.forecast(2), forecaster.forecast(HORIZON), strict=True):
        assert short.steps == full.steps[:2]
    with pytest.raises(ValueError, match=r"1\.\.5, was 6"):
        forecaster.forecast(HORIZON + 1)


def test_learning_leaves_the_slot_alone(name):
    forecaster = make_forecaster(name, HORIZON)

    for opened in wild_slots(2):
        before = copy.deepcopy(opened)
        forecaster.learn(opened)
        assert opened == before


def test_forecasting_changes_nothing(name):
    asked, silent = make_forecaster(name, HORIZON), make_forecaster(name, HORIZON)

    for opened in wild_slots(3):
        asked.learn(opened)
        silent.learn(opened)
        assert asked.forecast(3) == asked.forecast(3)
        assert asked.scores() == asked.scores()

    assert asked.dump() == silent.dump()


def test_slot_learnt_twice_counts_once(name):
    once, twice = make_forecaster(name, HORIZON), make_forecaster(name, HORIZON)

    for opened in wild_slots(4):
        once.learn(opened)
        twice.learn(opened)
        twice.learn(opened)

    assert twice.dump() == once.dump()


def test_slot_from_the_past_teaches_nothing(name):
    forecaster = make_forecaster(name, HORIZON)
    for opened in series([16, 16, 16]):
        forecaster.learn(opened)
    before = forecaster.forecast(HORIZON)

    forecaster.learn(slot_opened(1, {"a": 0}))

    assert forecaster.forecast(HORIZON) == before


def test_gap_longer_than_the_horizon_is_survived(name):
    forecaster = make_forecaster(name, HORIZON)
    for slot in [*range(30), *range(1_000, 1_030)]:
        opened = slot_opened(slot, {"a": 16 if slot % 7 else 0})
        forecaster.learn(opened)

        assert_sound(forecaster.forecast(HORIZON), opened)


def test_offering_that_left_is_no_longer_forecast(name):
    forecaster = make_forecaster(name, HORIZON)
    forecaster.learn(slot_opened(0, {"a": 4, "b": 4}))

    forecaster.learn(slot_opened(1, {"b": 4}))

    assert [f.offering_id for f in forecaster.forecast(HORIZON)] == ["b"]


@pytest.mark.parametrize(("known", "expected"), [((8, None), 8), ((None, None), 0)])
def test_unknown_count_is_forecast_as_the_last_known(name, known, expected):
    forecaster = make_forecaster(name, HORIZON)
    for opened in series(known):
        forecaster.learn(opened)

    (forecast,) = forecaster.forecast(HORIZON)

    for step in forecast.steps:
        assert [(c.instances, c.probability_ppm) for c in step.counts] == [(expected, PPM)]


@pytest.mark.parametrize("count", [0, 16])
def test_constant_series_is_forecast_as_constant(name, count):
    forecaster = make_forecaster(name, HORIZON)
    for opened in series([count] * 200):
        forecaster.learn(opened)

    (forecast,) = forecaster.forecast(HORIZON)

    for step in forecast.steps:
        assert step.spot_price_micro_usd == 1_000_000
        likeliest = max(step.counts, key=lambda c: c.probability_ppm)
        assert likeliest.instances == count
        assert likeliest.probability_ppm > 0.97 * PPM


def test_restored_forecaster_continues_identically(name):
    slots = wild_slots(5)
    forecaster = make_forecaster(name, HORIZON)
    for opened in slots[:30]:
        forecaster.learn(opened)

    restored = forecaster_factory(name).load(forecaster.dump())

    assert restored.horizon_slots == HORIZON
    assert restored.dump() == forecaster.dump()
    assert restored.forecast(HORIZON) == forecaster.forecast(HORIZON)
    for opened in slots[30:]:
        forecaster.learn(opened)
        restored.learn(opened)
        assert restored.forecast(HORIZON) == forecaster.forecast(HORIZON)
        assert restored.scores() == forecaster.scores()


def test_state_of_other_versions_is_refused(name):
    dumped = make_forecaster(name, HORIZON).dump()
    foreign = dumped.replace(b'"format": "', b'"format": "9')

    with pytest.raises(ValueError, match=r"was written by .*format"):
        forecaster_factory(name).load(foreign)


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"spotline-forecaster\n{"])
def test_other_bytes_are_refused(name, damage):
    with pytest.raises(ValueError, match="forecaster's state"):
        forecaster_factory(name).load(damage)


def test_truncated_state_is_refused(name):
    dumped = make_forecaster(name, HORIZON).dump()

    with pytest.raises(ValueError, match="damaged"):
        forecaster_factory(name).load(dumped[:-1])


def test_state_of_another_forecaster_is_refused(name):
    others = [other for other in forecaster_names() if other != name]

    for other in others:
        with pytest.raises(ValueError, match=f"must be of forecaster {name}"):
            forecaster_factory(name).load(make_forecaster(other, HORIZON).dump())


DIGEST_PROGRAM = """
import json
from tests.contract.test_forecaster_contract import digest
from spotline.domain.forecasting.registry import forecaster_names
print(json.dumps({name: digest(name) for name in forecaster_names()}))
"""


@functools.cache
def digests_under(hash_seed: str) -> dict[str, str]:
    """Let another process hash what every forecaster says: starting one costs more than that."""
    return json.loads(said_under(hash_seed, DIGEST_PROGRAM))


def digest(name: str) -> str:
    """Hash everything a forecaster says over a wild market, and its state."""
    forecaster = make_forecaster(name, HORIZON)
    said = hashlib.sha256()
    for opened in wild_slots(6):
        forecaster.learn(opened)
        said.update(repr((forecaster.forecast(HORIZON), forecaster.scores())).encode())
    said.update(forecaster.dump())
    return said.hexdigest()


@pytest.mark.timeout(600)
def test_hash_seed_changes_nothing(name):
    # This process has a seed of its own, a random one.
    assert digests_under("1")[name] == digest(name)

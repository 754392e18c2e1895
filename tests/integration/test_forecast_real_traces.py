"""The default forecaster on published traces, learnt on the first half, scored on the second."""

import functools
import os
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from spotline.adapters.market.importing import import_market
from spotline.adapters.market.options import ImportOptions
from spotline.adapters.market.parse import time_ns
from spotline.bench.forecast.evaluation import evaluate
from spotline.bench.forecast.families import load_families
from spotline.bench.forecast.measure import measure
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER, make_forecaster
from spotline.domain.forecasting.trust import ForecastTrust
from tests.fakes.market_slots import slots_of

DATA = Path(
    os.environ.get("SPOTLINE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")
)
TRACES = DATA / "spot-traces-skypilot"
AWS = DATA / "spot-price-aws-gpu-2020" / "aws_spot_price_2019-12-20_2020-03-23.csv.gz"
HORIZON = 12

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not TRACES.is_dir(), reason=f"real data absent: no folder {TRACES}; set SPOTLINE_DATA"
    ),
]


def slots(folder: str, slot_s: int):
    files = sorted((TRACES / folder).glob("*.json"))
    options = ImportOptions(
        price=AWS, start_ns=time_ns("2023-08-27T00:00:00Z", "test"), slot_s=slot_s
    )
    return slots_of(import_market("skypilot", files, options))


@functools.cache
def issued(folder: str, slot_s: int) -> tuple[tuple[SlotOpened, ForecastIssued], ...]:
    """What the default forecaster says in every slot of a trace, as the service would ask it."""
    forecaster = make_forecaster(horizon_slots=HORIZON)
    said = []
    for opened in slots(folder, slot_s):
        forecaster.learn(opened)
        forecast = ForecastIssued(
            slot=opened.slot,
            model_id=forecaster.model_id,
            forecasts=forecaster.forecast(HORIZON),
            scores=forecaster.scores(),
        )
        said.append((opened, forecast))
    return tuple(said)


class Recorded:
    """A forecaster that says again what was issued."""

    horizon_slots = HORIZON

    def __init__(self, said: tuple[tuple[SlotOpened, ForecastIssued], ...]) -> None:
        self._said = {opened.slot: forecast for opened, forecast in said}
        self._slot = -1

    def learn(self, opened: SlotOpened) -> None:
        self._slot = opened.slot

    def forecast(self, horizon_slots: int):
        assert horizon_slots == HORIZON
        return self._said[self._slot].forecasts


@pytest.mark.parametrize("slot_s", [pytest.param(300, marks=pytest.mark.slow), 1800])
def test_gangs_are_forecast_no_worse_than_by_persistence_at_every_step(slot_s):
    said = issued("availability/16-node/aws-08-27-2023", slot_s)
    opened = [opened for opened, _ in said]

    result = evaluate(Recorded(said), opened, first_scored_slot=len(opened) // 2)

    assert [e.step for e in result] == [*range(1, HORIZON + 1)] * 2
    for each in result:
        assert each.crps_instances <= each.persistence_crps_instances, each
        assert each.price_error <= each.persistence_price_error, each


@pytest.mark.parametrize(
    "name",
    [
        *("16-node", "4-node"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("nine-zones", "neocloud")),
    ],
)
def test_default_is_no_worse_than_persistence_at_every_step_of_every_family(name):
    (family,) = load_families(DATA, only=(name,))
    # Nine zones over 45 days take half a minute; two weeks of them show as much.
    most_slots = 700 if name == "nine-zones" else 2_000
    markets = tuple(m.between(0, min(m.slots, most_slots)) for m in family.markets)

    bench = measure([replace(family, markets=markets)], forecasters=(DEFAULT_FORECASTER,))

    steps = bench.families[0].forecasters[DEFAULT_FORECASTER].steps
    assert len(steps) == HORIZON
    for step in steps:
        assert step.vs_persistence < 1.0
        assert step.price_vs_persistence <= 1.0
        assert 0.8 < step.coverage_90 < 0.97


@pytest.mark.parametrize("slot_s", [pytest.param(300, marks=pytest.mark.slow), 1800])
def test_learning_and_forecasting_a_slot_takes_milliseconds(slot_s):
    opened = slots("availability/16-node/aws-08-27-2023", slot_s)[:150]
    forecaster = make_forecaster()
    took_s = []
    for each in opened:
        started_s = time.process_time()
        forecaster.learn(each)
        forecaster.forecast(HORIZON)
        forecaster.scores()
        took_s.append(time.process_time() - started_s)

    # Not the mean: the first slot may compile, and other threads of the process count too.
    assert median(took_s) < 0.02


@pytest.mark.parametrize(
    ("folder", "slot_s"),
    [
        pytest.param("availability/16-node/aws-08-27-2023", 300, marks=pytest.mark.slow),
        ("availability/16-node/aws-08-27-2023", 1800),
        ("preemption/4-node/aws-08-03-2023", 1800),
    ],
)
def test_sane_forecasts_of_real_traces_are_trusted(folder, slot_s):
    trust = ForecastTrust()
    said = issued(folder, slot_s)
    alarms = 0
    for opened, forecast in said:
        trust.note_slot(opened)
        trust.note_forecast(forecast)
        alarms += not trust.trusted

    assert alarms / len(said) < 0.01

"""The default forecaster on published traces, learnt on the first half, scored on the second."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spotline.adapters.market.importing import import_market
from spotline.adapters.market.options import ImportOptions
from spotline.adapters.market.parse import time_ns
from spotline.bench.forecast.evaluation import evaluate
from spotline.bench.forecast.families import load_families
from spotline.bench.forecast.measure import measure
from spotline.domain.events.forecast import ForecastIssued
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


@pytest.mark.parametrize("slot_s", [300, 1800])
def test_gangs_are_forecast_no_worse_than_by_persistence_at_every_step(slot_s):
    opened = slots("availability/16-node/aws-08-27-2023", slot_s)

    result = evaluate(make_forecaster(), opened, first_scored_slot=len(opened) // 2)

    assert [e.step for e in result] == [*range(1, HORIZON + 1)] * 2
    for each in result:
        assert each.crps_instances <= each.persistence_crps_instances, each
        assert each.price_error <= each.persistence_price_error, each


@pytest.mark.parametrize("name", ["16-node", "4-node", "nine-zones", "neocloud"])
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


@pytest.mark.parametrize("slot_s", [300, 1800])
def test_learning_and_forecasting_a_slot_takes_milliseconds(slot_s):
    opened = slots("availability/16-node/aws-08-27-2023", slot_s)[:400]
    forecaster = make_forecaster()
    started_s = time.process_time()
    for each in opened:
        forecaster.learn(each)
        forecaster.forecast(HORIZON)
        forecaster.scores()

    per_slot_s = (time.process_time() - started_s) / len(opened)

    assert per_slot_s < 0.02


@pytest.mark.parametrize(
    ("folder", "slot_s"),
    [
        ("availability/16-node/aws-08-27-2023", 300),
        ("availability/16-node/aws-08-27-2023", 1800),
        ("preemption/4-node/aws-08-03-2023", 1800),
    ],
)
def test_sane_forecasts_of_real_traces_are_trusted(folder, slot_s):
    forecaster, trust = make_forecaster(), ForecastTrust()
    opened = slots(folder, slot_s)
    alarms = 0
    for each in opened:
        forecaster.learn(each)
        trust.note_slot(each)
        trust.note_forecast(
            ForecastIssued(
                slot=each.slot,
                model_id=forecaster.model_id,
                forecasts=forecaster.forecast(HORIZON),
                scores=forecaster.scores(),
            )
        )
        alarms += not trust.trusted

    assert alarms / len(opened) < 0.01

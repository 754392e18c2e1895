from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import CapturingLogger

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.adapters.clouds.simulated.paper import PaperCloud
from spotline.bootstrap.clouds import (
    CLOUDS,
    CloudContext,
    CloudPlugin,
    chosen_cloud,
    cloud_of,
    modes_of,
    run_mode,
)
from spotline.contracts.errors import ConfigError
from spotline.domain.market.believed import PaperSettings
from spotline.domain.modes import Mode, StatedModes

LIVE, SHADOW = Mode.LIVE, Mode.SHADOW


@dataclass(frozen=True, slots=True, kw_only=True)
class MoonSettings:
    region: str = "near"
    key: str = field(default="", repr=False)


@pytest.fixture
def moon(monkeypatch):
    opened = []

    def open_moon(settings, context):
        opened.append((settings, context))
        return "the moon"

    monkeypatch.setitem(CLOUDS, "moon", CloudPlugin(settings=MoonSettings, open=open_moon))
    return opened


def test_a_cloud_is_chosen_by_name_with_its_own_variables(moon, tmp_path):
    environ = {"SPOTLINE_CLOUD_MOON_REGION": "far", "SPOTLINE_CLOUD_SIMULATED_SEED": "x"}

    chosen = cloud_of(environ, "moon", LIVE)

    assert chosen.settings == MoonSettings(region="far")
    assert chosen.open(CloudContext(store=tmp_path)) == "the moon"
    assert moon == [(MoonSettings(region="far"), CloudContext(store=tmp_path))]


def test_on_paper_the_cloud_is_never_opened_but_has_its_settings(moon, tmp_path):
    environ = {"SPOTLINE_CLOUD_MOON_REGION": "far", "SPOTLINE_CLOUD_PAPER_SEED": "3"}

    chosen = cloud_of(environ, "moon", SHADOW)
    opened = chosen.open(CloudContext(store=tmp_path))
    opened.close()

    assert (chosen.name, chosen.settings.region, chosen.in_wall_time) == ("moon", "far", False)
    assert chosen.paper == PaperSettings(seed=3)
    assert (type(opened.provider), moon) == (PaperCloud, [])
    assert chosen.described()["paper"]["seed"] == 3


def test_a_cloud_that_sends_bills_is_observed_unless_somebody_says_otherwise(moon, monkeypatch):
    monkeypatch.setitem(CLOUDS, "moon", replace(CLOUDS["moon"], real=True))

    assert run_mode("moon") is Mode.OBSERVE
    assert run_mode("moon", "live") is run_mode("simulated") is Mode.LIVE
    # Even then nothing is bought before an account is promoted.
    assert modes_of("moon", "live") == StatedModes(run=Mode.LIVE, accounts=Mode.OBSERVE)
    assert modes_of("simulated") == StatedModes()
    with pytest.raises(ConfigError, match="mode must be one of observe, shadow, live, was 'dry'"):
        run_mode("moon", "dry")


def test_an_unknown_cloud_is_a_configuration_error():
    with pytest.raises(ConfigError, match=r"cloud must be one of .*simulated.*, was 'moon'"):
        cloud_of({}, "moon", LIVE)
    with pytest.raises(ConfigError, match="was 'moon'"):
        chosen_cloud("moon")


def test_the_manifest_shows_settings_in_their_order_and_no_secret(moon):
    assert chosen_cloud("moon", key="s3cret").described() == {"cloud": "moon", "region": "near"}
    # What logs of 0.1.0 and 0.2.0 say of the actuator.
    assert list(chosen_cloud(seed=3).described().items()) == [
        ("cloud", "simulated"),
        ("seed", 3),
        ("launch_delay_s", 120),
        ("notice_lead_s", 120),
        ("refusal_probability", 0.0),
        ("interruption_per_instance_hour", 0.0),
        ("lease_s", 0),
        # Behind what they knew.
        ("failing", None),
    ]


def test_a_variable_by_its_former_name_is_warned_of_when_the_cloud_is_opened(tmp_path, monkeypatch):
    chosen = cloud_of({"SPOTLINE_SIMULATED_SEED": "3"}, "simulated", LIVE)

    said = CapturingLogger()
    monkeypatch.setattr("spotline.bootstrap.clouds._log", said)

    chosen.open(CloudContext(store=tmp_path)).close()

    assert chosen.settings == SimulatedCloudSettings(seed=3)
    assert [(call.method_name, *call.args, *call.kwargs.values()) for call in said.calls] == [
        (
            *("warning", "setting_renamed"),
            *("SPOTLINE_SIMULATED_SEED", "SPOTLINE_CLOUD_SIMULATED_SEED"),
        )
    ]

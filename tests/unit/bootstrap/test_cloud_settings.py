"""A cloud's settings are variables of its name, and what is no setting is refused."""

from dataclasses import dataclass, field

import pytest

from spotline.bootstrap.cloud_settings import (
    WrongCloudSettings,
    check_known,
    read_cloud_settings,
    variables_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoonSettings:
    region: str
    retries: int = 3
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries must be >= 0, was {self.retries}")


KNOWN = {"moon": MoonSettings}


def read(**environ: str):
    return read_cloud_settings("moon", MoonSettings, environ, former_prefix="SPOTLINE_LUNA_")


def test_every_field_is_a_variable():
    assert variables_of("moon", MoonSettings) == {
        "region": "SPOTLINE_CLOUD_MOON_REGION",
        "retries": "SPOTLINE_CLOUD_MOON_RETRIES",
        "key": "SPOTLINE_CLOUD_MOON_KEY",
    }


def test_values_have_the_types_of_their_fields_and_case_does_not_matter():
    settings, renamed = read(SPOTLINE_CLOUD_MOON_REGION="near", spotline_cloud_moon_retries="5")

    assert settings == MoonSettings(region="near", retries=5)
    assert renamed == {}


def test_a_former_name_is_read_and_named_and_the_new_one_goes_first():
    settings, renamed = read(
        SPOTLINE_LUNA_REGION="near", SPOTLINE_LUNA_RETRIES="1", SPOTLINE_CLOUD_MOON_RETRIES="2"
    )

    assert settings == MoonSettings(region="near", retries=2)
    assert renamed == {"SPOTLINE_LUNA_REGION": "SPOTLINE_CLOUD_MOON_REGION"}


@pytest.mark.parametrize(
    ("environ", "problems"),
    [
        (
            {"SPOTLINE_CLOUD_MOON_RETRIES": "many"},
            [
                "SPOTLINE_CLOUD_MOON_REGION: Field required",
                "SPOTLINE_CLOUD_MOON_RETRIES: expected ",
            ],
        ),
        (
            {"SPOTLINE_CLOUD_MOON_REGION": "near", "SPOTLINE_CLOUD_MOON_RETRIES": "-1"},
            ["SPOTLINE_CLOUD_MOON_RETRIES: retries must be >= 0, was -1"],
        ),
        (
            {"SPOTLINE_CLOUD_MOON_REGION": "near", "SPOTLINE_LUNA_RETRIES": "x"},
            ["SPOTLINE_LUNA_RETRIES: expected a valid integer, found"],
        ),
    ],
)
def test_every_wrong_variable_is_named(environ, problems):
    with pytest.raises(WrongCloudSettings) as caught:
        read(**environ)

    told = sorted(map(str, caught.value.problems))
    assert len(told) == len(problems)
    assert all(line.startswith(start) for line, start in zip(told, problems, strict=True)), told


def test_what_is_no_setting_is_refused_and_the_nearest_is_named():
    with pytest.raises(WrongCloudSettings) as caught:
        check_known({"SPOTLINE_CLOUD_MOON_REGON": "near", "SPOTLINE_CLOUD_X": "y"}, KNOWN)

    near, far = caught.value.problems
    assert near.variable == "SPOTLINE_CLOUD_MOON_REGON"
    assert "did you mean SPOTLINE_CLOUD_MOON_REGION?" in near.problem
    assert far.variable == "SPOTLINE_CLOUD_X"


def test_other_variables_and_those_of_kubernetes_are_none_of_our_business():
    check_known(
        {
            "SPOTLINE_CLOUD": "moon",
            "SPOTLINE_CLOUD_MOON_KEY": "s3cret",
            "SPOTLINE_CLOUD_ACTUATOR_SERVICE_HOST": "10.0.0.1",
            "SPOTLINE_MODE": "live",
        },
        KNOWN,
    )

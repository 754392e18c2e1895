"""What a spotline.yaml amounts to: the cloud that is chosen by it, and what holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from spotline.adapters.clouds.local.settings import LocalCloudSettings
from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.adapters.clouds.simulated.paper import PaperCloud
from spotline.adapters.files.mistake import BadFile
from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig, read_config
from spotline.adapters.files.spotline_yaml.starter import CLOUDS as STARTERS
from spotline.adapters.files.spotline_yaml.starter import starter_text
from spotline.adapters.market.parquet import write_market
from spotline.bootstrap.cloud_settings import WrongCloudSettings
from spotline.bootstrap.clouds import CloudContext, cloud_of, modes_of, run_mode
from spotline.bootstrap.configuration import checked, effective_of_clouds
from spotline.bootstrap.stated_config import stated_config
from spotline.contracts.errors import ConfigError
from spotline.domain.market.believed import PaperSettings
from spotline.domain.modes import Mode, StatedModes
from tests.fakes.selector import market_of

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "spotline.yaml"
SECRET = {"SPOTLINE_EXTERNAL_ID": "hunter2"}
REHEARSED = """
cloud: aws
mode: live
clouds:
  aws:
    endpoint_url: http://127.0.0.1:8123
    accounts:
    - {name: default, account_id: "000000000001", mode: live}
    - {name: other, account_id: "000000000002", mode: shadow}
    offerings:
    - {account: default, region: east, zone: e1, instance_type: p3.2xlarge, launch_template_id: lt-0}
"""


def config_of(folder: Path, text: str) -> SpotlineConfig:
    file = folder / "spotline.yaml"
    file.write_text(text, encoding="utf-8")
    return read_config(file, {})


def test_a_cloud_is_set_by_its_section_and_a_variable_wins(tmp_path: Path) -> None:
    config = config_of(
        tmp_path, "clouds: {simulated: {seed: 5, launch_delay_s: 7}, paper: {seed: 9}}"
    )

    live = cloud_of({"SPOTLINE_CLOUD_SIMULATED_SEED": "6"}, "simulated", Mode.LIVE, config)
    paper = cloud_of({}, "simulated", Mode.OBSERVE, config)

    assert live.settings == SimulatedCloudSettings(seed=6, launch_delay_s=7)
    assert paper.paper == PaperSettings(seed=9)
    assert cloud_of({}, "local", Mode.LIVE, config).settings == LocalCloudSettings()


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            "simulated: {sede: 5}",
            "clouds.simulated.sede: expected a known field (did you mean seed?), found sede",
        ),
        ("simulated: {seed: yes}", "clouds.simulated.seed: expected a whole number, found True"),
        ("simulated: {seed: 1.5}", "clouds.simulated.seed: expected a whole number, found 1.5"),
        ("local: {command: 7}", "clouds.local.command: expected text, found 7"),
        ("paper: {up_share: half}", "clouds.paper.up_share: expected a number, found 'half'"),
        (
            "simulated: {launch_delay_s: -1}",
            "clouds.simulated.launch_delay_s: expected a number >= 0, found -1",
        ),
        (
            "simulated: {failing: {probability: 2, first_slot: 0, end_slot: 1, within_s: 1}}",
            "clouds.simulated.failing: expected",
        ),
        (
            "moon: {}",
            "clouds.moon: expected a cloud, one of simulated, local, aws, paper, found moon",
        ),
    ],
)
def test_a_wrong_section_is_refused_by_line_and_field_of_whichever_cloud(
    tmp_path: Path, section: str, said: str
) -> None:
    config = config_of(tmp_path, f"clouds:\n  {section}")

    with pytest.raises(BadFile) as caught:
        cloud_of({}, "simulated", Mode.OBSERVE, config)

    assert str(caught.value).startswith(f"{tmp_path}/spotline.yaml:2: {said}")


def test_a_wrong_variable_beside_a_right_section_is_told_as_a_variable(tmp_path: Path) -> None:
    config = config_of(tmp_path, "clouds: {simulated: {seed: 5}}")

    with pytest.raises(WrongCloudSettings, match="SPOTLINE_CLOUD_SIMULATED_SEED"):
        cloud_of({"SPOTLINE_CLOUD_SIMULATED_SEED": "x"}, "simulated", Mode.LIVE, config)


# --- AWS --------------------------------------------------------------------------------------


def test_the_example_is_read_and_aws_is_observed_by_default(tmp_path: Path) -> None:
    config = read_config(EXAMPLE, SECRET)

    chosen = cloud_of({}, "aws", run_mode("aws"), config)
    opened = chosen.open(CloudContext(store=tmp_path))
    opened.close()

    assert run_mode("aws") is Mode.OBSERVE
    assert isinstance(opened.provider, PaperCloud)
    assert [each.offering_id for each in chosen.settings.offerings] == [
        "aws:research:use1-az1:p4d.24xlarge",
        "aws:research:use1-az1:p5.48xlarge",
        "aws:research:use1-az4:p4d.24xlarge",
        "aws:research:use1-az4:p5.48xlarge",
        "aws:research:use1-az1:g6.xlarge",
    ]
    assert chosen.settings.accounts[0].external_id == "hunter2"


def test_a_log_says_of_aws_all_but_what_is_secret_at_any_depth() -> None:
    config = read_config(EXAMPLE, SECRET)

    said = cloud_of({}, "aws", Mode.OBSERVE, config).described()

    assert said["accounts"] == [
        {
            "name": "research",
            "account_id": "123456789012",
            "role_arn": "arn:aws:iam::123456789012:role/spotline",
            "queues": {"us-east-1": "https://sqs.us-east-1.amazonaws.com/123456789012/spotline"},
            "mode": "observe",
        }
    ]
    assert said["offerings"][4]["launch_template_version"] == "3"
    assert said["clock"] == {"wall_ns": 0, "market_ns": 0, "market_s_per_s": 1.0}
    assert "hunter2" not in json.dumps(said)


def test_accounts_of_a_live_run_begin_as_the_file_says(tmp_path: Path) -> None:
    config = config_of(tmp_path, REHEARSED)
    chosen = cloud_of({}, "aws", Mode.LIVE, config)

    stated = chosen.modes(Mode.LIVE)

    assert stated == StatedModes(
        run=Mode.LIVE,
        accounts=Mode.OBSERVE,
        named={"aws/default": Mode.LIVE, "aws/other": Mode.SHADOW},
    )
    assert (stated.of("aws/default"), stated.of("aws/third")) == (Mode.LIVE, Mode.OBSERVE)
    # Without a file nothing begins live.
    assert not modes_of("aws", "live").any_live


def test_a_path_in_a_section_begins_at_the_folder_of_the_file(tmp_path: Path) -> None:
    stated = REHEARSED.replace("  aws:\n", "  aws:\n    identity_certificates: certificates\n")
    config = config_of(tmp_path, stated)

    settings = cloud_of({}, "aws", Mode.LIVE, config).settings

    assert settings.identity_certificates == str(tmp_path / "certificates")


def test_aws_is_acted_on_only_where_a_file_says_where() -> None:
    with pytest.raises(ConfigError, match=r"clouds.aws: expected its accounts .*--config FILE"):
        cloud_of({}, "aws", Mode.LIVE)


# --- checking ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cloud", STARTERS)
def test_a_file_to_begin_with_can_be_run_by(tmp_path: Path, cloud: str) -> None:
    write_market(market_of(), tmp_path / "market.parquet")

    found = checked(config_of(tmp_path, starter_text(cloud)), {})

    assert (found.cloud.name, found.mode is Mode.LIVE) == (cloud, cloud != "aws")


def test_all_that_is_wrong_with_what_a_file_names_is_told(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        """
cloud: moon
market: {file: none.parquet}
knowledge: {file: none.parquet}
identity: {issuers: none.yaml}
""",
    )

    with pytest.raises(ConfigError) as caught:
        checked(config, {})

    said = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert [line.partition(": ")[0] for line in said] == [
        *("spotline.yaml:2", "none.parquet", "none.parquet", "none.yaml"),
    ]
    assert "cloud: expected one of aws, local, simulated, found 'moon'" in said[0]


def test_a_list_price_and_a_reservation_of_nothing_are_told(tmp_path: Path) -> None:
    write_market(market_of(), tmp_path / "m.parquet")
    config = config_of(tmp_path, "market:\n  file: m.parquet\n  list_prices:\n    moon: 3")

    with pytest.raises(ConfigError, match=r"spotline.yaml:4: market.list_prices.moon: expected an"):
        checked(config, {})


def test_what_is_said_of_a_live_market_is_of_what_the_cloud_sells() -> None:
    config = read_config(EXAMPLE, SECRET)

    found = checked(config, {})

    assert found.mode is Mode.OBSERVE
    moon = replace(config, values={**config.values, "market.list_prices": {"moon": 1.0}})
    with pytest.raises(ConfigError, match=r"market.list_prices.moon: expected an offering of the"):
        checked(moon, {})


def test_each_value_says_where_it_comes_from_and_a_secret_only_that() -> None:
    config = read_config(EXAMPLE, SECRET)
    environ = {"SPOTLINE_CLOUD_AWS_READ_TIMEOUT_S": "9"}
    chosen = cloud_of(environ, "aws", Mode.OBSERVE, config)

    rows = {row.key: row for row in effective_of_clouds(config, chosen, environ)}

    line = EXAMPLE.read_text().splitlines().index('        account_id: "123456789012"') + 1
    stated = rows["clouds.aws.accounts[0].account_id"]
    assert (stated.value, stated.source) == ("123456789012", f"{EXAMPLE}:{line}")
    timeout = rows["clouds.aws.read_timeout_s"]
    assert (timeout.value, timeout.source) == ("9.0", "SPOTLINE_CLOUD_AWS_READ_TIMEOUT_S")
    assert rows["clouds.aws.connect_timeout_s"].source == "default"
    external = rows["clouds.aws.accounts[0].external_id"]
    assert external.value == "a secret (env SPOTLINE_EXTERNAL_ID)"
    assert "hunter2" not in repr(rows)


def test_services_find_the_file_by_a_variable(tmp_path: Path) -> None:
    path = config_of(tmp_path, "cloud: local").path

    found = stated_config({"SPOTLINE_CONFIG": str(path)})

    assert found is not None
    assert found.variables() == {"CLOUD": "local"}
    assert stated_config({}) is None

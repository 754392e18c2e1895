"""Services read the same spotline.yaml as `spotline up`, by SPOTLINE_CONFIG."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.allocator.settings import AllocatorSettings
from services.cloud_actuator.settings import CloudActuatorSettings
from services.market_ingest.settings import MarketIngestSettings
from services.notifier.settings import NotifierSettings
from services.selector.settings import SelectorSettings
from spotline.adapters.market.parquet import write_market
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.notify.alerts import AlertKind
from spotline.bootstrap.process import EXIT_CONFIG, main
from spotline.bootstrap.stated_config import stated_config
from spotline.contracts.errors import ConfigError
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.modes import Mode
from spotline.runtime.settings import ServiceSettings, stated_by_file
from tests.fakes.selector import market_of

REHEARSED = """
cloud: aws
mode: live
market: {slot: 5m, price_sanity: false}
limits: {total: {usd_per_day: 50}}
overrides: [{offerings: "aws:*", spot_discount: 0.1}]
reservations:
- {offering: "aws:default:e1:p3.2xlarge", id: block-7, instances: 8}
clouds:
  aws:
    endpoint_url: http://127.0.0.1:8123
    clock: {wall_ns: 5, market_ns: 7, market_s_per_s: 60}
    accounts: [{name: default, account_id: "000000000001", mode: live}]
    offerings:
    - {account: default, region: east, zone: e1, instance_type: p3.2xlarge, launch_template_id: lt-0}
"""


def read(settings: type[ServiceSettings]) -> ServiceSettings:
    """Settings as `main` makes them."""
    config = stated_config(os.environ)
    assert config is not None
    with stated_by_file(config.variables()):
        return settings()


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "spotline.yaml"
    path.write_text(REHEARSED)
    monkeypatch.setenv("SPOTLINE_CONFIG", str(path))
    return path


def test_market_ingest_follows_the_live_market_of_a_cloud(told: Path) -> None:
    settings = read(MarketIngestSettings)
    assert isinstance(settings, MarketIngestSettings)

    followed = settings.followed()

    assert settings.recorded() is None
    assert followed.market.slot_s == 300
    assert followed.feeds.clock == MarketClock(wall_ns=5, market_ns=7, market_s_per_s=60.0)
    assert [each.spot_discount_ppm for each in followed.feeds.overrides.stated] == [100_000]
    assert settings.ingest(300, followed.feeds.clock) == IngestOptions(
        slot_interval_s=5.0, barrier=False, wall_clock=True, price_sanity=False, stale_after_s=0
    )
    reserved = settings.with_reservations(followed.market).offerings[-1].reservation
    assert reserved is not None
    assert reserved.instances == 8
    assert settings.modes().of("aws/default") is Mode.LIVE


def test_actuator_and_selector_have_the_same_limits_and_modes(told: Path) -> None:
    actuator, selector, allocator = map(
        read, (CloudActuatorSettings, SelectorSettings, AllocatorSettings)
    )
    assert isinstance(actuator, CloudActuatorSettings)
    assert isinstance(selector, SelectorSettings)
    assert isinstance(allocator, AllocatorSettings)

    assert actuator.run_mode is Mode.LIVE
    assert actuator.chosen_cloud.modes(Mode.LIVE).of("aws/default") is Mode.LIVE
    assert actuator.caps().spending.total.micro_usd_per_day == 50_000_000
    assert actuator.caps().spending.to_json() == selector.selector.spending
    assert allocator.selector == selector.selector


def test_the_notifier_tells_whom_the_file_names_of_the_selectors_limits(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", "a secret of the hook")
    receiver = "{name: ops, url: https://example.com/, secret: {env: HOOK}, rules: [missed]}"
    told.write_text(f"{REHEARSED}notify: [{receiver}]\n")

    notifier, selector = read(NotifierSettings), read(SelectorSettings)
    assert isinstance(notifier, NotifierSettings)
    assert isinstance(selector, SelectorSettings)

    (ops,) = notifier.receivers
    assert (ops.name, ops.secret, ops.rules) == ("ops", "a secret of the hook", (AlertKind.MISSED,))
    assert "a secret" not in repr(notifier)
    assert notifier.selector == selector.selector
    monkeypatch.delenv("SPOTLINE_CONFIG")
    assert NotifierSettings().receivers == ()


def test_a_variable_wins_over_the_file(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTLINE_MODE", "observe")

    actuator = read(CloudActuatorSettings)

    assert isinstance(actuator, CloudActuatorSettings)
    assert actuator.run_mode is Mode.OBSERVE


def test_a_market_file_has_the_slots_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_market(market_of(), tmp_path / "m.parquet")
    path = tmp_path / "spotline.yaml"
    path.write_text("market: {file: m.parquet, slot: 1h}")
    monkeypatch.setenv("SPOTLINE_CONFIG", str(path))

    settings = read(MarketIngestSettings)
    assert isinstance(settings, MarketIngestSettings)
    recorded = settings.recorded()

    assert recorded is not None
    assert recorded.slot_s == 3600
    path.write_text("")
    bare = read(MarketIngestSettings)
    assert isinstance(bare, MarketIngestSettings)
    with pytest.raises(ConfigError, match="SPOTLINE_MARKET: expected a market file, as cloud simu"):
        bare.followed()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "mod: live",
            "spotline.yaml:1: mod: expected a known field (did you mean mode?), found mod",
        ),
        (
            "cloud: aws\nclouds: {aws: {accounts: []}}",
            "spotline.yaml:2: clouds.aws.accounts: expected at least one entry, found an empty list",
        ),
    ],
)
def test_a_service_with_a_wrong_file_says_so_and_ends(
    told: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    told.write_text(text)

    async def never(*_: object) -> None:
        raise AssertionError("it was started")

    code = main(CloudActuatorSettings, never)

    assert code == EXIT_CONFIG
    assert said in capsys.readouterr().err

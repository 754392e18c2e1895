"""What the options of `spotline up` make of a system."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.allocator.settings import AllocatorSettings
from spotline.adapters.market.parquet import write_market
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.system import SystemOptions
from spotline.cli import up
from spotline.cli.main import app
from spotline.contracts.limits import CallerLimits
from spotline.domain.market.learning_rules import ALL_RULES
from spotline.domain.market.live_market import LiveMarket
from spotline.replay.handlers import learning_rules
from spotline.runtime import log
from tests.fakes.selector import market_of

OTHER = CallerLimits(
    most_calls=11,
    most_calls_a_tenant=12,
    most_streams=13,
    most_streams_a_tenant=14,
    most_allocations=15,
    most_open_jobs_a_tenant=16,
)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    market = tmp_path / "market.parquet"
    write_market(market_of(), market)
    return ["up", "--market", str(market), "--store", str(tmp_path / "store")]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[SystemOptions]:
    """The systems that were to be run."""
    options: list[SystemOptions] = []
    # Its ports may be those of a system that runs here.
    monkeypatch.setattr(up, "check_ports", lambda _: None)
    monkeypatch.setattr(log, "configure_logging", lambda *_, **__: None)
    monkeypatch.setattr(up, "_serve", lambda system, *_, **__: options.append(system))
    return options


def stated(prefix: str) -> dict[str, str]:
    return {f"{prefix}{each.name}": str(getattr(OTHER, each.name)) for each in fields(OTHER)}


def test_limits_on_callers_are_options(made: list[SystemOptions], command: list[str]) -> None:
    options = [
        part for name, value in stated("--").items() for part in (name.replace("_", "-"), value)
    ]

    done = CliRunner().invoke(app, [*command, *options])

    assert done.exit_code == 0, done.output
    assert made[0].callers == OTHER


def test_limits_on_callers_are_read_from_the_variables_of_services(
    made: list[SystemOptions], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stated("SPOTLINE_").items():
        monkeypatch.setenv(name.upper(), value)

    done = CliRunner().invoke(app, command)

    assert done.exit_code == 0, done.output
    assert made[0].callers == OTHER == AllocatorSettings().callers


def test_without_options_callers_have_the_default_limits(
    made: list[SystemOptions], command: list[str]
) -> None:
    CliRunner().invoke(app, command)

    assert made[0].callers == CallerLimits()


def test_no_limit_is_less_than_one(made: list[SystemOptions], command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "--most-calls", "0"])

    assert done.exit_code == 2
    assert not made


def test_what_a_recorded_market_says_of_spot_is_counted_on(
    made: list[SystemOptions], command: list[str]
) -> None:
    CliRunner().invoke(app, command)

    (options,) = made
    assert options.selector.spot_firm


def test_a_new_log_says_that_cells_are_even_and_how_laws_are_learned(
    made: list[SystemOptions], command: list[str]
) -> None:
    CliRunner().invoke(app, command)

    (options,) = made
    assert options.settings()["selector"]["even_cells"] is True
    assert learning_rules(options.settings()) == ALL_RULES


def test_a_live_market_says_nothing_of_spot_to_count_on() -> None:
    market = LiveMarket(source="t", offerings=market_of().offerings, slot_s=60, start_ns=0)

    assert not up._deciding_on(market, SelectorOptions()).spot_firm


def test_only_where_nobody_publishes_counts_is_anybody_asked() -> None:
    live = LiveMarket(source="t", offerings=market_of().offerings, slot_s=60, start_ns=0)

    assert up._deciding_on(live, SelectorOptions(), probes=2).probes == 2
    assert up._deciding_on(live, SelectorOptions()).probes == 0
    assert up._deciding_on(market_of(), SelectorOptions(), probes=2).probes == 0

"""`spotline config`, and `spotline up --config`: which value wins, and what is said of a wrong one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner, Result

from spotline.adapters.files.spotline_yaml.parts import keys
from spotline.adapters.market.parquet import write_market
from spotline.bootstrap.system import SystemOptions
from spotline.cli import up
from spotline.cli.config import options_of_up
from spotline.cli.main import app
from spotline.domain.limits.spending import DEFAULT_SPENDING
from spotline.domain.modes import Mode
from spotline.runtime import log
from tests.fakes.selector import market_of
from tools.document_configuration import DOCUMENT, documented

TEXT = """
store: store
market:
  file: market.parquet
  wait_for_work: true
  list_prices: {"cloud:east-1a:a100-1x": 3.67}
addresses:
  http_hosts: [a.example, b.example]
jobs: {quote_margin: 2}
callers: {most_calls: 77}
limits: {total: {usd_per_day: 50}}
reservations:
- {offering: "cloud:east-1a:a100-1x", id: block-7, instances: 8}
clouds: {simulated: {seed: 5}}
"""
# Others may run a system of theirs on this machine.
ANYWHERE = "  http: ''\n" + "".join(
    f"  {name}: 127.0.0.1:0\n" for name in ("agents", "configurator", "placer", "analytics")
)
# They are the file, or how the command speaks; or stand in the file as a whole.
WITHOUT_A_KEY = {"config", "as_json", "verbose", "reservations", "limits_file"}


@pytest.fixture(autouse=True, scope="module")
def one_command_line() -> Iterator[None]:
    """Build the command line once: it takes longer than to find what is wrong with a file."""
    built = typer.main.get_command(app)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", lambda _: built)
        patch.setattr(typer.main, "get_command", lambda _: built)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_market(market_of(), tmp_path / "market.parquet")
    (tmp_path / "spotline.yaml").write_text(TEXT)
    return tmp_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[SystemOptions]:
    """The systems that were to be run."""
    options: list[SystemOptions] = []
    monkeypatch.setattr(log, "configure_logging", lambda *_, **__: None)
    monkeypatch.setattr(up, "_serve", lambda system, *_, **__: options.append(system))
    return options


def run(*words: str, **environ: str) -> Result:
    return CliRunner().invoke(app, [*words], env=environ)


def test_a_file_says_what_options_say_otherwise(
    folder: Path, made: list[SystemOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The ports of the file may be those of a system that runs here.
    monkeypatch.setattr(up, "check_ports", lambda _: None)
    file = str(folder / "spotline.yaml")

    done = run("up", "--config", file, "--quote-margin", "3", SPOTLINE_MOST_STREAMS="78")

    assert done.exit_code == 0, done.output
    (system,) = made
    assert (system.store, system.quote_margin) == (folder / "store", 3.0)
    assert (system.callers.most_calls, system.callers.most_streams) == (77, 78)
    assert system.http_hosts == ("a.example", "b.example")
    assert system.cloud.settings.seed == 5
    assert system.mode is Mode.LIVE
    assert system.ingest.list_prices_micro_usd == {"cloud:east-1a:a100-1x": 3_670_000}
    assert system.ingest.wait_for_work
    assert system.caps.spending.total.micro_usd_per_day == 50_000_000
    assert [each.offering_id for each in system.market.offerings if each.reservation] == [
        "cloud:east-1a:a100-1x/reserved/block-7"
    ]


def test_the_file_may_be_named_by_a_variable_and_limits_by_their_own(
    folder: Path, made: list[SystemOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "check_ports", lambda _: None)
    limits = folder / "limits.yaml"
    limits.write_text("total: {usd_per_day: 70}")

    run("up", "--limits-file", str(limits), SPOTLINE_CONFIG=str(folder / "spotline.yaml"))
    (folder / "spotline.yaml").write_text("market: {file: market.parquet}\nstore: store")
    run("up", SPOTLINE_CONFIG=str(folder / "spotline.yaml"))

    assert made[0].caps.spending.total.micro_usd_per_day == 70_000_000
    assert made[1].caps.spending == DEFAULT_SPENDING


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"market: {{file: market.parquet}}\nstore: store\naddresses:\n{ANYWHERE}  allocator: localhost",
            "spotline: FOLDER/spotline.yaml:9: addresses.allocator: expected HOST:PORT, such as "
            "127.0.0.1:7070, found 'localhost'",
        ),
        (
            "market: {file: market.parquet}\naddresses:\n  allocator: a\n  placer: b",
            "spotline: FOLDER/spotline.yaml:4: addresses.placer: expected HOST:PORT",
        ),
        (
            "market:\n  file: market.parquet\n  list_prices: {moon: 3}\nstore: store",
            "spotline: FOLDER/spotline.yaml:3: market.list_prices: expected OFFERING=USD of one of",
        ),
        (
            "market: {file: market.parquet}\nstore: store\noverrides:\n- offerings: '*'\n"
            "  spot_discount: 0.1",
            "spotline: FOLDER/spotline.yaml:3: overrides: expected none beside a market that is not live",
        ),
        ("cloud: [aws]", "spotline: FOLDER/spotline.yaml:1: cloud: expected text, found a list"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_file(
    folder: Path, made: list[SystemOptions], text: str, said: str
) -> None:
    (folder / "spotline.yaml").write_text(text)

    done = run("up", "--config", str(folder / "spotline.yaml"))

    assert (done.exit_code, made) == (2, [])
    assert done.stderr.splitlines()[-1].startswith(said.replace("FOLDER", str(folder)))


def test_an_option_that_is_wrong_is_named_as_one(folder: Path, made: list[SystemOptions]) -> None:
    done = run("up", "--config", str(folder / "spotline.yaml"), "--address", "localhost")

    assert done.stderr.startswith("spotline: --address: expected HOST:PORT")


def test_every_option_of_up_has_a_key() -> None:
    assert set(options_of_up()) == {sets.option for _, sets in keys()} | WITHOUT_A_KEY


# --- spotline config --------------------------------------------------------------------------


@pytest.mark.parametrize("cloud", ["simulated", "local", "aws"])
def test_a_file_to_begin_with_is_written_once(folder: Path, cloud: str) -> None:
    file = folder / f"{cloud}.yaml"

    first = run("config", "init", str(file), "--cloud", cloud)
    again = run("config", "init", str(file), "--cloud", cloud)
    checked = run("config", "check", str(file), "--json")

    assert (first.exit_code, first.stdout) == (0, f"wrote {file}\n")
    assert again.exit_code == 2
    assert "expected a name that is not taken, found a file" in again.stderr
    assert json.loads(checked.stdout)["cloud"] == cloud


def test_a_cloud_without_a_starter_and_a_folder_that_is_not_there_are_refused(folder: Path) -> None:
    moon = run("config", "init", str(folder / "x.yaml"), "--cloud", "moon")
    nowhere = run("config", "init", str(folder / "none" / "x.yaml"))

    assert moon.stderr == "spotline: --cloud: expected one of simulated, local, aws, found 'moon'\n"
    assert (moon.exit_code, nowhere.exit_code) == (2, 2)
    assert "expected a place to write to, found: No such file or directory" in nowhere.stderr


def test_a_check_says_every_mistake_as_text_and_as_json(folder: Path) -> None:
    (folder / "spotline.yaml").write_text("stor: x\nmode: dry")

    text = run("config", "check", str(folder / "spotline.yaml"))
    as_json = run("config", "check", str(folder / "spotline.yaml"), "--json")

    assert (text.exit_code, as_json.exit_code) == (2, 2)
    assert [line.rpartition("/")[2] for line in text.stderr.splitlines()] == [
        "spotline.yaml:1: stor: expected a known field (did you mean store?), found stor",
        "spotline.yaml:2: mode: expected one of observe, shadow or live, found 'dry'",
    ]
    assert "spotline.yaml:2: mode" in json.loads(as_json.stdout)["error"]


def test_show_says_which_value_holds_and_from_where(folder: Path) -> None:
    file = str(folder / "spotline.yaml")

    shown = run(
        "config", "show", file, "--json", SPOTLINE_MOST_CALLS="9", SPOTLINE_NATS_URL="nats://u:p@h"
    )

    rows = {row["key"]: (row["value"], row["source"]) for row in json.loads(shown.stdout)}
    assert rows["market.wait_for_work"] == ("true", f"{file}:5")
    assert rows["callers.most_calls"] == ("9", "SPOTLINE_MOST_CALLS")
    assert rows["callers.most_streams"] == ("4096", "default")
    assert rows["nats_url"] == ("nats://u:***@h", "SPOTLINE_NATS_URL")
    assert rows["clouds.simulated.seed"] == ("5", f"{file}:14")
    assert rows["clouds.simulated.lease_s"] == ("0", "default")
    assert rows["limits"] == ("stated", f"{file}:11")
    assert {key for key, _ in keys()} <= set(rows)
    assert "u:p" not in shown.output


def test_the_documentation_has_every_key_as_it_is() -> None:
    # `python -m tools.document_configuration` writes it.
    text = DOCUMENT.read_text(encoding="utf-8")

    assert text == documented(text)

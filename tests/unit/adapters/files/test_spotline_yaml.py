"""One file for an installation: what it sets, what it refuses, and in which line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.files.fields import path_of
from spotline.adapters.files.mistake import BadFile
from spotline.adapters.files.spotline_yaml.parts import ConfigPart, keys
from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig, read_config
from spotline.adapters.files.yaml_file import parse_yaml_with_lines
from spotline.application.notify.alerts import AlertKind
from spotline.application.notify.target import NotifyFormat, NotifyTarget
from spotline.domain.limits.spending import Spending, SpendLimit
from spotline.domain.market.market import Market
from tests.fakes.selector import market_of


def read(folder: Path, text: str, **environ: str) -> SpotlineConfig:
    file = folder / "spotline.yaml"
    file.write_text(text, encoding="utf-8")
    return read_config(file, environ)


def refusal(folder: Path, text: str, **environ: str) -> list[str]:
    with pytest.raises(BadFile) as caught:
        read(folder, text, **environ)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_a_key_sets_an_option_and_a_variable_and_paths_begin_at_the_file(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
store: state
market: {file: m.parquet, stale_after: never, list_prices: {a: 2.5}, wall_clock: true}
addresses: {http_hosts: [a.example, b.example]}
""",
    )

    assert config.options() == {
        "store": str(tmp_path / "state"),
        "market": str(tmp_path / "m.parquet"),
        "stale_after": -1,
        "list_price": ["a=2.5"],
        "wall_clock": True,
        "http_hosts": "a.example,b.example",
    }
    assert config.variables() == {
        "STORE": str(tmp_path / "state"),
        "MARKET": str(tmp_path / "m.parquet"),
        "STALE_AFTER_S": "-1",
        "LIST_PRICES": json.dumps({"a": 2.5}),
        "WALL_CLOCK": "true",
        "HTTP_HOSTS": "a.example,b.example",
    }


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    config = read(tmp_path, "# later\n")

    assert (config.options(), config.variables(), config.spending) == ({}, {}, None)


def test_limits_and_reservations_are_those_of_their_own_files(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
limits: {total: {usd_per_day: 50}}
reservations:
  - {offering: "cloud:east-1a:a100-1x", id: block-7, instances: 8}
""",
    )

    assert config.spending == Spending(
        total=SpendLimit(micro_usd_per_day=50_000_000), launches_per_minute=300
    )
    assert config.variables() == {"SPENDING": config.spending.to_json()}
    reserved = config.reserved(market_of())
    assert [each.reservation.instances for each in reserved.offerings if each.reservation] == [8]


def test_a_reservation_of_nothing_that_is_traded_has_its_line(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        "reservations:\n- {offering: moon, id: b, instances: 8}\n- {offering: sun, id: b, instances: 8}\n",
    )
    market: Market = market_of()

    with pytest.raises(BadFile) as caught:
        config.reserved(market)

    assert [(one.line, one.field) for one in caught.value.mistakes] == [
        (2, "reservations[0].offering"),
        (3, "reservations[1].offering"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stores: x", "1: stores: expected a known field (did you mean store?), found stores"),
        ("\nmode: dry", "2: mode: expected one of observe, shadow or live, found 'dry'"),
        ("market:\n  wall_clock: 1", "2: market.wall_clock: expected true or false, found 1"),
        (
            "market:\n  stale_after: soon",
            "2: market.stale_after: expected seconds, or a duration such as 90s, 3m, 1h30m or 2d, "
            "found 'soon'",
        ),
        ("market:\n\n  slots_per_s: true", "3: market.slots_per_s: expected a number, found True"),
        (
            "addresses: {health_port: 70000}",
            "1: addresses.health_port: expected a number <= 65,535, found 70000",
        ),
        ("orphans: {reap: all}", "1: orphans.reap: expected one of report or reap, found 'all'"),
        ("jobs: []", "1: jobs: expected a mapping of fields, found an empty list"),
        (
            "overrides:\n- offerings: '*'",
            "2: overrides[0]: expected a price, a discount or a savings plan, found none",
        ),
        (
            "overrides:\n- offerings: '*'\n  spot_discount: 1",
            "3: overrides[0].spot_discount: expected a number < 1, found 1",
        ),
        (
            "overrides:\n- {offerings: '*', on_demand_discount: 0.1, "
            "on_demand_usd_per_instance_hour: 2}",
            "2: overrides[0]: expected one of on_demand_usd_per_instance_hour and "
            "on_demand_discount, found both",
        ),
        (
            "reservations:\n- {offering: x, id: b}",
            "2: reservations[0].instances: expected this field, found nothing",
        ),
        (
            "limits:\n  total:\n    usd_per_day: -1",
            "3: limits.total.usd_per_day: expected a number >= 0, found -1",
        ),
        ("store: a\nstore: b", " line 2: expected each field once, found store again"),
        (
            "nats_url: nats://u:hunter2@h",
            "1: nats_url: expected a secret by where it stands, {env: NAME} or {file: PATH}: no "
            "secret stands in this file itself, found text (not shown: it may be a secret)",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert refusal(tmp_path, text) == [f"spotline.yaml:{said}"]


def test_every_mistake_is_told_and_aliases_have_a_line(tmp_path: Path) -> None:
    text = "callers: &many {most_calls: 0}\nidentity:\n  hosts: many\n  mtls: 2\n"

    assert refusal(tmp_path, text) == [
        "spotline.yaml:1: callers.most_calls: expected a number >= 1, found 0",
        "spotline.yaml:3: identity.hosts: expected a list, found 'many'",
        "spotline.yaml:4: identity.mtls: expected true or false, found 2",
    ]


# --- secrets ----------------------------------------------------------------------------------


def private(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_secrets_come_from_the_environment_and_from_files(tmp_path: Path) -> None:
    private(tmp_path / "id", "from a file\n")

    config = read(
        tmp_path,
        "nats_url: {env: URL}\nclouds: {moon: {accounts: [{id: {file: id}}], run: {env: URL}}}",
        URL="nats://u:p@h",
    )

    assert config.options() == {"nats_url": "nats://u:p@h"}
    assert config.clouds["moon"]["accounts"] == [{"id": "from a file"}]
    assert "from a file" not in repr(config)
    assert "u:p" not in repr(config)
    assert repr(config.clouds["moon"]["run"]) == "a secret (env URL)"


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (
            "{env: NONE}",
            "env: expected a variable NONE in the environment that is not empty, found none",
        ),
        (
            "{env: EMPTY}",
            "env: expected a variable EMPTY in the environment that is not empty, found an empty one",
        ),
        ("{env: [A]}", "env: expected the name of a variable, found a list of 1"),
        ("{file: 7}", "file: expected the path of a file, found 7"),
        (
            "{file: none}",
            "file: expected a readable file FOLDER/none, found No such file or directory",
        ),
        ("{file: .}", "file: expected a readable file FOLDER, found Is a directory"),
        ("{file: empty}", "file: expected a secret in FOLDER/empty, found an empty file"),
        ("{file: large}", "file: expected at most 65,536 bytes in FOLDER/large, found more"),
        ("{file: bytes}", "file: expected UTF-8 text in FOLDER/bytes, found other bytes"),
        (
            "{file: open}",
            "file: expected a file that its owner alone may read (chmod go-rwx FOLDER/open), found "
            "the mode 0640",
        ),
    ],
)
def test_a_secret_that_is_not_there_is_told_and_none_is_shown(
    tmp_path: Path, stated: str, said: str
) -> None:
    private(tmp_path / "empty", "\n")
    private(tmp_path / "large", "x" * 70_000)
    private(tmp_path / "bytes", "").write_bytes(b"\xff")
    private(tmp_path / "open", "hunter2", 0o640)

    with pytest.raises(BadFile) as caught:
        read(tmp_path, f"clouds:\n  moon:\n    key: {stated}", EMPTY="")

    said = said.replace("FOLDER", str(tmp_path))
    assert str(caught.value) == f"{tmp_path}/spotline.yaml:3: clouds.moon.key.{said}"


def test_a_named_pipe_is_no_secret_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)

    (said,) = refusal(tmp_path, "clouds: {moon: {key: {file: pipe}}}")

    assert "found an empty file" in said


# --- the lines --------------------------------------------------------------------------------

KEYS = st.text(st.characters(categories=("Ll", "Nd")), min_size=1, max_size=4)
TREES: Any = st.recursive(
    st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


def entries(value: Any, steps: tuple[int | str, ...] = ()) -> list[tuple[int | str, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [
        found for key, below in inner for found in [(*steps, key), *entries(below, (*steps, key))]
    ]


@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_each_key_and_entry_has_the_line_it_is_written_in(tree: dict[str, Any]) -> None:
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)

    value, lines = parse_yaml_with_lines(text, where="x")

    assert sorted(lines, key=str) == sorted(entries(value), key=str)
    written = text.splitlines()
    for steps, line in lines.items():
        at = written[line - 1]
        assert str(steps[-1]) in at if isinstance(steps[-1], str) else "-" in at


# --- receivers --------------------------------------------------------------------------------

RECEIVERS = """
notify:
  - name: ops
    url: https://example.com/hook
    secret: {env: HOOK_SECRET}
    rules: [at_risk, missed]
    tenants: [vision]
  - {name: chat, url: {env: CHAT_URL}, format: slack}
"""
HOOKS = {"HOOK_SECRET": "sixteen letters.", "CHAT_URL": "https://hooks.example.com/T0/B0/x"}


def test_receivers_are_read_with_their_secrets_and_show_none(tmp_path: Path) -> None:
    config = read(tmp_path, RECEIVERS, **HOOKS)

    assert config.notify == (
        NotifyTarget(
            name="ops",
            url="https://example.com/hook",
            secret=HOOKS["HOOK_SECRET"],
            rules=(AlertKind.AT_RISK, AlertKind.MISSED),
            tenants=("vision",),
        ),
        NotifyTarget(name="chat", url=HOOKS["CHAT_URL"], format=NotifyFormat.SLACK),
    )
    assert not any(secret in repr(config) for secret in HOOKS.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{name: a, url: x, secret: {env: S}}", "url: expected a URL such as https://example"),
        ("{name: a, url: http://e.example/, secret: {env: S}}", "url: expected https, or this"),
        ("{name: a, url: https://e.example/}", "secret: expected this field, which messages are"),
        ("{name: a, url: https://e.example/, secret: plain}", "secret: expected a secret by where"),
        (
            "{name: a, url: https://e.example/, secret: {env: SHORT}}",
            "secret: expected at least 16",
        ),
        (
            "{name: a, url: https://e.example/, secret: {env: S}, rules: [late]}",
            "rules[0]: expected one of at_risk, missed, limit_near, feed_dead or done, found 'late'",
        ),
        (
            "{name: a, url: https://e.example/, format: xml}",
            "format: expected one of json or slack",
        ),
        (
            "{name: a, url: https://e.example/, secret: {env: S}, to: b}",
            "to: expected a known field",
        ),
    ],
)
def test_what_is_wrong_with_a_receiver_names_its_field(
    tmp_path: Path, text: str, said: str
) -> None:
    found = refusal(tmp_path, f"notify:\n  - {text}", S="s" * 16, SHORT="shortest")

    assert any(line.startswith(f"spotline.yaml:2: notify[0].{said}") for line in found), found
    assert not any("shortest" in line or "plain" in line for line in found)


def test_receivers_have_names_of_their_own(tmp_path: Path) -> None:
    one = "  - {name: a, url: https://e.example/, format: slack}\n"

    assert refusal(tmp_path, f"notify:\n{one}{one}") == [
        "spotline.yaml:3: notify[1].name: expected a name that no other receiver has, found 'a'"
    ]


# --- the table --------------------------------------------------------------------------------


def test_each_key_sets_an_option_of_its_own() -> None:
    options = [sets.option for _, sets in keys()]

    assert len(set(options)) == len(options)
    assert all(options)


def test_nothing_of_the_file_is_without_a_place() -> None:
    """Each field is a key of the table, or one of those that are read as a whole."""
    top = {key.partition(".")[0] for key, _ in keys()}

    whole = {"overrides", "reservations", "limits", "notify", "clouds"}
    assert set(ConfigPart.model_fields) == top | whole
    assert path_of(("clouds", "moon")) == "clouds.moon"

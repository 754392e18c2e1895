"""`spotline broker`: keys and permissions of the bus."""

import pytest
from typer.testing import CliRunner

from spotline.bootstrap.bus_identities import IDENTITY_FOLDER, identities_of, opened_identities
from spotline.cli.main import app
from spotline.contracts.bus_access import IDENTITIES
from spotline.runtime.broker_access import deployed


def called(*words):
    return CliRunner().invoke(app, ["broker", *map(str, words)])


def test_the_configuration_is_that_of_the_table():
    assert called("config").stdout == deployed()
    assert "tenant-acme" in called("config", "--tenant", "acme").stdout


def test_keys_are_made_once_and_what_is_missing_again(tmp_path):
    assert called("keys", tmp_path / "keys", "--host", "nats").exit_code == 0
    folder = tmp_path / "keys" / "nats"
    seeds = {name: (folder / f"{name}.seed").read_text() for name in IDENTITIES}
    (folder / "selector.seed").unlink()
    assert called("keys", tmp_path / "keys", "--host", "nats").exit_code == 0
    again = {name: (folder / f"{name}.seed").read_text() for name in IDENTITIES}
    assert [name for name in IDENTITIES if again[name] != seeds[name]] == ["selector"]


def test_a_tenant_gets_a_key_and_hears_where(tmp_path):
    opened_identities(tmp_path / IDENTITY_FOLDER)
    said = called("tenant", "acme", "--store", tmp_path)
    assert said.exit_code == 0
    assert "_INBOX_tenant-acme.history" in said.stdout
    assert "next start" in said.stdout
    assert identities_of(tmp_path).tenants() == ("acme",)


@pytest.mark.parametrize("name", ["Acme", "a.b", "*", ">"])
def test_a_tenant_that_another_may_be_written_as_is_refused(tmp_path, name):
    opened_identities(tmp_path / IDENTITY_FOLDER)
    said = called("tenant", name, "--store", tmp_path)
    assert said.exit_code == 2
    assert "tenant" in said.stderr
    assert identities_of(tmp_path).tenants() == ()


def test_all_keys_are_drawn_anew(tmp_path):
    opened_identities(tmp_path / IDENTITY_FOLDER)
    before = identities_of(tmp_path).access().public_keys
    assert called("rotate", "--store", tmp_path).exit_code == 0
    after = identities_of(tmp_path).access().public_keys
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())


def test_a_store_without_identities_has_none_to_change(tmp_path):
    said = called("rotate", "--store", tmp_path)
    assert said.exit_code == 2
    assert "expected a store that was started with identities" in " ".join(said.stderr.split())


def test_nothing_that_is_secret_is_printed(tmp_path):
    said = called("keys", tmp_path / "keys", "--host", "nats")
    seeds = [f.read_text().strip() for f in (tmp_path / "keys" / "nats").glob("*.seed")]
    assert len(seeds) == len(IDENTITIES)
    assert not any(seed in said.output for seed in seeds)
    assert not any(seed in (tmp_path / "keys" / "nats" / "keys.inc").read_text() for seed in seeds)

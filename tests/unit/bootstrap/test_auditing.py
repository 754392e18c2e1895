"""Commands that change a store by themselves leave their record, and do nothing without it."""

from __future__ import annotations

import pytest

from spotline.adapters.audit.chain_file import lines_of
from spotline.application.identity.audit import Act, joined, record_of
from spotline.bootstrap.auditing import note_command, record_command
from spotline.contracts.errors import ConfigError


def acts(store) -> list[Act]:
    records = map(record_of, lines_of(store / "audit", "commands"))
    return [each.act for each in joined("commands", records)]


def test_a_command_is_recorded_with_what_it_found_out(tmp_path):
    with record_command(tmp_path, "promote", target="account=a") as record:
        record.target = "account=a mode=live"
    note_command(tmp_path, "store restore")

    first, second = acts(tmp_path)

    assert (first.action, first.target, first.outcome) == ("promote", "account=a mode=live", "OK")
    assert first.subject
    assert first.credential_id.startswith("uid:")
    assert second.action == "store restore"


def test_one_that_failed_says_so(tmp_path):
    with pytest.raises(ConfigError), record_command(tmp_path, "promote"):
        raise ConfigError("the ledger's password is hunter2")

    (act,) = acts(tmp_path)

    assert (act.outcome, act.reason) == ("FAILED", "ConfigError")
    assert "hunter2" not in str(act)


def test_nothing_is_done_that_cannot_be_recorded(tmp_path):
    (tmp_path / "audit").write_text("in the way")
    done = False

    with (
        pytest.raises(ConfigError, match="nothing was done"),
        record_command(tmp_path, "promote"),
    ):
        done = True

    assert not done

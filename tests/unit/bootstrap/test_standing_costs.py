"""Which process serves a store, and what its ledger says goes on costing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from spotline.bootstrap.clouds import chosen_cloud
from spotline.bootstrap.standing_costs import (
    CLOUD_FILE,
    RUNNING_FILE,
    RunningProcess,
    note_cloud,
    noted_cloud,
    release_store,
    standing_costs,
)
from spotline.contracts.errors import ConfigError


def test_a_store_names_the_process_that_serves_it(tmp_path):
    this = RunningProcess.this()
    this.write(tmp_path)

    assert RunningProcess.of(tmp_path) == this
    assert this.is_alive
    this.erase(tmp_path)
    assert RunningProcess.of(tmp_path) is None


def test_a_later_process_of_the_same_number_is_another(tmp_path):
    this = RunningProcess.this()
    former = replace(this, started="1")
    former.write(tmp_path)

    assert not former.is_alive
    this.erase(tmp_path)
    assert RunningProcess.of(tmp_path) == former


def test_a_process_that_ended_is_not_alive():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    running = RunningProcess(pid=ended.pid, started=RunningProcess.this().started)
    ended.wait()

    assert not running.is_alive


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": "x", "started": 1}'])
def test_what_cannot_be_read_names_nothing(tmp_path, text):
    (tmp_path / RUNNING_FILE).write_text(text)

    assert RunningProcess.of(tmp_path) is None


async def test_a_folder_without_a_ledger_is_no_store(tmp_path):
    with pytest.raises(ConfigError, match="found no ledger"):
        await standing_costs(tmp_path)
    with pytest.raises(ConfigError, match="found no ledger"):
        await release_store(tmp_path, chosen_cloud(), patience_s=1)
    assert list(tmp_path.iterdir()) == []


def test_a_store_stays_with_its_cloud(tmp_path):
    assert noted_cloud(tmp_path) == ""
    note_cloud(tmp_path, "local")
    note_cloud(tmp_path, "local")

    with pytest.raises(ConfigError, match=r"cloud must be local.*was simulated"):
        note_cloud(tmp_path, "simulated")
    assert noted_cloud(tmp_path) == "local"


def test_a_note_that_cannot_be_read_is_no_other_cloud(tmp_path):
    (tmp_path / CLOUD_FILE).write_text("{}")

    with pytest.raises(ConfigError, match="expected the name of a cloud"):
        noted_cloud(tmp_path)

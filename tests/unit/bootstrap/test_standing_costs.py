"""Which process serves a store, and what its ledger says goes on costing."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest

from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.ports import OwnerFenced
from spotline.bootstrap.clouds import chosen_cloud
from spotline.bootstrap.running_process import RUNNING_FILE, RunningProcess, _started
from spotline.bootstrap.standing_costs import (
    CLOUD_FILE,
    note_cloud,
    noted_cloud,
    release_store,
    standing_costs,
)
from spotline.bootstrap.system import LEDGER_OWNER
from spotline.contracts.errors import ConfigError, LedgerDamaged


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


def test_a_store_that_another_process_serves_is_not_to_be_served(tmp_path):
    this = RunningProcess.this()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        served = replace(this, pid=other.pid, started=_started(other.pid))
        served.write(tmp_path)

        with pytest.raises(ConfigError, match=f"in use by process {other.pid}"):
            this.claim(tmp_path)
        assert RunningProcess.of(tmp_path) == served
        other.communicate(b"\n")

    this.claim(tmp_path)
    this.claim(tmp_path)
    assert RunningProcess.of(tmp_path) == this


CLAIM = """
import sys
from pathlib import Path
from spotline.bootstrap.running_process import RunningProcess
from spotline.contracts.errors import ConfigError, LedgerDamaged

input()
try:
    RunningProcess.this().claim(Path(sys.argv[1]))
    print("claimed", flush=True)
except ConfigError:
    print("refused", flush=True)
input()
"""


def test_of_processes_that_claim_a_store_at_once_a_single_one_gets_it(tmp_path):
    with contextlib.ExitStack() as stack:
        claiming = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", CLAIM, str(tmp_path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(4)
        ]
        for process in claiming:
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.stdout.readline().strip() for process in claiming]
        named = RunningProcess.of(tmp_path)
        for process in claiming:
            process.communicate("\n")

    assert sorted(said) == ["claimed", "refused", "refused", "refused"]
    assert named.pid == claiming[said.index("claimed")].pid


async def test_asking_what_goes_on_costing_leaves_the_ledger_with_its_owner(tmp_path):
    owner = SqlLedger(ledger_url(tmp_path / "ledger.sqlite"), LEDGER_OWNER)
    try:
        assert await standing_costs(tmp_path) == ()
        owner.check_epoch()
    finally:
        owner.close()


async def test_whoever_only_looks_at_a_ledger_cannot_write_it(tmp_path):
    url = ledger_url(tmp_path / "ledger.sqlite")
    SqlLedger(url, LEDGER_OWNER).close()
    looking = SqlLedger.looked_at(url, LEDGER_OWNER)
    try:
        with pytest.raises(OwnerFenced):
            looking.check_epoch()
    finally:
        looking.close()


async def test_a_ledger_of_another_schema_is_not_read_as_if_it_were_ours(tmp_path):
    file = tmp_path / "ledger.sqlite"
    SqlLedger(ledger_url(file), LEDGER_OWNER).close()
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE ledger_schema SET version = 2")

    with pytest.raises(ConfigError, match=r"must have schema \d+ to be read, has 2"):
        await standing_costs(tmp_path)


async def test_a_file_that_is_no_ledger_is_told_from_one_that_was_not_written_yet(tmp_path):
    file = tmp_path / "ledger.sqlite"
    file.write_bytes(b"no database" * 100)
    with pytest.raises(LedgerDamaged, match="not a database"):
        await standing_costs(tmp_path)

    file.write_bytes(b"")
    with pytest.raises(ConfigError, match="the ledger cannot be opened"):
        await standing_costs(tmp_path)


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

"""`spotline store`: what is found of a store, copies of it, and going on after a loss."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spotline.adapters.audit.chain_file import lines_of
from spotline.bootstrap.running_process import RunningProcess
from spotline.bootstrap.store_check import CheckState, check_store, exit_code_of
from spotline.bootstrap.store_copies import back_up, read_backup, restore
from spotline.bootstrap.store_repair import REPAIRS_FILE, repair_store
from spotline.cli.main import app
from spotline.contracts.errors import ConfigError
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.lifecycle import JobSubmitted
from tests.fakes.log_losses import flip_bytes
from tests.fakes.whole_system import (
    JOBS,
    events_in,
    ledger_of,
    log_in,
    until_slot,
    verified,
    wipe,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, arguments)])


async def found(store: Path) -> dict[str, str]:
    """What is not well, by part."""
    findings = await check_store(store)
    return {each.part: each.detail for each in findings if each.state is not CheckState.WELL}


async def test_a_store_that_is_well_is_told_so_and_its_copy_goes_on_as_it_would(
    tmp_path: Path,
) -> None:
    store, copy, again = tmp_path / "store", tmp_path / "copy", tmp_path / "again"
    async with until_slot(store, 3, JOBS[:1]):
        this = RunningProcess.this()
        this.claim(store)
        running = await back_up(store, tmp_path / "running")
        assert running.streams["SPOTLINE_0"] > 0
        with pytest.raises(ConfigError, match="in use by process"):
            await repair_store(store, perform=True)
        this.erase(store)
    assert await found(store) == {}
    assert await repair_store(store, perform=False) == []

    made = await back_up(store, copy)
    await restore(copy, again)

    before, after = await log_in(store), await log_in(again)
    assert [entry.payload for entry in after] == [entry.payload for entry in before]
    assert [entry.stored_ns for entry in after] == [entry.stored_ns for entry in before]
    assert ledger_of(again) == ledger_of(store)
    recorded = list(lines_of(store / "audit", "allocator"))
    assert recorded, "the job's submission is recorded"
    assert list(lines_of(again / "audit", "allocator")) == recorded
    assert made.streams["SPOTLINE_0"] == len(before)
    async with until_slot(again, 4):
        pass
    log = await log_in(again)
    (begun,) = [event for event in events_in(log) if isinstance(event, IncarnationBegun)]
    assert begun.detail.startswith("restored from a copy that was made")
    verified(log, again)


async def test_a_copy_is_refused_that_is_not_what_was_written(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    async with until_slot(store, 1):
        pass
    await back_up(store, copy)
    with pytest.raises(ConfigError, match="expected an empty folder for the store"):
        await restore(copy, store)
    with pytest.raises(ConfigError, match="expected a new folder for the copy"):
        await back_up(store, copy)

    ledger = copy / "ledger.sqlite"
    content = bytearray(ledger.read_bytes())
    content[len(content) // 2] ^= 1
    ledger.write_bytes(content)

    with pytest.raises(ConfigError, match=r"ledger.sqlite: expected digest \w+, found one of"):
        await restore(copy, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    (copy / "backup.json").unlink()
    with pytest.raises(ConfigError, match="expected the folder of a backup"):
        read_backup(copy)


async def test_a_wiped_log_is_found_and_repaired_once_before_the_next_start(
    tmp_path: Path,
) -> None:
    async with until_slot(tmp_path, 3, JOBS[:2]):
        pass
    await wipe(tmp_path)

    assert (await found(tmp_path))["log"] == "the stream SPOTLINE_0 is gone"
    planned = await repair_store(tmp_path, perform=False)
    assert (await found(tmp_path))["log"] == "the stream SPOTLINE_0 is gone", "nothing was done"
    assert planned[0].step == "make the log"

    done = await repair_store(tmp_path, perform=True)

    assert [step.step for step in done][:2] == ["make the log", "begin incarnation 2"]
    assert await repair_store(tmp_path, perform=True) == []
    noted = [json.loads(line) for line in (tmp_path / REPAIRS_FILE).read_text().splitlines()]
    assert [line["step"] for line in noted] == [step.step for step in done]
    assert await found(tmp_path) == {}
    events = events_in(await log_in(tmp_path))
    again = {event.job.job_id for event in events if isinstance(event, JobSubmitted)}
    assert again == {job.job_id for job in JOBS[:2]}
    async with until_slot(tmp_path, 4):
        pass
    verified(await log_in(tmp_path), tmp_path)


async def test_a_cut_log_and_a_flipped_bit_of_the_ledger_are_found(tmp_path: Path) -> None:
    async with until_slot(tmp_path, 3, JOBS[:1]):
        pass
    flip_bytes(tmp_path / "broker", at=0.5)
    assert "the log ends at entry" in (await found(tmp_path))["continuity"]

    with sqlite3.connect(tmp_path / "ledger.sqlite") as ledger:
        ledger.execute("UPDATE charges SET cost_micro_usd = cost_micro_usd + 1")
    ledger.close()

    findings = await check_store(tmp_path)
    assert exit_code_of(findings) == 2
    (damaged,) = [each for each in findings if each.part == "ledger"]
    assert "charges (owner='default', slot=0" in damaged.detail
    assert damaged.continue_with == "spotline store restore"


def test_the_commands_say_what_they_find_and_exit_by_it(tmp_path: Path) -> None:
    import asyncio

    store, copy = tmp_path / "store", tmp_path / "copy"

    async def made() -> None:
        async with until_slot(store, 1):
            pass

    asyncio.run(made())

    well = run("check", "--store", store, "--json")
    assert (well.exit_code, json.loads(well.stdout)["exit_code"]) == (0, 0)
    assert run("backup", copy, "--store", store).exit_code == 0
    assert run("restore", copy, "--store", tmp_path / "again").exit_code == 0
    assert "nothing is to be done" in run("repair", "--store", store).stdout
    asyncio.run(wipe(store))
    gone = run("check", "--store", store)
    assert gone.exit_code == 1
    assert "log: found: the stream SPOTLINE_0 is gone" in gone.stdout
    assert "continue with: spotline store repair" in gone.stdout
    refused = run("check", "--store", tmp_path / "nowhere")
    assert refused.exit_code == 2

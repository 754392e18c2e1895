"""What the page of replays is told: each entry's verdict, and what was beside what would have been."""

import asyncio
import subprocess
import sys

import pytest

from spotline.application.page.replaying import ReplayAsked, ReplayVerdict, WhatIfAsked
from spotline.bootstrap.replaying import LogReplays, beside, verified, worked_out
from spotline.bootstrap.web import logs_in, serve_logs
from spotline.contracts.errors import ConfigError, ContractError
from spotline.domain.events.allocation import AllocationDecided
from spotline.replay.summary import SPOTLINE
from tests.eventually import PATIENCE_S
from tests.fakes.recorded_run import altered, small_run, write_log


@pytest.fixture(scope="module")
def entries():
    return small_run()


@pytest.fixture(scope="module")
def log(entries, tmp_path_factory):
    directory = tmp_path_factory.mktemp("page") / "log"
    write_log(directory, entries)
    return directory


def test_every_decision_of_a_run_is_the_same(log, entries):
    found = verified(log)
    assert found.same
    assert found.entries == len(entries)
    verdicts = [each.verdict for each in found.verdicts]
    assert set(verdicts) == {ReplayVerdict.SAME, ReplayVerdict.INPUT}
    made = sum(each.decisions for each in found.services if each.service != "analytics")
    assert verdicts.count(ReplayVerdict.SAME) == made


def test_an_altered_decision_is_the_only_one_that_diverges(entries, tmp_path):
    from dataclasses import replace

    other, seq = altered(
        entries, AllocationDecided, lambda decided: replace(decided, lots=()), nth=3
    )
    write_log(tmp_path / "log", other)
    found = verified(tmp_path / "log")
    assert not found.same
    (divergence,) = found.divergences
    assert divergence.seq == seq
    assert any("lots" in difference for difference in divergence.differences)
    wrong = [each.seq for each in found.verdicts if each.verdict is ReplayVerdict.DIVERGED]
    assert wrong == [seq]


def test_a_folder_that_is_no_log_is_told(tmp_path):
    found = worked_out(tmp_path, ReplayAsked(verify=True))
    assert "manifest.json" in found.problem
    assert not found.same


def test_jobs_stand_beside_what_they_were(log):
    found = beside(log, WhatIfAsked(rule="on_demand_only", on_demand_factor="2"))
    assert not found.problem
    assert found.changed == ("on-demand prices x 2",)
    same = beside(log, WhatIfAsked(rule="on_demand_only"))
    assert same.compared
    # Where it is dear, another place may be chosen: never more than twice as dear as where it was.
    for dear, as_it_was in zip(found.compared, same.compared, strict=True):
        once = as_it_was.other_cost_micro_usd
        assert once < dear.other_cost_micro_usd <= 2 * once
    assert found.cost_micro_usd == same.cost_micro_usd
    for job in found.compared:
        assert job.more_micro_usd == job.other_cost_micro_usd - job.cost_micro_usd


def test_what_jobs_held_and_would_have_stands_side_by_side(log):
    home = beside(log, WhatIfAsked(rule="msu"))
    offering_id = home.compared[0].other_slots[0].lots[0].offering_id
    found = beside(log, WhatIfAsked(rule="msu", gone=offering_id, gone_from=0))

    assert found.changed == (f"{offering_id} gone from slot 0",)
    for job in found.compared:
        assert job.slots[-1].cost_micro_usd == job.cost_micro_usd
        assert sum(slot.cost_micro_usd for slot in job.other_slots[-1:]) == job.other_cost_micro_usd
        held = {
            lot.offering_id
            for slot in job.other_slots
            for lot in slot.lots
            if lot.spot + lot.on_demand
        }
        assert offering_id not in held
        assert [slot.slot for slot in job.slots] == sorted({slot.slot for slot in job.slots})


@pytest.mark.parametrize(
    "asked",
    [
        WhatIfAsked(gone="nowhere"),
        WhatIfAsked(gone_cloud="nobody"),
        WhatIfAsked(counts="2"),
        WhatIfAsked(rule="no_such_rule"),
        WhatIfAsked(deadline="soon"),
        WhatIfAsked(rule=SPOTLINE, spot_factor="-1"),
    ],
)
def test_what_cannot_be_asked_is_told(log, asked):
    with pytest.raises(ContractError):
        beside(log, asked)
    told = worked_out(log, ReplayAsked(what_if=asked))
    assert "expected" in told.problem


def test_nothing_is_worked_out_before_it_is_asked(log):
    replays = LogReplays(log)
    try:
        shown = replays.answer(ReplayAsked())
        assert not shown.running
        assert shown.verified is None
        assert SPOTLINE in shown.rules
    finally:
        replays.close()


def test_a_folder_shows_all_its_logs(log, tmp_path):
    assert logs_in(log) == (log,)
    for name in ("second", "first"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    assert [found.name for found in logs_in(tmp_path)] == ["first", "second"]
    for place in range(40):
        (tmp_path / f"more-{place}").mkdir()
        (tmp_path / f"more-{place}" / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match="at most 32"):
        logs_in(tmp_path)


async def test_several_logs_are_served_each_at_its_own_address(log, entries, tmp_path):
    for name in ("a", "b"):
        write_log(tmp_path / name, entries[:40])
    told = []
    both = asyncio.Event()

    def tell(line):
        told.append(line)
        if len(told) == 2:
            both.set()

    serving = asyncio.create_task(serve_logs(tmp_path, address="127.0.0.1:0", told=tell))
    await both.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert sorted(line.split()[0] for line in told) == ["a", "b"]
    assert len({line.split()[1] for line in told}) == 2


_BEGINS_AND_IS_KILLED = """
import multiprocessing, os, signal, sys
from spotline.bootstrap.beside import end_with_parent

def wait(pipe):
    end_with_parent()
    pipe.send(os.getpid())
    multiprocessing.Event().wait()

if __name__ == "__main__":
    fresh = multiprocessing.get_context("spawn")
    here, there = fresh.Pipe()
    fresh.Process(target=wait, args=(there,)).start()
    print(here.recv(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_works_out_a_replay_ends_with_a_killed_server(tmp_path):
    script = tmp_path / "server.py"
    script.write_text(_BEGINS_AND_IS_KILLED)
    # The worker holds the pipe open as long as it lives: `communicate` returns when it is gone.
    server = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    told, _ = server.communicate(timeout=PATIENCE_S)
    assert int(told) > 0

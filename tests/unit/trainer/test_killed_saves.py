"""kill -9 within a save, and disks that are full: the newest complete checkpoint is there."""

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spotline.trainer import attach
from tests.fakes.agent_files import AgentFiles, python_environ
from tests.unit.trainer import saver

SAVER = Path(saver.__file__)
SEED = 20261122
KILLS, MOST_KILLS = 12, 60


@pytest.fixture
def job(tmp_path):
    return AgentFiles(tmp_path / "run")


def start(job, *words):
    return subprocess.Popen(
        [sys.executable, str(SAVER), *map(str, words)],
        env=python_environ(**job.environ()),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(job, *words):
    with start(job, *words) as program:
        said, complaints = program.communicate(timeout=100)
    return program.returncode, said.splitlines(), complaints


def newest(job):
    job.generation += 1
    found = attach(environ=job.environ()).resume()
    assert found is None or saver.holds(found.path, found.step)
    return 0 if found is None else found.step


def test_a_program_killed_at_random_moments_loses_no_more_than_the_save_in_hand(job):
    chance = random.Random(SEED)
    before, kills, within = 0, 0, 0
    # The others hit between two saves, or before the first: how many, the machine says.
    while kills < KILLS or within < KILLS // 4:
        kills += 1
        assert kills <= MOST_KILLS, f"only {within} of {kills - 1} kills hit within a save"
        with start(job, 10**6, 0) as program:
            try:
                assert program.stdout.readline().split() == ["ready", str(before)]
                killed_at = time.monotonic() + chance.uniform(0.005, 0.08)
                # The moment itself is what is tested, so this waits for nothing but the clock.
                while time.monotonic() < killed_at:
                    pass
            finally:
                program.kill()
            said = program.stdout.read().splitlines()
            program.stderr.read()
        saved = [int(line.split()[1]) for line in said if line.startswith("saved ")]
        committed = max(saved, default=before)

        before = newest(job)

        assert committed <= before <= committed + 1
        within = len([event for event in job.events("checkpoint") if "fault" in event])
    faults = {event.get("fault") for event in job.events("checkpoint")} - {None}
    assert faults == {"incomplete"}
    assert not [path for path in (job.checkpoints / "checkpoints").iterdir() if path.name[0] == "."]


def test_a_program_killed_at_any_call_of_a_save_leaves_the_one_before_or_this_one(job):
    code, said, complaints = run(job, "every-call")

    assert code == 0, complaints
    ends = [line.split()[1:] for line in said if line.startswith("killed ")]
    assert [code for code, _, _ in ends] == ["-9"] * (len(ends) - 1) + ["0"]
    assert {whole for _, _, whole in ends} == {"True"}
    found = [int(step) for _, step, _ in ends]
    assert set(found) == {3, 4}
    assert found == sorted(found)  # from one call on it is this one
    assert len(ends) > 10


def test_a_file_that_cannot_grow_leaves_the_one_before(job):
    assert run(job, 3, 0)[0] == 0

    code, said, complaints = run(job, 2, saver.BLOCK // 2)

    assert (code, said) == (0, ["ready 3", "trained 5"])
    assert "not_written: OSError: [Errno 27] File too large" in complaints
    faults = [(event["step"], event["fault"]) for event in job.events("checkpoint")[3:]]
    assert faults == [(4, "not_written"), (5, "not_written")]
    assert newest(job) == 3


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with room for one checkpoint and a half."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs: sudo .venv/bin/python -m pytest " + __file__)
    disk = tmp_path / "disk"
    disk.mkdir()
    size = saver.FILES * saver.BLOCK * 3 // 2
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_leaves_the_one_before_and_is_told(small_disk, tmp_path):
    job = AgentFiles(tmp_path / "run", checkpoints=small_disk)

    code, said, complaints = run(job, 3, 0)

    assert (code, said) == (0, ["ready 0", "saved 1", "trained 3"])
    assert "No space left on device" in complaints
    assert [event.get("fault") for event in job.events("checkpoint")] == [
        *(None, "not_written", "not_written")
    ]
    assert newest(job) == 1


def test_a_disk_without_room_for_a_line_does_not_end_training(small_disk, capsys):
    job = AgentFiles(small_disk / "run", checkpoints=small_disk)
    session = attach(environ=job.environ())
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass

    session.report(step=1, done=1)

    assert "progress was not told: [Errno 28] No space left on device" in capsys.readouterr().err
    assert job.events() == []
    filler.unlink()
    session.report(step=2, done=2)
    with pytest.raises(SystemExit):
        session.exit_to_resume()
    assert [event["step"] for event in job.events()] == [2]

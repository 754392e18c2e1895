"""The same training without Spotline and without a disturbance: what the proof is compared with.

Runs are kept under the digest of all that shapes them, so that only the first proof on a machine
waits for them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spotline.contracts.errors import SpotlineError
from spotline.demo.train.accounts import reckoned
from spotline.demo.train.diary import Page, read_diary
from spotline.demo.train.scenario import TrainingProgram, TrainingTask

_TAIL = 2000
_FINISHED = "finished"


class ProgramFailed(SpotlineError):
    """A training program ended with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndisturbedRun:
    """How a task ended that nothing disturbed, with one seed.

    It made `steps_per_s` updates in a second of a core, whatever else ran, after `start_s` such
    seconds of starting.
    """

    task: TrainingTask
    seed: int
    held_out_loss: float
    losses: Mapping[int, float]
    steps_per_s: float
    start_s: float


async def pretrained(cache: Path, *, steps: int, seed: int = 0) -> Path:
    """Pre-train the base model, or find it; returns its folder.

    Raises
    ------
    ProgramFailed
        The program failed; its last words are told.
    """
    script = Path(__file__).with_name("program") / "pretrain_tiny.py"
    options = ("--steps", str(steps), "--seed", str(seed))
    folder = cache / "base" / _digest(script, *options)
    if not (folder / _FINISHED).exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        await _run((sys.executable, str(script), str(folder), *options), folder)
        _finish(folder)
    return folder


async def undisturbed(
    program: TrainingProgram, tasks: Sequence[TrainingTask], seeds: Sequence[int], cache: Path
) -> list[UndisturbedRun]:
    """Run the tasks with every seed, as many at a time as there are cores.

    They are the same training, of which each takes as many updates as it states: one run of the
    longest, judged on the way, tells of all.

    Raises
    ------
    ProgramFailed
        One failed; its last words are told.
    """
    room = asyncio.Semaphore(os.cpu_count() or 1)
    longest = max(tasks, key=lambda task: task.steps)
    program = replace(
        program,
        options=(*program.options, "--judged-at", *(str(task.steps) for task in tasks)),
    )

    async def run(seed: int) -> list[UndisturbedRun]:
        async with room:
            return await _undisturbed(program, longest, tasks, seed, cache)

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(run(seed), name=f"seed-{seed}") for seed in seeds]
    return [ran for done in running for ran in done.result()]


async def _undisturbed(
    program: TrainingProgram,
    longest: TrainingTask,
    tasks: Sequence[TrainingTask],
    seed: int,
    cache: Path,
) -> list[UndisturbedRun]:
    # When it may begin and must end changes nothing of what is trained.
    shape = replace(longest, name="", first_slot=0, deadline_slots=0, counts=(1,))
    key = _digest(program.path, repr(shape), str(seed), *map(str, program.options))
    for name, folder in sorted(program.folders.items()):
        key = _digest(program.path, key, name, *_contents(folder))
    folder = cache / "undisturbed" / key
    diary = folder / "diary"
    if not (folder / _FINISHED).exists():
        shutil.rmtree(folder, ignore_errors=True)
        work = folder / "work"
        lay_out(program, work)
        words = program.words(longest, diary=diary.resolve(), seed=seed)
        await _run(words, work)
        shutil.rmtree(work)
        _finish(folder)
    pages = read_diary(diary)
    account = reckoned(pages, steps=longest.steps, batch=longest.batch)
    if account.problems:
        raise ProgramFailed(f"{longest.name}, seed {seed}, undisturbed: {account.problems[0]}")
    judged = {note["step"]: note["held_out_loss"] for page in pages for note in page.of("judged")}
    return [
        UndisturbedRun(
            task=task,
            seed=seed,
            held_out_loss=judged[task.steps],
            losses={step: loss for step, loss in account.losses.items() if step <= task.steps},
            steps_per_s=_rate(pages),
            start_s=next(pages[0].of("began"))["cpu_s"],
        )
        for task in tasks
    ]


def lay_out(program: TrainingProgram, work: Path) -> None:
    """Make the working directory of a program."""
    work.mkdir(parents=True)
    shutil.copy(program.path, work / program.script)
    for name, folder in program.folders.items():
        shutil.copytree(folder, work / name)


async def _run(words: Sequence[str], work: Path) -> None:
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("SPOTLINE_")},
        "OMP_NUM_THREADS": "1",
    }
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=work,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ProgramFailed(
            f"{' '.join(words)} ended with {process.returncode}: {said.decode()[-_TAIL:]}"
        )


def _rate(pages: Sequence[Page]) -> float:
    """Updates in a second of a core, the start of the program apart."""
    reached = [note["cpu_s"] for page in pages for note in page.of("reached")]
    return float((len(reached) - 1) / max(1e-3, reached[-1] - reached[0]))


def _finish(folder: Path) -> None:
    (folder / _FINISHED).touch()


def _contents(folder: Path) -> list[str]:
    return [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


def _digest(script: Path, *words: str) -> str:
    """Digest what a program does: itself, its text, what it notes, and its options."""
    digest = hashlib.sha256()
    for path in (script, *map(Path(__file__).with_name, ("tokens.py", "diary.py"))):
        digest.update(path.read_bytes())
    digest.update("\0".join(words).encode())
    return digest.hexdigest()[:24]

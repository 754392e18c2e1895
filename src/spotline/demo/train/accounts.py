"""Was every position trained once? A reckoning over the diaries of all generations.

The result of a job descends from a chain of checkpoints. Of each generation those updates count
that a later one, or the result, builds on; all others are work lost. What counts must be each
position of the text exactly once, by all ranks of one generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from spotline.demo.train.diary import Page, read_diary


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationAccount:
    """What became of one generation's updates: (`resumed`, `kept`] count, up to `reached` are lost."""

    generation: int
    world: int
    resumed: int
    kept: int
    reached: int

    @property
    def lost(self) -> int:
        """Updates that were begun and that nothing builds on."""
        return self.reached - max(self.kept, self.resumed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAccount:
    """The reckoning of a job; `problems` are all ways in which it does not add up."""

    steps: int
    batch: int
    generations: tuple[GenerationAccount, ...]
    problems: tuple[str, ...]
    held_out_loss: float | None
    losses: Mapping[int, float]

    @property
    def steps_lost(self) -> int:
        """Updates that had to be made again, or were begun in vain."""
        return sum(generation.lost for generation in self.generations)

    @property
    def resizes(self) -> int:
        """Changes of the number of ranks between generations that trained."""
        worlds = [generation.world for generation in self.generations]
        return sum(before != after for before, after in pairwise(worlds))


def account_of(folder: Path, *, steps: int, batch: int) -> TrainingAccount:
    """Reckon up the diaries of a job.

    Parameters
    ----------
    folder
        That of its diaries.
    steps, batch
        Updates that the whole training takes, and samples of each: update s (from 1) is to train
        the positions (s - 1) * batch .. s * batch - 1.

    Raises
    ------
    DiaryDamaged
        A diary cannot be read.
    """
    return reckoned(read_diary(folder), steps=steps, batch=batch)


def reckoned(pages: Sequence[Page], *, steps: int, batch: int) -> TrainingAccount:
    """Reckon up diaries that were read."""
    problems: list[str] = []
    by_generation = {
        generation: tuple(same) for generation, same in groupby(pages, lambda page: page.generation)
    }
    spans: list[GenerationAccount] = []
    limit = steps
    for generation in sorted(by_generation, reverse=True):
        began = [note for page in by_generation[generation] for note in page.of("began")]
        if not began:
            # Killed before it had loaded anything.
            continue
        resumed, world = began[0]["step"], began[0]["world"]
        if any((note["step"], note["world"]) != (resumed, world) for note in began):
            problems.append(f"generation {generation}: its ranks began differently: {began}")
        reached = max(
            (note["step"] for page in by_generation[generation] for note in page.of("update")),
            default=resumed,
        )
        kept = min(reached, limit)
        if kept < limit and resumed < limit:
            problems.append(
                f"generation {generation}: trained up to step {reached}, and step {limit} was built on"
            )
        spans.append(
            GenerationAccount(
                generation=generation, world=world, resumed=resumed, kept=kept, reached=reached
            )
        )
        limit = min(limit, resumed)
    if limit:
        problems.append(f"steps 1 to {limit} are in no diary")
    spans.reverse()
    for span in spans:
        problems += _update_problems(span, by_generation[span.generation], batch)
    problems += _parameter_problems(pages)
    ended = [note for page in pages for note in page.of("ended")]
    if not ended:
        problems.append("no diary says that the training ended")
    elif {note["step"] for note in ended} != {steps}:
        problems.append(f"it ended at {[note['step'] for note in ended]}, not at step {steps}")
    return TrainingAccount(
        steps=steps,
        batch=batch,
        generations=tuple(spans),
        problems=tuple(problems),
        held_out_loss=ended[-1]["held_out_loss"] if ended else None,
        losses=_losses(spans, by_generation),
    )


def _update_problems(span: GenerationAccount, pages: Sequence[Page], batch: int) -> list[str]:
    trained: dict[int, list[int]] = {}
    by_step: dict[int, list[int]] = {}
    for page in pages:
        for note in page.of("update"):
            trained.setdefault(note["step"], []).extend(note["positions"])
            by_step.setdefault(note["step"], []).append(page.rank)
    problems = []
    for step in range(span.resumed + 1, span.kept + 1):
        where = f"generation {span.generation}, step {step}"
        if sorted(by_step.get(step, [])) != list(range(span.world)):
            problems.append(
                f"{where}: expected one note of each of {span.world} ranks, "
                f"found those of {sorted(by_step.get(step, []))}"
            )
        wanted = list(range((step - 1) * batch, step * batch))
        found = sorted(trained.get(step, []))
        if found != wanted:
            problems.append(
                f"{where}: expected positions {wanted[0]} to {wanted[-1]} once each, found {found}"
            )
    return problems


def _parameter_problems(pages: Sequence[Page]) -> list[str]:
    """Whatever is resumed must be what an earlier generation had after that very step."""
    reached: dict[int, set[str]] = {}
    problems: list[str] = []
    # Pages come by generation: what a later one reached proves nothing.
    for page in pages:
        problems += [
            f"generation {page.generation}, rank {page.rank}: parameters of step "
            f"{note['step']} are {note['parameters'][:12]}, which none had before it"
            for note in page.of("began")
            if note["step"] and note["parameters"] not in reached.get(note["step"], set())
        ]
        for note in page.of("reached"):
            reached.setdefault(note["step"], set()).add(note["parameters"])
    return problems


def _losses(
    spans: Sequence[GenerationAccount], by_generation: Mapping[int, Sequence[Page]]
) -> Mapping[int, float]:
    """Training loss by step, of the updates that count."""
    found: dict[int, float] = {}
    for span in spans:
        for page in by_generation[span.generation]:
            for note in page.of("loss"):
                if span.resumed < note["step"] <= span.kept:
                    found[note["step"]] = note["loss"]
    return dict(sorted(found.items()))

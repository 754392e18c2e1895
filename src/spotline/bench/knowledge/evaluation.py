"""How well knowledge sources predict runs they have not seen: rates, intervals, success.

Everything a source chooses (weights, kernels, intervals) it chooses inside the runs it is given to
learn from. All runs of one configuration are on the same side of a split, stacks are never mixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from spotline.bench.knowledge.validity import ValidityReport, real_validity
from spotline.domain.configuration.configuration import Configuration, MeasuredRun, Prediction
from spotline.domain.configuration.features import unknown_part
from spotline.domain.configuration.interface import KnowledgeSource
from spotline.domain.configuration.models import model_facts
from spotline.domain.configuration.registry import DEFAULT_SOURCE, make_source, source_names

RANDOM_SPLIT = "random"
LEAVE_ONE_MODEL_OUT = "leave_one_model_out"
SPLITS = (RANDOM_SPLIT, LEAVE_ONE_MODEL_OUT)
LEARNING_CURVE = (10, 25, 50, 100, 200, 400, 600, 1_000, 2_500, 5_000, 10_000)
_DEFAULT_CURVES: Mapping[str, Sequence[int]] = MappingProxyType({DEFAULT_SOURCE: LEARNING_CURVE})
# More models than these are left out in groups of about equal size.
MOST_MODEL_PARTS = 12

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of predicted rates, in percent of the measured rate.

    Attributes
    ----------
    runs
        Predicted runs; `declined` are those the source said nothing of.
    mdape_percent, p90_percent
        Median and 90 % quantile of the absolute error.
    bias_percent
        Median of the signed error: > 0 promises too much.
    coverage
        Share of measured rates inside the 90 % interval.
    relative_width
        Mean of (high - low) over the predicted rate.
    """

    runs: int
    declined: int
    mdape_percent: float
    p90_percent: float
    bias_percent: float
    coverage: float
    relative_width: float

    def as_json(self) -> dict[str, Any]:
        """Plain numbers, rounded to what they can tell."""
        return {
            "runs": self.runs,
            "declined": self.declined,
            "mdape_percent": round(self.mdape_percent, 2),
            "p90_percent": round(self.p90_percent, 2),
            "bias_percent": round(self.bias_percent, 2),
            "coverage": round(self.coverage, 4),
            "relative_width": round(self.relative_width, 4),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport:
    """Scores of one source on one split: all held-out runs together, and by stack."""

    pooled: Score
    by_stack: dict[str, Score]

    def as_json(self) -> dict[str, Any]:
        """The pooled score, with those of the stacks under `by_stack`."""
        stacks = {stack: score.as_json() for stack, score in sorted(self.by_stack.items())}
        return {**self.pooled.as_json(), "by_stack": stacks}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """What `evaluate_sources` found."""

    splits: dict[str, dict[str, SplitReport]]
    by_samples: dict[str, dict[int, Score]]
    validity: ValidityReport | None
    seed: int
    repeats: int
    test_share: float
    skipped_stacks: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Nested dictionaries: split, source, score; samples, source, score."""
        return {
            "seed": self.seed,
            "repeats": self.repeats,
            "test_share": self.test_share,
            "skipped_stacks": list(self.skipped_stacks),
            "splits": {
                split: {name: report.as_json() for name, report in sorted(sources.items())}
                for split, sources in self.splits.items()
            },
            "by_samples": {
                name: {str(samples): score.as_json() for samples, score in sorted(curve.items())}
                for name, curve in sorted(self.by_samples.items())
            },
            "validity": self.validity.as_json() if self.validity else {},
        }


@dataclass(frozen=True, slots=True)
class _Case:
    """Learn from some runs of a stack, be asked of others."""

    stack: str
    train: tuple[MeasuredRun, ...]
    test: tuple[MeasuredRun, ...]


@dataclass(slots=True)
class _Tally:
    """Signed relative errors and intervals of predicted runs."""

    errors: list[float] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    declined: int = 0

    def add(self, run: MeasuredRun, said: Prediction) -> None:
        self.errors.append(said.tokens_per_s / run.tokens_per_s - 1.0)
        self.inside.append(said.low_tokens_per_s <= run.tokens_per_s <= said.high_tokens_per_s)
        self.widths.append((said.high_tokens_per_s - said.low_tokens_per_s) / said.tokens_per_s)

    def join(self, other: _Tally) -> None:
        self.errors += other.errors
        self.inside += other.inside
        self.widths += other.widths
        self.declined += other.declined

    def score(self) -> Score:
        if not self.errors:
            return Score(
                runs=0,
                declined=self.declined,
                mdape_percent=math.nan,
                p90_percent=math.nan,
                bias_percent=math.nan,
                coverage=math.nan,
                relative_width=math.nan,
            )
        errors = 100.0 * np.array(self.errors)
        return Score(
            runs=len(errors),
            declined=self.declined,
            mdape_percent=float(np.median(np.abs(errors))),
            p90_percent=float(np.quantile(np.abs(errors), 0.9)),
            bias_percent=float(np.median(errors)),
            coverage=float(np.mean(self.inside)),
            relative_width=float(np.mean(self.widths)),
        )


def evaluate_sources(
    runs: Sequence[MeasuredRun],
    *,
    sources: Sequence[str] = (),
    splits: Sequence[str] = SPLITS,
    repeats: int = 5,
    seed: int = 0,
    test_share: float = 0.15,
    curves: Mapping[str, Sequence[int]] = _DEFAULT_CURVES,
    progress: Progress | None = None,
) -> EvaluationReport:
    """Hold runs out of every stack, learn from the rest, compare.

    Parameters
    ----------
    runs
        Any number of stacks. One with a single measured configuration cannot be split and is
        listed in `skipped_stacks`; leaving a model out needs two models.
    sources
        Names in the registry; none: all.
    splits
        `random`: `repeats` times `test_share` of a stack's configurations. `leave_one_model_out`:
        every model in turn (in at most 12 parts); failures of the model are left out as well.
    curves
        By source the numbers of configurations to learn from in its learning curve, on the random
        split. Stacks with fewer are left out of a point.

    Raises
    ------
    ValueError
        No stack can be split, or an argument is out of its range; the message says which.
    """
    names = tuple(sources) or source_names()
    _check(names, splits, repeats, test_share)
    usable = [run for run in runs if not unknown_part(run.configuration)]
    by_stack = _by_stack(usable)
    skipped = tuple(stack for stack, own in by_stack.items() if len(_measured(own)) < 2)
    kept = {stack: own for stack, own in by_stack.items() if stack not in skipped}
    if not kept:
        raise ValueError(
            "runs must hold a stack with at least 2 measured configurations, "
            f"had {len(runs)} runs of {len(by_stack)} stacks"
        )
    random_cases = _random_cases(kept, repeats=repeats, seed=seed, test_share=test_share)
    cases = {RANDOM_SPLIT: random_cases, LEAVE_ONE_MODEL_OUT: _model_cases(kept)}
    found: dict[str, dict[str, SplitReport]] = {}
    for split in splits:
        found[split] = {}
        for name in names:
            found[split][name] = _score_cases(name, cases[split])
            _say(progress, f"{split} {name} {found[split][name].pooled.mdape_percent:.2f} %")
    points = {
        name: _learning_curve(name, random_cases, curve, progress) for name, curve in curves.items()
    }
    return EvaluationReport(
        splits=found,
        by_samples=points,
        validity=real_validity(usable),
        seed=seed,
        repeats=repeats,
        test_share=test_share,
        skipped_stacks=skipped,
    )


def _check(names: Sequence[str], splits: Sequence[str], repeats: int, test_share: float) -> None:
    for name in names:
        if name not in source_names():
            raise ValueError(f"sources must be among {', '.join(source_names())}, had {name!r}")
    for split in splits:
        if split not in SPLITS:
            raise ValueError(f"splits must be among {', '.join(SPLITS)}, had {split!r}")
    if repeats < 1:
        raise ValueError(f"repeats must be >= 1, was {repeats}")
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must lie between 0 and 1, was {test_share}")


def _say(progress: Progress | None, line: str) -> None:
    if progress is not None:
        progress(line)


def _by_stack(runs: Iterable[MeasuredRun]) -> dict[str, tuple[MeasuredRun, ...]]:
    found: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        found.setdefault(run.stack, []).append(run)
    return {stack: tuple(own) for stack, own in sorted(found.items())}


def _measured(runs: Iterable[MeasuredRun]) -> list[Configuration]:
    """Configurations with a rate, each once, in a stable order."""
    return sorted({run.configuration for run in runs if run.tokens_per_s > 0}, key=repr)


def _case(stack: str, runs: Sequence[MeasuredRun], tested: set[Configuration]) -> _Case:
    return _Case(
        stack=stack,
        train=tuple(run for run in runs if run.configuration not in tested),
        test=tuple(run for run in runs if run.configuration in tested and run.tokens_per_s > 0),
    )


def _random_cases(
    by_stack: dict[str, tuple[MeasuredRun, ...]], *, repeats: int, seed: int, test_share: float
) -> list[_Case]:
    cases = []
    for place, (stack, runs) in enumerate(by_stack.items()):
        measured = _measured(runs)
        count = min(len(measured) - 1, max(1, round(test_share * len(measured))))
        for repeat in range(repeats):
            rng = np.random.default_rng([seed, repeat, place])
            chosen = rng.permutation(len(measured))[:count].tolist()
            cases.append(_case(stack, runs, {measured[index] for index in chosen}))
    return cases


def _model_cases(by_stack: dict[str, tuple[MeasuredRun, ...]]) -> list[_Case]:
    cases = []
    for stack, runs in by_stack.items():
        by_model: dict[str, list[MeasuredRun]] = {}
        for run in runs:
            # By what the model is: two spellings of a name are one model.
            one = run.configuration
            name = model_facts(one.model_name, one.model_parameters).name
            by_model.setdefault(name, []).append(run)
        measured = [name for name in sorted(by_model) if _measured(by_model[name])]
        if len(measured) < 2:
            continue
        parts = min(MOST_MODEL_PARTS, len(measured))
        for part in range(parts):
            left_out = set(measured[part::parts])
            test = [run for name in sorted(left_out) for run in by_model[name]]
            train = [
                run for name, own in sorted(by_model.items()) if name not in left_out for run in own
            ]
            cases.append(
                _Case(
                    stack=stack,
                    train=tuple(train),
                    test=tuple(run for run in test if run.tokens_per_s > 0),
                )
            )
    return cases


def _score_cases(name: str, cases: Sequence[_Case]) -> SplitReport:
    by_stack: dict[str, _Tally] = {}
    for case in cases:
        tally = by_stack.setdefault(case.stack, _Tally())
        tally.join(_tally(name, case.stack, case.train, case.test))
    pooled = _Tally()
    for tally in by_stack.values():
        pooled.join(tally)
    return SplitReport(
        pooled=pooled.score(),
        by_stack={stack: tally.score() for stack, tally in by_stack.items()},
    )


def _tally(
    name: str, stack: str, train: Sequence[MeasuredRun], test: Sequence[MeasuredRun]
) -> _Tally:
    source: KnowledgeSource = make_source(name)
    source.learn(train)
    said = source.predict([run.configuration for run in test], stack=stack)
    tally = _Tally()
    for run, answer in zip(test, said, strict=True):
        if isinstance(answer, Prediction):
            tally.add(run, answer)
        else:
            tally.declined += 1
    return tally


def _learning_curve(
    name: str, cases: Sequence[_Case], curve: Sequence[int], progress: Progress | None
) -> dict[int, Score]:
    points: dict[int, Score] = {}
    for samples in curve:
        tally = _Tally()
        for case in cases:
            measured = _measured(case.train)
            if len(measured) < samples:
                continue
            rng = np.random.default_rng([samples, len(measured)])
            chosen = {measured[index] for index in rng.permutation(len(measured))[:samples]}
            failed = [run for run in case.train if run.tokens_per_s <= 0]
            train = [run for run in case.train if run.configuration in chosen] + failed
            tally.join(_tally(name, case.stack, train, case.test))
        if tally.errors:
            points[samples] = tally.score()
            _say(progress, f"{samples} samples {name} {points[samples].mdape_percent:.2f} %")
    return points

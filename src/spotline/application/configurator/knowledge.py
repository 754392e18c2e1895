"""What is known of how jobs run: imported runs and learned ones, asked through any source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from spotline.application.configurator.messages import (
    KnownSources,
    PredictionAnswer,
    PredictionAnswers,
    PredictionRequest,
)
from spotline.application.configurator.monitoring import LIVE_STACK
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    NoPrediction,
    Prediction,
)
from spotline.domain.configuration.features import unknown_part
from spotline.domain.configuration.interface import KnowledgeSource, SourceDescription
from spotline.domain.configuration.registry import DEFAULT_SOURCE, make_source, source_names
from spotline.domain.configuration.rules import broken_rules

# What the log may teach: every start folds it. More belongs into a file of measured runs.
MOST_LEARNED_RUNS = 50_000

# Our own jobs say best how our software runs, once they are more than an anecdote.
LEAST_LIVE_RUNS = 20

# Sources learn again when they know this share more, but not for fewer runs than that.
_REFIT_DIVISOR = 10
_REFIT_LEAST = 10

Make = Callable[[str], KnowledgeSource]


def fitted_runs(imported: int, known: int) -> int:
    """How many of `known` runs the sources have learned in full; the rest they have observed.

    Depends on the counts alone, so that a restart answers as the process before it did: all the
    imported ones, then again whenever a tenth has been added, and at least ten.
    """
    fitted = imported
    while (after := fitted + _runs_until_refit(fitted)) <= known:
        fitted = after
    return fitted


def _runs_until_refit(fitted: int) -> int:
    return max(_REFIT_LEAST, -(-fitted // _REFIT_DIVISOR))


# Tokens per second that any run can have; what lies outside would spoil every mean of logarithms.
_LEAST_RATE, _MOST_RATE = 1e-3, 1e12


def why_not_learned(run: MeasuredRun) -> str:
    """Say why a run teaches nothing: an unknown model or GPU, a contradiction; empty if it does."""
    if run.tokens_per_s and not _LEAST_RATE <= run.tokens_per_s <= _MOST_RATE:
        return (
            f"tokens_per_s must be 0 or within {_LEAST_RATE:g}..{_MOST_RATE:g}, "
            f"was {run.tokens_per_s:g}"
        )
    unknown = unknown_part(run.configuration)
    if unknown or not run.ran:
        return unknown
    broken = broken_rules(run.configuration)
    said = "; ".join(rule.message for rule in broken)
    return f"outcome must not be succeeded: {said}" if said else ""


class RunList:
    """Distinct measured runs in the order they came."""

    def __init__(self, runs: Iterable[MeasuredRun] = ()) -> None:
        self._runs: list[MeasuredRun] = []
        self._known: set[MeasuredRun] = set()
        for run in runs:
            self.add(run)

    def add(self, run: MeasuredRun) -> bool:
        """Append a run; False where it is known already, or its rate is none that a run can have."""
        absurd = run.tokens_per_s and not _LEAST_RATE <= run.tokens_per_s <= _MOST_RATE
        if absurd or run in self._known:
            return False
        self._known.add(run)
        self._runs.append(run)
        return True

    def __contains__(self, run: object) -> bool:
        return run in self._known

    def __len__(self) -> int:
        return len(self._runs)

    def first(self, number: int) -> tuple[MeasuredRun, ...]:
        """The first `number` runs."""
        return tuple(self._runs[:number])

    def behind(self, number: int) -> tuple[MeasuredRun, ...]:
        """The runs behind the first `number`."""
        return tuple(self._runs[number:])


@runtime_checkable
class Combination(Protocol):
    """A source that is made of others."""

    def members(self) -> tuple[SourceDescription, ...]:
        """Those others, each with its weight."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Sources that have learned the first `fitted` runs of a base, and have observed `seen`."""

    fitted: int
    seen: int
    sources: Mapping[str, KnowledgeSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPlan:
    """Which sources are to learn which runs, and observe which after them. Nothing in it changes."""

    source_ids: tuple[str, ...]
    learned: tuple[MeasuredRun, ...]
    observed: tuple[MeasuredRun, ...]
    make: Make

    def fit(self) -> Fit:
        """Start the sources afresh and teach them: seconds, in whatever thread."""
        sources: dict[str, KnowledgeSource] = {}
        for source_id in self.source_ids:
            source = self.make(source_id)
            source.learn(self.learned)
            for run in self.observed:
                source.observe(run)
            sources[source_id] = source
        fitted = len(self.learned)
        return Fit(fitted=fitted, seen=fitted + len(self.observed), sources=sources)


@dataclass(slots=True)
class _Taught:
    """A source, how many runs it has learned in full, and how many it has seen."""

    source: KnowledgeSource
    fitted: int
    seen: int


class KnowledgeBase:
    """Measured runs, imported and learned since, and the sources that know them.

    Its answers are a function of the runs and their order alone. A source is loaded and taught
    when it is first asked. Not safe for several threads; `FitPlan.fit` is, and takes the time.

    Parameters
    ----------
    imported
        Runs to begin with.
    stack
        The software stack to assume; empty: `live` once it has runs, else the one with most.
    make
        Starts a source by its name.
    """

    def __init__(
        self,
        imported: Sequence[MeasuredRun] = (),
        *,
        stack: str = "",
        default_source_id: str = DEFAULT_SOURCE,
        make: Make = make_source,
    ) -> None:
        self.default_source_id = default_source_id
        self._configured_stack = stack
        self._make = make
        self._runs = RunList(imported)
        self._imported = len(self._runs)
        self._taught: dict[str, _Taught] = {}
        self._by_stack: dict[str, int] = {}
        for run in self.runs:
            self._count(run)

    # --- runs ---------------------------------------------------------------------------------

    @property
    def runs(self) -> tuple[MeasuredRun, ...]:
        """All runs: the imported ones, then the learned ones in their order."""
        return self._runs.behind(0)

    @property
    def stack(self) -> str:
        """The stack that is assumed unless another is named; empty where nothing was measured."""
        if self._configured_stack:
            return self._configured_stack
        if self._by_stack.get(LIVE_STACK, 0) >= LEAST_LIVE_RUNS:
            return LIVE_STACK
        return min(self._by_stack, key=lambda name: (-self._by_stack[name], name), default="")

    def observe(self, run: MeasuredRun) -> bool:
        """Take in one more run, at once; False where it is known already."""
        if not self._runs.add(run):
            return False
        self._count(run)
        for taught in self._taught.values():
            self._catch_up(taught)
        return True

    def _count(self, run: MeasuredRun) -> None:
        if run.ran:
            self._by_stack[run.stack] = self._by_stack.get(run.stack, 0) + 1

    # --- answers ------------------------------------------------------------------------------

    def predict(
        self, configurations: Sequence[Configuration], *, source_id: str = "", stack: str = ""
    ) -> tuple[Prediction | NoPrediction, ...]:
        """Predict every configuration, in order; names left empty are the defaults.

        Raises
        ------
        ValueError
            There is no such source.
        """
        source = self.source(source_id)
        return source.predict(configurations, stack=stack or self.stack)

    def answer(self, asked: PredictionRequest) -> PredictionAnswers:
        """Predict every configuration, or say why that cannot be done.

        Raises
        ------
        ValueError
            There is no such source.
        """
        found = self.predict(asked.configurations, source_id=asked.source_id, stack=asked.stack)
        return PredictionAnswers(
            answers=tuple(
                PredictionAnswer(prediction=entry)
                if isinstance(entry, Prediction)
                else PredictionAnswer(reason=entry.reason)
                for entry in found
            )
        )

    def source(self, source_id: str = "") -> KnowledgeSource:
        """A source by name (empty: the default), taught all runs; the first time takes seconds.

        Raises
        ------
        ValueError
            There is no such source.
        """
        name = source_id or self.default_source_id
        if name not in self._taught:
            self.adopt(self._plan((name,)).fit())
        return self._taught[name].source

    def describe(self) -> KnownSources:
        """All sources and what they have learned from; a source that has yet to learn does so first."""
        described = self._members()
        for name in self.own_describers():
            described[name] = self.source(name).describe()
        return KnownSources(
            default_source_id=self.default_source_id,
            stack=self.stack,
            sources=tuple(described[name] for name in sorted(described)),
        )

    def own_describers(self) -> tuple[str, ...]:
        """The sources that describe themselves: all but the members of the default, if it has any.

        Its members are the same models on the same runs, and it knows how they compare.
        """
        return tuple(sorted(set(source_names()) - self._members().keys()))

    def _members(self) -> dict[str, SourceDescription]:
        default = self.source()
        if not isinstance(default, Combination):
            return {}
        return {member.source_id: member for member in default.members()}

    # --- learning again -----------------------------------------------------------------------

    def plan_refit(self) -> FitPlan | None:
        """What the sources in use have to learn again, None where nothing."""
        wanted = fitted_runs(self._imported, len(self._runs))
        stale = tuple(name for name, taught in self._taught.items() if taught.fitted < wanted)
        return self._plan(stale) if stale else None

    def plan_first_fit(self, source_ids: Sequence[str]) -> FitPlan | None:
        """What those that were never asked have to learn, None where nothing; `ValueError`."""
        names = {name or self.default_source_id for name in source_ids}
        for name in sorted(names - set(source_names())):
            raise ValueError(f"source_id must be one of {', '.join(source_names())}, was {name!r}")
        unasked = tuple(sorted(names - self._taught.keys()))
        return self._plan(unasked) if unasked else None

    def adopt(self, fit: Fit) -> None:
        """Ask these sources from now on, once they have caught up with what came meanwhile."""
        for name, source in fit.sources.items():
            taught = _Taught(source=source, fitted=fit.fitted, seen=fit.seen)
            self._catch_up(taught)
            self._taught[name] = taught

    def refit(self) -> bool:
        """Learn again where that is due, here and now; returns whether it was."""
        plan = self.plan_refit()
        if plan is None:
            return False
        self.adopt(plan.fit())
        return True

    def _plan(self, source_ids: tuple[str, ...]) -> FitPlan:
        fitted = fitted_runs(self._imported, len(self._runs))
        return FitPlan(
            source_ids=source_ids,
            learned=self._runs.first(fitted),
            observed=self._runs.behind(fitted),
            make=self._make,
        )

    def _catch_up(self, taught: _Taught) -> None:
        # A refit long due will see the rest; observing a long lesson would hold up the answers.
        most = taught.fitted + 2 * _runs_until_refit(taught.fitted)
        for run in self._runs.behind(taught.seen):
            if taught.seen >= most:
                return
            taught.source.observe(run)
            taught.seen += 1

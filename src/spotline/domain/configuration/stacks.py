"""What all knowledge sources share: runs kept apart by stack, held-out errors, observations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

import numpy as np

from spotline.domain.canonical import canonical_v1
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    NoPrediction,
    Prediction,
)
from spotline.domain.configuration.encoding import one_thread
from spotline.domain.configuration.features import (
    FeatureTable,
    Floats,
    canonical_configuration,
    features_of,
    table_of,
    unknown_part,
    unpredictable,
)
from spotline.domain.configuration.interface import SourceDescription
from spotline.domain.configuration.intervals import Band, conformal_band, prior_band
from spotline.domain.configuration.validity import SuccessModel

# Standard deviation of the log rate of a configuration's runs: 1 to 3 % in `llm-finetune-perf`.
REPEAT_SPREAD = 0.03
# An observation's reach: distance (see `nearness`) at which it counts exp(-1/2) as much.
_REACH = 1.0
# Observations of equal weight that pull a prediction half of the way.
_PULL = 0.4
_OBSERVATIONS_KEPT = 256

_RANDOM_FOLDS, _MODEL_FOLDS = 4, 5
_MANY_ROWS, _FOLDS_OF_MANY, _MOST_TESTED = 1_500, 3, 1_000
# Log rates beyond this are a model gone wild, not a GPU.
_LOG_LIMITS = (-7.0, 21.0)

# Numbers whose distance says how alike two configurations are, and what one unit of it is.
_SCALES = {
    "active_parameters": 0.7,
    "samples_per_pass": 0.7,
    "tokens_per_sample": 0.7,
    "gpus": 0.7,
    "nodes": 0.7,
    "passes": 1.5,
    "tflops": 0.7,
}
# Distance between two values of a category; the others (options) below.
_DIFFERENT = {"model": 0.7, "method": 1.2, "gpu": 1.0, "precision": 1.0, "expert_parallel": 0.7}
_DIFFERENT_OPTION = 1.0
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RateGuess:
    """Predicted log tokens per second and their spreads (about a standard deviation), (rows,)."""

    log_rates: Floats
    spreads: Floats


class RateModel(Protocol):
    """Learns log rates of one stack.

    Attributes
    ----------
    minimum_rows
        Fewer measured configurations than these teach it nothing.
    """

    minimum_rows: int

    def fit(self, table: FeatureTable, log_rates: Floats) -> None:
        """Learn; at least `minimum_rows` rows."""
        ...

    def predict(self, table: FeatureTable) -> RateGuess:
        """Predict every row."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Predictions of rows by a model that was not fitted on them; `tested` are their places."""

    tested: np.ndarray
    guess: RateGuess


@lru_cache(maxsize=65_536)
def _digest(configuration: Configuration) -> bytes:
    return blake2b(canonical_v1(configuration).encode(), digest_size=12).digest()


def canonical(runs: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    """Order runs by what they say: learning is then blind to the order they came in."""
    return sorted(
        runs,
        key=lambda run: (
            _digest(run.configuration),
            run.outcome.value,
            run.tokens_per_s,
            run.peak_memory_gb,
            run.runtime_s,
        ),
    )


def random_folds(rows: int) -> list[np.ndarray]:
    """Split rows in canonical order (which is as good as random) into parts to hold out."""
    folds = _RANDOM_FOLDS if rows <= _MANY_ROWS else _FOLDS_OF_MANY
    folds = min(folds, rows)
    return [np.arange(rows)[fold::folds][:_MOST_TESTED] for fold in range(folds)]


def model_folds(table: FeatureTable) -> list[np.ndarray]:
    """Split rows so that all runs of a model are held out together, empty where there is one."""
    models = table.values("model")
    places: dict[str, list[int]] = {}
    for place, model in enumerate(models):
        places.setdefault(model, []).append(place)
    if len(places) < 2:
        return []
    folds = _MODEL_FOLDS if len(table) <= _MANY_ROWS else _FOLDS_OF_MANY
    parts: list[list[int]] = [[] for _ in range(min(folds, len(places)))]
    for model in sorted(places, key=lambda model: (-len(places[model]), model)):
        min(parts, key=len).extend(places[model])
    return [np.array(sorted(part), dtype=np.intp) for part in parts]


def held_out(
    make_model: Callable[[], RateModel],
    table: FeatureTable,
    log_rates: Floats,
    folds: Sequence[np.ndarray],
) -> HeldOut:
    """Predict every fold by a model fitted on all other rows."""
    tested: list[np.ndarray] = []
    guesses: list[RateGuess] = []
    for fold in folds:
        kept = np.setdiff1d(np.arange(len(table)), fold)
        model = make_model()
        if len(kept) < model.minimum_rows:
            continue
        model.fit(table.take(kept), log_rates[kept])
        tested.append(fold[:_MOST_TESTED])
        guesses.append(model.predict(table.take(tested[-1])))
    if not tested:
        empty = RateGuess(log_rates=np.zeros(0), spreads=np.zeros(0))
        return HeldOut(tested=np.zeros(0, dtype=np.intp), guess=empty)
    return HeldOut(
        tested=np.concatenate(tested),
        guess=RateGuess(
            log_rates=np.concatenate([guess.log_rates for guess in guesses]),
            spreads=np.concatenate([guess.spreads for guess in guesses]),
        ),
    )


class Surroundings:
    """Measured configurations, laid out once to tell how unlike others are."""

    def __init__(self, table: FeatureTable) -> None:
        self._numbers = _scaled(table)
        self._squares = (self._numbers**2).sum(axis=1)
        self._codes: dict[str, tuple[dict[str, int], np.ndarray]] = {}
        for category in sorted(table.categories):
            values = table.values(category)
            codes = {value: code for code, value in enumerate(sorted(set(values)))}
            self._codes[category] = codes, np.array([codes[value] for value in values])

    def distances(self, table: FeatureTable) -> Floats:
        """How unlike configurations are, shape (rows of table, rows here); 0 is the same."""
        numbers = _scaled(table)
        squared = (numbers**2).sum(axis=1)[:, None] + self._squares[None, :]
        squared -= 2.0 * (numbers @ self._numbers.T)
        # What is left of equal rows is rounding.
        squared[squared < _ROUNDING] = 0.0
        for category in sorted({*table.categories, *self._codes}):
            weight = _DIFFERENT.get(category, _DIFFERENT_OPTION) ** 2
            values = table.values(category)
            if category in self._codes:
                codes, theirs = self._codes[category]
                mine = np.array([codes.get(value, -1) for value in values])
                if len(codes) > 1 or (mine != 0).any():
                    squared += weight * (mine[:, None] != theirs[None, :])
            else:
                # None of those here has the option.
                squared += weight * np.array([value != "" for value in values])[:, None]
        return np.asarray(np.sqrt(squared))


def _scaled(table: FeatureTable) -> Floats:
    return np.column_stack([table.column(name) / scale for name, scale in _SCALES.items()])


@dataclass(slots=True)
class StackState:
    """One stack's runs and what was learned of them."""

    runs: int = 0
    failed: int = 0
    model: RateModel | None = None
    band: Band = field(default_factory=prior_band)
    median_error: float = 0.0
    member_errors: dict[str, float] = field(default_factory=dict)
    models: frozenset[str] = frozenset()
    measured: dict[Configuration, tuple[float, int]] = field(default_factory=dict)
    success: SuccessModel = field(default_factory=SuccessModel)
    observed: list[Configuration] = field(default_factory=list)
    observed_rates: list[float] = field(default_factory=list)
    observed_errors: list[float] = field(default_factory=list)
    observed_table: FeatureTable | None = None


@dataclass(slots=True)
class Lessons:
    """Measured configurations of a stack, each once: the mean of its log rates."""

    table: FeatureTable
    log_rates: Floats
    measured: dict[Configuration, tuple[float, int]]


def lessons_of(runs: Sequence[MeasuredRun]) -> Lessons:
    """Put repeated runs of a configuration together, in the order of their first."""
    rates: dict[Configuration, list[float]] = {}
    for run in runs:
        if run.ran and run.tokens_per_s > 0 and not unknown_part(run.configuration):
            rates.setdefault(run.configuration, []).append(math.log(run.tokens_per_s))
    configurations = list(rates)
    means = [math.fsum(measured) / len(measured) for measured in rates.values()]
    return Lessons(
        table=table_of(configurations),
        log_rates=np.array(means, dtype=np.float64),
        measured={
            one: (mean, len(rates[one])) for one, mean in zip(configurations, means, strict=True)
        },
    )


class StackedSource:
    """A knowledge source that learns a rate model per stack; subclasses say which.

    Attributes
    ----------
    answers_without_runs
        Whether its model predicts a stack it has no runs of.
    in_order
        Whether runs teach in the order they come in; otherwise their order says nothing.
    trusts_measurements
        Whether a measured configuration's own rate outweighs the model.
    """

    source_id = ""
    answers_without_runs = False
    in_order = False
    trusts_measurements = False
    explanation = ""

    def __init__(self) -> None:
        self._stacks: dict[str, StackState] = {}

    def _make_model(self) -> RateModel:
        raise NotImplementedError

    def _make_like(self, fitted: RateModel) -> RateModel:
        """Make a model for most of the rows of a fitted one; it may keep what took long to find."""
        del fitted
        return self._make_model()

    def learn(self, runs: Sequence[MeasuredRun]) -> None:
        """Learn from all of `runs`, forgetting whatever was learned before."""
        by_stack: dict[str, list[MeasuredRun]] = {}
        for run in runs:
            if not unknown_part(run.configuration):
                named = canonical_configuration(run.configuration)
                run = run if named is run.configuration else replace(run, configuration=named)
            by_stack.setdefault(run.stack, []).append(run)
        with one_thread():
            self._stacks = {
                stack: self._learn_stack(own if self.in_order else canonical(own))
                for stack, own in sorted(by_stack.items())
            }

    def observe(self, run: MeasuredRun) -> None:
        """Take in one more run: it corrects predictions of configurations like it at once."""
        stack = self._stacks.setdefault(run.stack, StackState())
        stack.runs += run.ran
        stack.failed += not run.ran
        if unknown_part(run.configuration):
            return
        run = replace(run, configuration=canonical_configuration(run.configuration))
        stack.success.observe(run)
        if not run.ran or run.tokens_per_s <= 0:
            return
        log_rate = math.log(run.tokens_per_s)
        self._observe_rate(stack, run, log_rate)
        mean, times = stack.measured.get(run.configuration, (0.0, 0))
        stack.measured[run.configuration] = (
            (mean * times + log_rate) / (times + 1),
            times + 1,
        )

    def predict(
        self, configurations: Sequence[Configuration], *, stack: str = ""
    ) -> tuple[Prediction | NoPrediction, ...]:
        """Predict every configuration, in order; see `KnowledgeSource.predict`."""
        name = stack or self._usual_stack()
        known = self._stacks.get(name) or StackState()
        model = self._model_of(known)
        answers: list[Prediction | NoPrediction | None] = []
        asked: list[Configuration] = []
        for configuration in configurations:
            reason = unpredictable(configuration)
            if not reason and model is None:
                reason = self._nothing_learned(name)
            answers.append(
                NoPrediction(source_id=self.source_id, reason=reason) if reason else None
            )
            if not reason:
                asked.append(canonical_configuration(configuration))
        said: list[Prediction] = []
        if asked and model is not None:
            with one_thread():
                said = self._predict(known, model, table_of(asked))
        waiting = iter(said)
        return tuple(next(waiting) if answer is None else answer for answer in answers)

    def describe(self) -> SourceDescription:
        """What it has learned from; the error is that of random held-out runs."""
        errors = [
            (stack.median_error, stack.runs)
            for stack in self._stacks.values()
            if stack.median_error > 0
        ]
        rows = sum(runs for _, runs in errors)
        return SourceDescription(
            source_id=self.source_id,
            runs=sum(stack.runs for stack in self._stacks.values()),
            failed_runs=sum(stack.failed for stack in self._stacks.values()),
            stacks=tuple(sorted(self._stacks)),
            median_error_percent=(
                math.fsum(error * runs for error, runs in errors) / rows if rows else 0.0
            ),
            explanation=self.explanation,
        )

    # --- one stack ---------------------------------------------------------------------------

    def _learn_stack(self, runs: Sequence[MeasuredRun]) -> StackState:
        stack = StackState(runs=sum(run.ran for run in runs))
        stack.failed = len(runs) - stack.runs
        stack.success.learn(runs)
        lessons = lessons_of(runs)
        stack.measured = lessons.measured
        stack.models = frozenset(lessons.table.values("model"))
        model = self._make_model()
        if len(lessons.table) >= max(1, model.minimum_rows):
            self._fit(stack, model, lessons)
        return stack

    def _fit(self, stack: StackState, model: RateModel, lessons: Lessons) -> None:
        table, log_rates = lessons.table, lessons.log_rates
        model.fit(table, log_rates)
        stack.model = model

        def make_like() -> RateModel:
            return self._make_like(model)

        by_chance = held_out(make_like, table, log_rates, random_folds(len(table)))
        by_model = held_out(make_like, table, log_rates, model_folds(table))
        self._calibrate(stack, lessons, by_chance, by_model)

    @staticmethod
    def _calibrate(
        stack: StackState, lessons: Lessons, by_chance: HeldOut, by_model: HeldOut
    ) -> None:
        """Set intervals and the error from predictions of held-out rows."""
        log_rates, models = lessons.log_rates, lessons.table.values("model")
        errors = by_chance.guess.log_rates - log_rates[by_chance.tested]
        other = by_model.guess.log_rates - log_rates[by_model.tested]
        stack.band = conformal_band(
            np.abs(errors) / by_chance.guess.spreads,
            np.abs(other) / by_model.guess.spreads,
            [models[place] for place in by_model.tested.tolist()],
        )
        if errors.size:
            stack.median_error = 100.0 * float(np.median(np.abs(np.expm1(errors))))

    def _model_of(self, stack: StackState) -> RateModel | None:
        if stack.model is not None:
            return stack.model
        return self._make_model() if self.answers_without_runs else None

    def _observe_rate(self, stack: StackState, run: MeasuredRun, log_rate: float) -> None:
        model = self._model_of(stack)
        if model is None:
            return
        guess = float(model.predict(table_of([run.configuration])).log_rates[0])
        self._remember(stack, run.configuration, log_rate)
        stack.observed_errors.append(log_rate - guess)
        del stack.observed_errors[:-_OBSERVATIONS_KEPT]

    @staticmethod
    def _remember(stack: StackState, configuration: Configuration, log_rate: float) -> None:
        stack.observed.append(configuration)
        stack.observed_rates.append(log_rate)
        del stack.observed[:-_OBSERVATIONS_KEPT]
        del stack.observed_rates[:-_OBSERVATIONS_KEPT]
        stack.observed_table = table_of(stack.observed)

    def _predict(
        self, stack: StackState, model: RateModel, table: FeatureTable
    ) -> list[Prediction]:
        guess = model.predict(table)
        seen = np.array([name in stack.models for name in table.values("model")], dtype=float)
        half = stack.band.half_widths(guess.spreads, seen)
        log_rates, half = self._corrected(stack, table, guess.log_rates, half)
        log_rates = np.clip(log_rates, *_LOG_LIMITS)
        chances = stack.success.probabilities(table)
        memory = stack.success.memory_gb(table)
        predictions = []
        for place, one in enumerate(table.configurations):
            rate, width = float(log_rates[place]), float(half[place])
            measured = stack.measured.get(one)
            basis = self._basis(stack, one)
            if measured is not None and self.trusts_measurements:
                rate, width = _towards_measured(rate, width, *measured)
            tokens_per_s = math.exp(rate)
            predictions.append(
                Prediction(
                    source_id=self.source_id,
                    tokens_per_s=tokens_per_s,
                    low_tokens_per_s=min(tokens_per_s, math.exp(rate - width)),
                    high_tokens_per_s=max(tokens_per_s, math.exp(rate + width)),
                    success_probability=float(chances[place]),
                    peak_memory_gb=float(memory[place]),
                    measured=measured is not None,
                    basis=basis,
                )
            )
        return predictions

    def _basis(self, stack: StackState, one: Configuration) -> str:
        measured = stack.measured.get(one)
        if measured is not None:
            times = measured[1]
            return f"measured {times} times" if times > 1 else "measured once"
        if not stack.runs:
            return "no measured runs: data sheets and usual efficiencies only"
        model = features_of(one).categories[0][1]
        like = "runs of this model" if model in stack.models else "runs of other models"
        return f"{stack.runs} measured runs, {like}"

    @staticmethod
    def _corrected(
        stack: StackState, table: FeatureTable, log_rates: Floats, half: Floats
    ) -> tuple[Floats, Floats]:
        """Shift predictions by the errors of observations near them, and narrow them a little."""
        if not stack.observed or stack.observed_table is None:
            return log_rates, half
        far = Surroundings(stack.observed_table).distances(table)
        nearness = np.exp(-0.5 * (far / _REACH) ** 2)
        errors = np.array(stack.observed_errors)
        weight = nearness.sum(axis=1)
        pull = weight / (weight + _PULL)
        shift = pull * (nearness @ errors) / np.maximum(weight, 1e-12)
        left = np.minimum(half, 1.645 * REPEAT_SPREAD * 2)
        return log_rates + shift, np.asarray(left + (half - left) * (1 - pull))

    def _usual_stack(self) -> str:
        if not self._stacks:
            return ""
        return min(
            self._stacks,
            key=lambda name: (-(self._stacks[name].runs + self._stacks[name].failed), name),
        )

    def _nothing_learned(self, stack: str) -> str:
        of = f" of stack {stack!r}" if stack else ""
        return f"{self.source_id} needs more measured runs{of} that succeeded; import some"


def _towards_measured(rate: float, width: float, mean: float, times: int) -> tuple[float, float]:
    """A measured configuration: its own mean, unless the model is as sure as a repetition."""
    own = REPEAT_SPREAD**2 / times
    model = (width / 1.645) ** 2
    share = model / (model + own)
    return rate + share * (mean - rate), 1.645 * math.sqrt(REPEAT_SPREAD**2 + share * own)

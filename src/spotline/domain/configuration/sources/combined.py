"""All sources together, weighted by what each got wrong on runs that were held out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.domain.configuration.features import FeatureTable, Floats
from spotline.domain.configuration.interface import SourceDescription
from spotline.domain.configuration.sources.analytic import AnalyticRates
from spotline.domain.configuration.sources.boosting import BoostingRates
from spotline.domain.configuration.sources.gaussian_process import GaussianProcessRates
from spotline.domain.configuration.sources.history import HistoryRates
from spotline.domain.configuration.sources.online import OnlineRates
from spotline.domain.configuration.stacks import (
    HeldOut,
    Lessons,
    RateGuess,
    RateModel,
    StackedSource,
    StackState,
    model_folds,
    random_folds,
)

MEMBERS = ("analytic", "boosting", "gaussian_process", "history", "online")

# Errors of log rates up to here count squared, beyond by their size.
_BEND = 0.05
_ROUNDS, _RATE = 400, 20.0
# Even weights are believed like this many held-out rows (or held-out models, times `_ROWS_A_MODEL`).
_EVEN_ROWS = 4.0
_FLOOR_SPREAD = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHints:
    """What members found out on all rows and need not find out in every fold."""

    base: AnalyticRates
    kernel: Floats
    plain: bool | None


class CombinedRates:
    """A weighted mean of the members' log rates; weights differ for models that were measured."""

    minimum_rows = 1

    def __init__(self, *, hints: MemberHints | None = None) -> None:
        self._hints = hints
        self._members: dict[str, RateModel] = {}
        self._models: frozenset[str] = frozenset()
        self.seen_weights: dict[str, float] = {}
        self.unseen_weights: dict[str, float] = {}
        self._unheard: frozenset[str] = frozenset()

    @property
    def hints(self) -> MemberHints:
        """For other fits on most of the same rows."""
        process, trees = self._members.get("gaussian_process"), self._members.get("boosting")
        base = self._members.get("analytic")
        return MemberHints(
            base=base if isinstance(base, AnalyticRates) else AnalyticRates(),
            kernel=process.tuned if isinstance(process, GaussianProcessRates) else np.zeros(0),
            plain=trees.plain if isinstance(trees, BoostingRates) else None,
        )

    def fit(self, table: FeatureTable, log_rates: Floats) -> None:
        """Fit every member that has rows enough; all stand on one analytic model."""
        base = AnalyticRates()
        hints = self._hints
        base.fit(table, log_rates, near=hints.base if hints else None)
        members: dict[str, RateModel] = {
            "boosting": BoostingRates(base=base, plain=hints.plain if hints else None),
            "gaussian_process": GaussianProcessRates(
                base=base, tuned=hints.kernel if hints else None
            ),
            "history": HistoryRates(base=base),
            "online": OnlineRates(),
        }
        self._members = {"analytic": base}
        for name, member in members.items():
            if len(table) >= member.minimum_rows:
                member.fit(table, log_rates)
                self._members[name] = member
        self._models = frozenset(table.values("model"))

    def guesses(self, table: FeatureTable) -> dict[str, RateGuess]:
        """What every member says."""
        members: dict[str, RateModel] = self._members or {"analytic": AnalyticRates()}
        return {
            name: member.predict(table)
            for name, member in members.items()
            if name not in self._unheard
        }

    def weigh(self, seen: dict[str, float], unseen: dict[str, float]) -> None:
        """Set the weights; members without any are not asked again."""
        self.seen_weights, self.unseen_weights = seen, unseen
        if seen and unseen:
            heard = {name for weights in (seen, unseen) for name in weights if weights[name] > 0}
            # The process says how far apart runs lie, whatever its weight.
            self._unheard = frozenset(self._members) - heard - {"gaussian_process"}

    def seen(self, table: FeatureTable) -> Floats:
        """1.0 for rows whose model was learned of, else 0.0."""
        return np.array([1.0 if m in self._models else 0.0 for m in table.values("model")])

    def predict(self, table: FeatureTable) -> RateGuess:
        """The weighted mean of what the members say."""
        guesses = self.guesses(table)
        known = weighted(guesses, self.seen_weights)
        if not self._members:
            return known
        other = weighted(guesses, self.unseen_weights)
        seen = self.seen(table) > 0
        return RateGuess(
            log_rates=np.where(seen, known.log_rates, other.log_rates),
            spreads=np.where(seen, known.spreads, other.spreads),
        )


def weighted(guesses: dict[str, RateGuess], weights: dict[str, float]) -> RateGuess:
    """Mean log rate by weights (even where there are none); spreads of it and between members."""
    names = [name for name in guesses if not weights or weights.get(name, 0.0) > 0]
    names = names or list(guesses)
    shares = np.array([weights.get(name, 0.0) if weights else 1.0 for name in names])
    if shares.sum() <= 0:
        shares = np.ones(len(names))
    shares = shares / shares.sum()
    rates = np.stack([guesses[name].log_rates for name in names])
    spreads = np.stack([guesses[name].spreads for name in names])
    mean = shares @ rates
    between = shares @ (rates - mean) ** 2
    if "gaussian_process" in guesses:
        # The process knows where runs are dense; the others' spreads are rules of thumb.
        within = guesses["gaussian_process"].spreads ** 2
    else:
        within = shares @ spreads**2
    return RateGuess(log_rates=mean, spreads=np.sqrt(within + between + _FLOOR_SPREAD**2))


def stacking_weights(errors: Floats, names: Sequence[str], evidence: float) -> dict[str, float]:
    """Weights >= 0 that add up to 1 and make the mean's held-out errors small.

    Parameters
    ----------
    errors
        Errors of log rates, shape (rows, members).
    evidence
        What the rows are worth: rows of one model say the same.

    Notes
    -----
    Stacked regressions (Breiman, 1996) under a pseudo-Huber loss, by exponentiated gradient.
    """
    members = len(names)
    weights = np.full(members, 1.0 / members)
    if not len(errors):
        return dict(zip(names, weights.tolist(), strict=True))
    pull = _EVEN_ROWS / (evidence + _EVEN_ROWS)
    even = np.full(members, 1.0 / members)
    best, best_loss = weights, math.inf
    for _ in range(_ROUNDS):
        mean = errors @ weights
        root = np.sqrt(1.0 + (mean / _BEND) ** 2)
        loss = float(_BEND * (root - 1.0).mean() + 0.1 * pull * ((weights - even) ** 2).sum())
        if loss < best_loss:
            best, best_loss = weights, loss
        gradient = errors.T @ (mean / (_BEND * root)) / len(errors)
        gradient = gradient + 0.2 * pull * (weights - even)
        scaled = weights * np.exp(-_RATE * (gradient - gradient.min()) / members)
        weights = scaled / scaled.sum()
    kept = np.where(best < 0.01, 0.0, best)
    kept = kept / kept.sum()
    return dict(zip(names, kept.tolist(), strict=True))


class CombinedSource(StackedSource):
    """The default: every other source, weighted per stack by cross-validated errors."""

    source_id = "combined"
    answers_without_runs = True
    trusts_measurements = True
    explanation = "all sources, weighted per stack by their errors on held-out runs"

    def _make_model(self) -> CombinedRates:
        return CombinedRates()

    def members(self) -> tuple[SourceDescription, ...]:
        """The sources it is made of: weight (of measured models, over stacks by runs) and error."""
        total = self.describe()
        weights = dict.fromkeys(MEMBERS, 0.0)
        rows = 0
        for stack in self._stacks.values():
            if isinstance(stack.model, CombinedRates):
                rows += stack.runs
                for name, weight in stack.model.seen_weights.items():
                    weights[name] += weight * stack.runs
        return tuple(
            replace(
                total,
                source_id=name,
                weight=weights[name] / rows if rows else float(name == "analytic"),
                median_error_percent=self._member_error(name),
                explanation="",
            )
            for name in MEMBERS
        )

    def _member_error(self, name: str) -> float:
        errors = [
            (stack.member_errors[name], stack.runs)
            for stack in self._stacks.values()
            if name in stack.member_errors
        ]
        rows = sum(runs for _, runs in errors)
        return math.fsum(error * runs for error, runs in errors) / rows if rows else 0.0

    def _fit(self, stack: StackState, model: RateModel, lessons: Lessons) -> None:
        if not isinstance(model, CombinedRates):
            raise TypeError(f"model must be CombinedRates, was {type(model).__name__}")
        table, log_rates = lessons.table, lessons.log_rates
        model.fit(table, log_rates)
        stack.model = model
        by_chance = _held_out(model.hints, table, log_rates, random_folds(len(table)))
        by_model = _held_out(model.hints, table, log_rates, model_folds(table))
        models = len(set(table.values("model")))
        model.weigh(
            by_chance.weights(log_rates, float(len(by_chance.tested))),
            by_model.weights(log_rates, float(models)),
        )
        stack.member_errors = by_chance.median_errors(log_rates)
        self._calibrate(
            stack,
            lessons,
            by_chance.combined(model.seen_weights),
            by_model.combined(model.unseen_weights),
        )


@dataclass(frozen=True, slots=True)
class _HeldOutMembers:
    """Members' predictions of held-out rows."""

    tested: np.ndarray
    guesses: dict[str, RateGuess]

    def weights(self, log_rates: Floats, evidence: float) -> dict[str, float]:
        names = sorted(self.guesses)
        if not names:
            return {}
        errors = [self.guesses[name].log_rates - log_rates[self.tested] for name in names]
        return stacking_weights(np.column_stack(errors), names, evidence)

    def median_errors(self, log_rates: Floats) -> dict[str, float]:
        return {
            name: 100.0
            * float(np.median(np.abs(np.expm1(guess.log_rates - log_rates[self.tested]))))
            for name, guess in sorted(self.guesses.items())
        }

    def combined(self, weights: dict[str, float]) -> HeldOut:
        if not self.guesses:
            empty = RateGuess(log_rates=np.zeros(0), spreads=np.zeros(0))
            return HeldOut(tested=self.tested, guess=empty)
        return HeldOut(tested=self.tested, guess=weighted(self.guesses, weights))


def _held_out(
    hints: MemberHints, table: FeatureTable, log_rates: Floats, folds: Sequence[np.ndarray]
) -> _HeldOutMembers:
    """Predict every fold by members fitted on all other rows; only members that can in all."""
    tested: list[np.ndarray] = []
    said: list[dict[str, RateGuess]] = []
    for fold in folds:
        kept = np.setdiff1d(np.arange(len(table)), fold)
        if not len(kept):
            continue
        model = CombinedRates(hints=hints)
        model.fit(table.take(kept), log_rates[kept])
        tested.append(fold)
        said.append(model.guesses(table.take(fold)))
    if not tested:
        return _HeldOutMembers(tested=np.zeros(0, dtype=np.intp), guesses={})
    names = [name for name in MEMBERS if all(name in guesses for guesses in said)]
    return _HeldOutMembers(
        tested=np.concatenate(tested),
        guesses={
            name: RateGuess(
                log_rates=np.concatenate([guesses[name].log_rates for guesses in said]),
                spreads=np.concatenate([guesses[name].spreads for guesses in said]),
            )
            for name in names
        },
    )

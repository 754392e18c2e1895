"""What was learned on one market, to start with on another."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spotline.domain.selection.prior import initial_weights
from spotline.domain.selection.rules import RULES, FloatArray, LearningRule

FORMAT_VERSION = 1

WORTH_JOBS = 10
"""A warm start counts as this many jobs at most: enough to begin with, few enough to be outvoted."""

EQUAL_SHARE = 0.05
"""Share of the weights that is spread as if nothing were known: no policy is ruled out by another
market."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWeights:
    """A rule's state by policy.

    `weights` are shares by policy id. `gap` is what sets AdaHedge's rate, in USD, 0 for other
    rules. `rounds` counts the jobs behind them, `provenance` says on what they were learned.
    """

    rule: str
    rounds: int
    gap: float
    weights: Mapping[str, float]
    provenance: str = ""

    def to_json(self) -> str:
        """One line of JSON, the same for equal weights."""
        fields = {
            "format_version": FORMAT_VERSION,
            "rule": self.rule,
            "rounds": self.rounds,
            "gap_usd": self.gap,
            "provenance": self.provenance,
            "weights": dict(sorted(self.weights.items())),
        }
        return json.dumps(fields, separators=(",", ":"))

    def prior(self, policy_ids: Sequence[str]) -> FloatArray:
        """Initial weights of a pool; a policy unknown here has the mean of the known weights.

        Raises
        ------
        ValueError
            Weights are known of policies that the pool has not; the message lists them.
        """
        strange = sorted(self.weights.keys() - set(policy_ids))
        if strange:
            raise ValueError(
                "saved weights: weights must be of policies of the pool, was also of "
                f"{len(strange)} policies that are not in it: {', '.join(strange)}; save them again "
                "with this version"
            )
        mean = sum(self.weights.values()) / len(self.weights)
        weights = np.array([self.weights.get(name, mean) for name in policy_ids])
        prior: FloatArray = (1.0 - EQUAL_SHARE) * weights / weights.sum()
        return prior + EQUAL_SHARE * initial_weights(policy_ids)

    @property
    def gap_worth(self) -> float:
        """The gap, scaled down to `WORTH_JOBS` jobs: the fewer, the sooner new ones count."""
        return self.gap * min(1.0, WORTH_JOBS / self.rounds)


def saved_from(rule: LearningRule, policy_ids: Sequence[str], provenance: str) -> SavedWeights:
    """Save what `rule` has learned about `policy_ids`.

    Raises
    ------
    ValueError
        It has not learned anything yet.
    """
    if rule.rounds < 1:
        raise ValueError("nothing has been learned yet: no job has ended")
    return SavedWeights(
        rule=rule.name,
        rounds=rule.rounds,
        gap=rule.gap,
        weights=dict(zip(policy_ids, rule.weights().tolist(), strict=True)),
        provenance=provenance,
    )


def parse_saved(text: str) -> SavedWeights:
    """Read what `SavedWeights.to_json` wrote.

    Raises
    ------
    ValueError
        It is not that; the message says what was expected.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"saved weights must be JSON: {error}") from error
    if not isinstance(found, dict) or found.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"saved weights must be an object with format_version {FORMAT_VERSION}")
    rule = _one(found, "rule", str)
    if rule not in RULES:
        known = ", ".join(sorted(RULES))
        raise ValueError(f"saved weights: rule must be one of {known}, was {rule!r}")
    rounds, gap = _one(found, "rounds", int), _one(found, "gap_usd", int, float)
    if rounds < 1 or not _share(gap):
        raise ValueError("saved weights: rounds must be >= 1, gap_usd finite and >= 0")
    weights = _one(found, "weights", dict)
    if not all(_share(one) for one in weights.values()) or not sum(weights.values()) > 0:
        raise ValueError("saved weights: weights must be finite and >= 0, one of them > 0")
    return SavedWeights(
        rule=rule,
        rounds=rounds,
        gap=float(gap),
        weights={name: float(weight) for name, weight in weights.items()},
        provenance=_one(found, "provenance", str),
    )


def _one(found: Mapping[str, Any], name: str, *kinds: type) -> Any:
    value = found.get(name)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise ValueError(  # noqa: TRY004 - a file's content is a value, whatever its type
            f"saved weights: {name} must be of type {kinds[0].__name__}, was {value!r}"
        )
    return value


def _share(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= 0  # type: ignore[arg-type, operator]

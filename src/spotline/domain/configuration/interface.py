"""What every knowledge source offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    NoPrediction,
    Prediction,
)

# Nine of ten measured rates should lie inside a prediction's interval.
INTERVAL_COVERAGE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDescription:
    """What a source has learned from: successful runs and others, by stack; and a word on how.

    `median_error_percent` is its own estimate of its median absolute error on runs it has not
    seen, 0 where it has none; `weight` its share of a combination, 0 where it is in none.
    """

    source_id: str
    runs: int
    failed_runs: int
    stacks: tuple[str, ...]
    median_error_percent: float = 0.0
    weight: float = 0.0
    explanation: str = ""


class KnowledgeSource(Protocol):
    """Predicts how configurations would run. Deterministic: equal runs learned, equal predictions.

    Constructed without arguments: then it knows nothing but what is built in. Every source is held
    to `tests/contract/test_knowledge_source_contract.py`.

    Attributes
    ----------
    source_id
        Its name in the registry.
    """

    source_id: str

    def __init__(self) -> None:
        """Start without any measured run."""
        ...

    def learn(self, runs: Sequence[MeasuredRun]) -> None:
        """Learn from all of `runs`, forgetting whatever was learned before."""
        ...

    def observe(self, run: MeasuredRun) -> None:
        """Take in one more run.

        Cheap, milliseconds at most; it may count in full only when `learn` is called next.
        """
        ...

    def predict(
        self, configurations: Sequence[Configuration], *, stack: str = ""
    ) -> tuple[Prediction | NoPrediction, ...]:
        """Predict every configuration, in order. Changes nothing.

        Parameters
        ----------
        stack
            The software it would run with. Runs of other stacks say nothing of its speed; where
            it has none of its own, a source either declines or answers with an interval that is
            as wide as stacks differ. Empty: the stack with most runs, by name among equals.

        Notes
        -----
        A configuration that breaks a hard rule (`rules.broken_rules`) is declined by every source;
        so is one whose model or GPU is not known. Callers that want the reason as an error check
        first.
        """
        ...

    def describe(self) -> SourceDescription:
        """What it has learned from."""
        ...

"""Who explains decisions, and why it may not be able to."""

from __future__ import annotations

from typing import Protocol

from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.contracts.errors import SpotlineError


class UnknownDecision(SpotlineError):
    """There is no such job or decision; the message says which there are instead."""

    def __init__(self, message: str, *, job_known: bool) -> None:
        super().__init__(message)
        self.job_known = job_known


class LogBeginsLate(SpotlineError):
    """The beginning of the log is gone, so that no state can be folded from it."""

    def __init__(self, first_seq: int) -> None:
        super().__init__(
            f"the log begins with seq {first_seq}: what came before is no longer kept, and a "
            "decision can be explained only from the beginning of the log; a log that was recorded "
            "in time holds it (spotline explain JOB --log LOG)"
        )
        self.first_seq = first_seq


class ExplainerBusy(SpotlineError):
    """Another decision is being explained, and only one is at a time."""


class DecisionExplainer(Protocol):
    """Explains decisions of the log that a service follows, without holding that up."""

    async def explain(self, query: DecisionQuery) -> DecisionExplanation:
        """Why a decision was what it was.

        Raises
        ------
        UnknownDecision
            There is no such job or decision.
        LogBeginsLate
            The beginning of the log is gone.
        ExplainerBusy
            Another one is being explained.
        """
        ...

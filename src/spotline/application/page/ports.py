"""What pages ask of others: what is not in the book, or takes too long to be worked out with it."""

from __future__ import annotations

from typing import Protocol

from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.domain.jobs.outlook import JobOutlook


class Explainer(Protocol):
    """Explains decisions: of a recorded log, or by asking the allocator. Takes seconds."""

    async def explain(self, query: DecisionQuery, *, token: str = "") -> DecisionExplanation:
        """Why a decision was what it was; `token` is that of whoever asks, empty for nobody's.

        Raises
        ------
        SpotlineError
            It cannot be explained, or not now; the message says why.
        """
        ...


class JobOutlooks(Protocol):
    """Says what is expected of a job. May take seconds."""

    async def outlook(self, job_id: str, at: int | None, *, token: str = "") -> JobOutlook | None:
        """What was expected at the end of slot `at`, None: what is now; `token` as above.

        Returns
        -------
        JobOutlook
            None where nothing can be said: the job is over, or the past cannot be worked out.

        Raises
        ------
        SpotlineError
            It cannot be worked out now; the message says why.
        """
        ...

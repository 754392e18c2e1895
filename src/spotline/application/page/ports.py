"""What pages ask of others: what is not in the book, or takes too long to be worked out with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class JobOutlooksBeside(Protocol):
    """Works out what is expected of many jobs while pages go on being served."""

    def known(self, job_ids: Sequence[str], at: int | None) -> Mapping[str, JobOutlook | None]:
        """What is known by now of these jobs at the end of slot `at`, None: of the last.

        Begins to work out what is not, in their order, and lets go of what others asked for that is
        not begun. Never waits. None: nothing can be said of that job.
        """
        ...

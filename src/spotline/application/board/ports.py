"""What the board needs of others."""

from __future__ import annotations

from typing import Protocol

from spotline.domain.jobs.outlook import JobOutlook


class Outlooks(Protocol):
    """What is expected of jobs, as it was worked out last."""

    def latest(self, job_id: str) -> JobOutlook | None:
        """The outlook that was worked out last for a job, None where none was yet. Never waits."""
        ...

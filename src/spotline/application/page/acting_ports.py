"""What pages need of others: who does what people ask for."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from spotline.application.allocator.messages import (
    ChangeReceipt,
    JobStatus,
    PlanAnswer,
    PlanRequest,
    SubmissionReceipt,
)
from spotline.application.allocator.updates import JobChange
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.market_view import MarketStatus
from spotline.application.operations.messages import (
    AccountModes,
    LimitNowSet,
    LimitsInForce,
    LimitWanted,
    ModeSet,
    ModeWanted,
    Orphans,
    ParkedPage,
    ParkedQuery,
    Pause,
    Paused,
    Resume,
    Resumed,
    SystemStatus,
)
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job


class JobActs(Protocol):
    """What owners do. Every method may raise `ViewRefused`, in the words of who refuses."""

    async def submit(self, job: Job | JobDraft) -> SubmissionReceipt:
        """Hand a job over; the same client request id is the same job."""
        ...

    async def plan(self, request: PlanRequest) -> PlanAnswer:
        """What could be done with a job; buys nothing."""
        ...

    async def get(self, job_id: str) -> JobStatus:
        """Where a job stands."""
        ...

    async def explain(self, query: DecisionQuery) -> DecisionExplanation:
        """Why a decision was what it was; takes seconds."""
        ...

    async def update(self, change: JobChange) -> ChangeReceipt:
        """Change a job."""
        ...

    async def cancel(self, job_id: str, *, request_id: str = "") -> bool:
        """Withdraw a job; whether it was over already."""
        ...

    async def market(self) -> MarketStatus:
        """What time it is in the market."""
        ...


class OperatorActs(Protocol):
    """What operators do. Every method may raise `ViewRefused`."""

    async def status(self) -> SystemStatus:
        """How the system is."""
        ...

    async def limits(self) -> LimitsInForce:
        """The limits on money that are in force."""
        ...

    async def parked(self, query: ParkedQuery) -> ParkedPage:
        """Parked entries."""
        ...

    async def retry_parked(self, service: str, event_id: str, *, request_id: str) -> str:
        """Publish a parked entry again; as which event."""
        ...

    async def drop_parked(
        self, service: str, event_id: str, *, request_id: str, detail: str = ""
    ) -> None:
        """Give a parked entry up."""
        ...

    async def pause(self, pause: Pause) -> Paused:
        """Stop buying."""
        ...

    async def resume(self, resume: Resume) -> Resumed:
        """Go on buying."""
        ...

    async def orphans(self) -> Orphans:
        """Instances that belong to no job."""
        ...

    async def reap_orphans(
        self, instance_ids: tuple[str, ...], *, request_id: str
    ) -> tuple[str, ...]:
        """Have such instances ended (none: all of them); which."""
        ...

    async def account_modes(self) -> AccountModes:
        """The mode of every account."""
        ...

    async def set_limit(self, wanted: LimitWanted) -> LimitNowSet:
        """Have another limit count than settings state."""
        ...

    async def set_account_mode(self, wanted: ModeWanted) -> ModeSet:
        """Have an account in a mode."""
        ...


class Acts(Protocol):
    """What one caller may ask for, in his own name."""

    @property
    def jobs(self) -> JobActs:
        """What owners do."""
        ...

    @property
    def operations(self) -> OperatorActs:
        """What operators do."""
        ...


class Acting(Protocol):
    """Does what people ask for; a recorded log has none: it cannot be changed."""

    def of_caller(self, token: str) -> AbstractAsyncContextManager[Acts]:
        """In the name of whoever has this token, never in the server's own.

        What is refused inside is raised as `ViewRefused`.
        """
        ...
